"""The environment of a program that is to speak to its models and tools through our proxy.

A base URL that the user's environment names stays the upstream: the proxy stands in between and sends requests there. A
base URL that nobody names is left alone, because the code of the program may have a default of its own. Pointing the
variable at us would send its prompts and keys to the provider instead. Such a program is seen through `HTTP_PROXY` and
`HTTPS_PROXY`. The program still trusts every certificate that it trusted before.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import trustme
from msgspec import Struct

from bylaw.errors import BylawError
from bylaw.files import locked_folder
from bylaw.files.atomic import write_atomic

# A certificate authority of our own, and the certificates that it signs for hosts


_MOST_HOSTS = 256


class Authority:
    def __init__(self, ca: trustme.CA, file: Path) -> None:
        self._ca = ca
        self.file = file
        """its certificate, which the client must trust"""
        self._contexts: dict[str, ssl.SSLContext] = {}

    @classmethod
    def temporary(cls, folder: Path) -> Authority:
        """An authority whose private key is never written to disk."""
        ca = trustme.CA(organization_name="Bylaw", organization_unit_name="contract run")
        file = folder / "bylaw-ca.pem"
        ca.cert_pem.write_to_path(file)
        return cls(ca, file)

    @classmethod
    def persistent(cls, folder: Path) -> Authority:
        """The authority of this folder, created once: an agent that its owner starts must know it beforehand."""
        file, key = folder / "bylaw-ca.pem", folder / "bylaw-ca.key"
        folder.mkdir(parents=True, exist_ok=True)
        with locked_folder(folder):  # else two runs could leave the key of one and the certificate of the other
            if file.exists() and key.exists():
                return cls(trustme.CA.from_pem(file.read_bytes(), key.read_bytes()), file)
            file.unlink(missing_ok=True)  # so that a kill leaves no certificate beside the key of another one
            ca = trustme.CA(organization_name="Bylaw", organization_unit_name="contract run")
            write_atomic(key, ca.private_key_pem.bytes(), mode=0o600)
            write_atomic(file, ca.cert_pem.bytes())
            return cls(ca, file)

    def context(self, host: str) -> ssl.SSLContext:
        """A context to answer as the host. Raises ValueError if the name is not a valid host name."""
        context = self._contexts.get(host)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            # Some clients do not compare the address of this machine with the certificate, but its name.
            names = (host, "localhost") if host.startswith("127.") or host == "::1" else (host,)
            self._ca.issue_cert(*names).configure_cert(context)
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[host] = context
        return context

    def environment(self) -> dict[str, str]:
        """The variables in which the usual libraries look for a certificate authority."""
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE",
                 "GIT_SSL_CAINFO", "DENO_CERT", "CARGO_HTTP_CAINFO")  # fmt: skip
        return dict.fromkeys(names, str(self.file))


BASE_URLS = {"openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "anthropic": ("ANTHROPIC_BASE_URL",)}
"""for each provider: the variables that its clients read"""
MODEL_HOSTS = (
    "api.openai.com",
    "api.anthropic.com",
    "*.openai.azure.com",
    "*.services.ai.azure.com",
    "api.deepseek.com",
    "api.fireworks.ai",
    "api.groq.com",
    "api.mistral.ai",
    "api.together.xyz",
    "api.x.ai",
    "openrouter.ai",
)
"""hosts that serve models in one of the formats that we read"""
_OTHER_PROXIES = ("ALL_PROXY", "WS_PROXY", "WSS_PROXY", "SOCKS_PROXY")
"""variables that some clients prefer; they are set only if the user has set them"""


class Address(Struct, frozen=True):
    """Where a client of a provider sends its requests without us."""

    origin: str
    path: str
    """with the query, if there is one: clients append to it, or parse it themselves"""


def named_addresses(environment: Mapping[str, str]) -> dict[str, Address]:
    """The addresses that an environment names, by provider. Raises BylawError for one that is not an HTTP address."""
    found: dict[str, Address] = {}
    for provider, variables in BASE_URLS.items():
        name = next((name for name in variables if environment.get(name)), None)
        if name is None:
            continue
        url = environment[name]
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise BylawError(f"{name} is `{url}`, which is not an HTTP address")
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path.rstrip("/")
        found[provider] = Address(f"{parts.scheme}://{parts.netloc}", path)
    return found


def base_url_variables(provider: str, url: str) -> dict[str, str]:
    return dict.fromkeys(BASE_URLS[provider], url)


def proxy_variables(environment: Mapping[str, str], proxy: str) -> dict[str, str]:
    """The variables that lead all other requests to the proxy, those to this machine included.

    Exceptions (`NO_PROXY`) are about the user's own proxy. Ours observes them on the way to the server.
    """
    variables = {name: proxy for upper in ("HTTP_PROXY", "HTTPS_PROXY") for name in (upper, upper.lower())}
    others = [name for name in environment if name.upper() in _OTHER_PROXIES and environment[name]]
    # Node reads the others only from its release 24 on, and only if this one is set.
    return {**variables, **dict.fromkeys(others, proxy), "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}


def trust_variables(environment: Mapping[str, str], authority: Authority, folder: Path) -> dict[str, str]:
    """Variables for a bundle of our authority and all that the program would trust without it."""
    variables = authority.environment()
    paths = ssl.get_default_verify_paths()
    system = environment.get("SSL_CERT_FILE") or paths.cafile or paths.openssl_cafile
    trusted = [_read(system), *(_read(environment[name]) for name in variables if environment.get(name))]
    if not trusted[0]:  # a bundle that replaces the system's certificates must contain them
        variables = {"NODE_EXTRA_CA_CERTS": variables["NODE_EXTRA_CA_CERTS"]}
    bundle = folder / "trusted.pem"
    bundle.write_bytes(b"\n".join(dict.fromkeys([*trusted, authority.file.read_bytes()])))
    return dict.fromkeys(variables, os.fspath(bundle))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""

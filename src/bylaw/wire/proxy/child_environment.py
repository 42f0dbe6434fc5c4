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

from msgspec import Struct

from bylaw.errors import BylawError
from bylaw.wire.proxy.authority import Authority

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

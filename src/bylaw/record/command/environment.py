"""The environment that leads a child to the proxy: addresses of models, proxies, and whom to trust.

An address that the user has set stays the one that is asked in the end. The child keeps its path, and so every client
asks for the same things as before. The certificates that it trusted it still trusts.
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

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]", "*")
_ADDRESSES = {
    "openai": (("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    "anthropic": (("ANTHROPIC_BASE_URL",), "https://api.anthropic.com"),
}
"""by provider: the variables its clients read, and what they ask without them"""


class Address(Struct, frozen=True):
    """Where a provider's client would ask."""

    origin: str
    path: str


def addresses(given: Mapping[str, str]) -> dict[str, Address]:
    """By provider. Raises BylawError for a variable that holds no address."""
    found: dict[str, Address] = {}
    for provider, (variables, default) in _ADDRESSES.items():
        name, url = next(((name, given[name]) for name in variables if given.get(name)), ("", default))
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise BylawError(f"{name} is `{url}`, which is no HTTP address")
        found[provider] = Address(f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/"))
    return found


def child_environment(
    given: Mapping[str, str], *, proxy: str, known: Mapping[str, Address], authority: Authority, folder: Path
) -> dict[str, str]:
    """The variables of the child; `proxy` is the proxy's own address."""
    env = dict(given)
    for provider, (variables, _) in _ADDRESSES.items():
        env |= dict.fromkeys(variables, f"{proxy}/{provider}{known[provider].path}")
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        env |= {name: proxy, name.lower(): proxy}
    kept = _without_loopback(given.get("NO_PROXY") or given.get("no_proxy") or "")
    env |= {"NO_PROXY": kept, "no_proxy": kept, "NODE_USE_ENV_PROXY": "1"}
    return env | _trust(given, authority, folder)


def _without_loopback(no_proxy: str) -> str:
    """A model that is served on this machine must be heard too."""
    return ",".join(name for part in no_proxy.split(",") if (name := part.strip()) and name not in _LOOPBACK)


def _trust(given: Mapping[str, str], authority: Authority, folder: Path) -> dict[str, str]:
    """Our authority beside all that the child would trust without it."""
    variables = authority.environment()
    paths = ssl.get_default_verify_paths()
    system = given.get("SSL_CERT_FILE") or paths.cafile or paths.openssl_cafile
    trusted = [_read(system), *(_read(given[name]) for name in variables if given.get(name))]
    if not trusted[0]:  # what replaces a system's own certificates must hold them
        variables = {"NODE_EXTRA_CA_CERTS": variables["NODE_EXTRA_CA_CERTS"]}
    bundle = folder / "trusted.pem"
    bundle.write_bytes(b"\n".join(dict.fromkeys([*trusted, authority.file.read_bytes()])))
    return dict.fromkeys(variables, os.fspath(bundle))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""

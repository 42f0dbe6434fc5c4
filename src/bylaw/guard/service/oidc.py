"""Signing in through an OpenID Connect provider: the authorization code flow with PKCE.

The provider says who a person is; `People` says what that person may do. Tokens are not kept: after the sign-in the
service has a login of its own, which it can revoke.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from typing import Any
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from bylaw.guard.model import is_name
from bylaw.guard.service.auth import is_same_token
from bylaw.guard.service.errors import BadRequest, Unauthorized, Unavailable

INSTALL = "signing in through an identity provider needs more packages: pip install 'bylaw[service]'"
ALGORITHMS = ["RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "PS384", "PS512", "EdDSA"]
"""with a public key: a provider cannot make us take its public key for a shared secret"""
SECONDS = 10.0
KEYS_SECONDS = 300.0
"""how long the provider's keys are remembered"""
LEEWAY = 60.0
_LOCAL = ("127.0.0.1", "localhost", "::1")


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    issuer: str
    client_id: str
    public_url: str
    """where browsers reach this service, such as `https://guard.example.org`"""
    name_claim: str = "email"
    """the claim that holds the name; `email` counts only if the provider has verified it"""
    groups_claim: str = "groups"
    scope: str = "openid email profile"

    def __post_init__(self) -> None:
        for name in ("issuer", "public_url"):
            parts = urlsplit(getattr(self, name))
            if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
                raise ValueError(f"{name}: expected an https address")


class Provider:
    def __init__(self, settings: OidcSettings, client_secret: str | None = None, http: Any = None) -> None:
        """Raises RuntimeError without the packages. `http`: a client to use instead of a new one."""
        try:
            import httpx2
            import jwt
        except ImportError:
            raise RuntimeError(INSTALL) from None
        self._settings, self._secret, self._jwt = settings, client_secret, jwt
        self._http = http or httpx2.AsyncClient(timeout=SECONDS, follow_redirects=False)
        self._problems: tuple[type[Exception], ...] = (httpx2.HTTPError, ValueError, KeyError, TypeError)
        self._found: dict[str, Any] = {}
        self._keys: tuple[float, Any] | None = None
        self._lock = asyncio.Lock()

    @property
    def redirect_uri(self) -> str:
        return self._settings.public_url.rstrip("/") + "/auth/callback"

    async def authorize_url(self, flow: dict[str, str]) -> str:
        found = await self._discover()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(flow["verifier"].encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": self._settings.scope,
            "state": flow["state"],
            "nonce": flow["nonce"],
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = str(found["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    async def identify(self, answer: dict[str, str], flow: dict[str, str]) -> tuple[str, list[str]]:
        """The name and the groups of the person. Raises Unauthorized, BadRequest or Unavailable."""
        if not is_same_token(answer.get("state", ""), flow.get("state", "-")):
            raise BadRequest("this answer belongs to another sign-in; begin again")
        if answer.get("iss", self._settings.issuer) != self._settings.issuer:
            raise BadRequest("this answer comes from another provider")
        if "error" in answer or not answer.get("code"):
            raise Unauthorized("the identity provider has refused the sign-in")
        claims = await self._claims(answer["code"], flow)
        if not is_same_token(str(claims.get("nonce", "")), flow.get("nonce", "-")):
            raise Unauthorized("the identity provider's answer belongs to another sign-in")
        name = claims.get(self._settings.name_claim)
        if self._settings.name_claim == "email" and claims.get("email_verified") is False:
            raise Unauthorized("the e-mail address is not verified")
        if not isinstance(name, str) or not is_name(name) or not name.strip() or not name.isprintable():
            raise Unauthorized(f"the identity provider gives no `{self._settings.name_claim}`")
        groups = claims.get(self._settings.groups_claim)
        return name, [one for one in groups if isinstance(one, str)] if isinstance(groups, list) else []

    async def _claims(self, code: str, flow: dict[str, str]) -> dict[str, Any]:
        found = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": flow["verifier"],
        }
        if self._secret:
            form["client_secret"] = self._secret
        try:
            response = await self._http.post(found["token_endpoint"], data=form)
            if response.status_code != 200:
                raise Unauthorized("the identity provider has refused the sign-in")
            token = response.json()["id_token"]
            key = await self._key(token)
            return dict(
                self._jwt.decode(
                    token,
                    key,
                    algorithms=ALGORITHMS,
                    audience=self._settings.client_id,
                    issuer=self._settings.issuer,
                    leeway=LEEWAY,
                    options={"require": ["exp", "iat", "iss", "aud", "sub"]},
                )
            )
        except self._jwt.PyJWTError:
            raise Unauthorized("the identity provider's answer is not valid") from None
        except self._problems as problem:
            raise Unavailable(f"the identity provider cannot be used: {type(problem).__name__}") from None

    async def _key(self, token: str) -> Any:
        """The key that the token names. A key that is not known is looked for once more: providers change them."""
        id = self._jwt.get_unverified_header(token).get("kid")
        for fresh in (False, True):
            keys = await self._key_set(fresh=fresh)
            found = [one for one in keys.keys if one.public_key_use in (None, "sig") and id in (None, one.key_id)]
            if len(found) == 1:
                return found[0]
        raise self._jwt.InvalidTokenError("no such key")

    async def _key_set(self, *, fresh: bool) -> Any:
        async with self._lock:
            if fresh or self._keys is None or time.monotonic() > self._keys[0]:
                response = await self._http.get((await self._discover())["jwks_uri"])
                keys = self._jwt.PyJWKSet.from_dict(response.json())
                self._keys = time.monotonic() + KEYS_SECONDS, keys
            return self._keys[1]

    async def _discover(self) -> dict[str, Any]:
        if not self._found:
            try:
                response = await self._http.get(self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
                found = response.json()
                if found["issuer"] != self._settings.issuer:
                    raise ValueError("another issuer")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    parts = urlsplit(found[name])
                    if parts.scheme != "https" and parts.hostname not in _LOCAL:
                        raise ValueError(f"{name} is not https")
            except self._problems as problem:
                raise Unavailable(f"the identity provider cannot be used: {type(problem).__name__}") from None
            self._found = found
        return self._found

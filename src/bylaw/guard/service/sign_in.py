"""Signing in and out of the console: with a key, or through an OpenID Connect provider. `/auth/…`

The provider says who a person is, by the authorization code flow with PKCE; `People` says what that person may do. Its
tokens are not kept: after the sign-in the service has a login of its own, which it can revoke.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bylaw.guard.model import is_name
from bylaw.guard.service.auth import LOGIN_SECONDS, Principal, is_same_token
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from bylaw.guard.service.gate import LOGIN, check_site
from bylaw.guard.stores.records import Scope

FLOW = "__Host-bylaw-flow"
HOME = "/console/"
FLOW_SECONDS = 600


def routes() -> list[Route]:
    return [
        Route("/auth/login", sign_in_with_key, methods=["POST"]),
        Route("/auth/oidc", begin_flow, methods=["GET"]),
        Route("/auth/callback", end_flow, methods=["GET"]),
        Route("/auth/logout", sign_out, methods=["POST"]),
    ]


async def sign_in_with_key(request: Request) -> Response:
    """The form of the login page: `key` and `next`."""
    context: Context = request.app.state.context
    check_site(request.headers)  # nobody is signed in by another site
    fields = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
    principal = await context.run(context.credentials.check, fields.get("key", [""])[0].strip())
    if not principal.may("operator"):
        raise Forbidden("the console is for keys with the scope `operator` or `admin`")
    return await _signed_in(context, principal, fields.get("next", [""])[0], made_with=principal.id)


async def begin_flow(request: Request) -> Response:
    context: Context = request.app.state.context
    if context.oidc is None:
        raise NotFound("no identity provider is configured")
    flow = {
        "state": secrets.token_urlsafe(24),
        "nonce": secrets.token_urlsafe(24),
        "verifier": secrets.token_urlsafe(48),
        "next": safe_path(request.query_params.get("next")),
    }
    response = RedirectResponse(await context.oidc.authorize_url(flow), 303)
    _set_cookie(response, FLOW, msgspec.json.encode(flow).hex(), FLOW_SECONDS)
    return response


async def end_flow(request: Request) -> Response:
    context: Context = request.app.state.context
    if context.oidc is None:
        raise NotFound("no identity provider is configured")
    try:
        flow = msgspec.json.decode(bytes.fromhex(request.cookies.get(FLOW, "")), type=dict[str, str])
    except (ValueError, msgspec.DecodeError):
        raise BadRequest("the sign-in took too long, or was begun in another browser; begin again") from None
    name, groups = await context.oidc.identify(dict(request.query_params), flow)
    principal = Principal(name=name, scopes=context.people.scopes(name, groups), via="login")
    if not principal.may("operator"):
        raise Forbidden(f"`{name}` is neither an operator nor an admin here")
    response = await _signed_in(context, principal, flow.get("next", ""))
    response.delete_cookie(FLOW, path="/", secure=True, httponly=True)
    return response


async def sign_out(request: Request) -> Response:
    context: Context = request.app.state.context
    principal = getattr(request.state, "principal", None)
    if isinstance(principal, Principal) and principal.via == "login":
        await context.run(context.credentials.revoke, principal.id, by=principal.name)
    response = RedirectResponse("/console/login", 303)
    response.delete_cookie(LOGIN, path="/", secure=True, httponly=True)
    return response


async def _signed_in(context: Context, principal: Principal, after: str, made_with: str | None = None) -> Response:
    scopes: list[Scope] = ["admin"] if principal.may("admin") else ["operator"]
    cookie, _ = await context.run(
        context.credentials.create,
        principal.name,
        scopes,
        seconds=LOGIN_SECONDS,
        by=principal.name,
        kind="login",
        made_with=made_with,
    )
    response = RedirectResponse(safe_path(after), 303)
    _set_cookie(response, LOGIN, cookie, int(LOGIN_SECONDS))
    return response


def safe_path(text: str | None) -> str:
    """A page of the console; anything else, such as another site, becomes its first page."""
    if not text or not text.startswith("/console") or not text.isprintable() or "\\" in text or "//" in text:
        return HOME
    return text if text.isascii() and text[len("/console") :][:1] in ("", "/", "?") else HOME


def _set_cookie(response: Response, name: str, value: str, seconds: int) -> None:
    response.set_cookie(name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="lax")


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

"""Signing in and out of the console: with a key, or through an identity provider. `/auth/…`"""

from __future__ import annotations

import secrets
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bylaw.guard.service.auth import LOGIN_SECONDS, Principal
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import BadRequest, Forbidden, NotFound
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

"""Signing in through an identity provider that runs in this process."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bylaw.guard.service.auth import People
from bylaw.guard.service.sign_in import OidcSettings, Provider
from tests.service.support import Site

ISSUER = "https://login.example"
SETTINGS = OidcSettings(issuer=ISSUER, client_id="bylaw", public_url="https://testserver")


class IdentityProvider:
    """What it answers can be changed: `claims`, `key`, `algorithm`, `issuer`."""

    def __init__(self) -> None:
        self.key: Any = ec.generate_private_key(ec.SECP256R1())
        self.claims: dict[str, Any] = {"email": "ann@example.org", "email_verified": True, "groups": ["desk"]}
        self.algorithm, self.issuer = "ES256", ISSUER
        self.code, self.asked = "code-1", {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._keys),
            ]
        )

    async def _discovery(self, request: Request) -> JSONResponse:
        found = {"issuer": self.issuer, "authorization_endpoint": f"{ISSUER}/authorize"}
        return JSONResponse({**found, "token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/keys"})

    async def _keys(self, request: Request) -> JSONResponse:
        public = json.loads(ECAlgorithm.to_jwk(self.public.public_key()))
        return JSONResponse({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "ES256"}]})

    @property
    def public(self) -> Any:
        return getattr(self, "announced", self.key)

    async def _token(self, request: Request) -> JSONResponse:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if form["code"] != self.code or form["client_secret"] != "s3cret" or len(form["code_verifier"]) < 43:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "bylaw", "sub": "1", "iat": now, "exp": now + 60, "nonce": self.asked["nonce"]}
        token = jwt.encode({**claims, **self.claims}, self.key, algorithm=self.algorithm, headers={"kid": "k1"})
        return JSONResponse({"id_token": token, "token_type": "Bearer"})


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture
def site(provider: IdentityProvider) -> Site:
    site = Site(people=People(operators=("group:desk",), admins=("root@example.org",)))
    web = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=provider.app))
    site.context.oidc = Provider(SETTINGS, "s3cret", http=web)
    return site


def sign_in(site: Site, provider: IdentityProvider, **changed: str) -> Any:
    begun = site.http.get("/auth/oidc?next=/console/reviews", follow_redirects=False)
    parts = urlsplit(begun.headers["location"])
    provider.asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert parts.netloc == "login.example" and provider.asked["code_challenge_method"] == "S256"
    assert provider.asked["redirect_uri"] == "https://testserver/auth/callback"
    answer = {"code": "code-1", "state": provider.asked["state"], **changed}
    return site.http.get("/auth/callback", params=answer, follow_redirects=False)


def test_a_person_signs_in(site: Site, provider: IdentityProvider) -> None:
    response = sign_in(site, provider)
    assert (response.status_code, response.headers["location"]) == (303, "/console/reviews")
    assert site.raw(None, "GET", "/v1/reviews").status_code == 200
    assert site.raw(None, "GET", "/v1/keys").status_code == 403
    [login] = site.context.credentials.list(kind="login")
    assert (login.name, login.scopes) == ("ann@example.org", ("operator",))


def test_names_and_groups_decide_what_they_may(site: Site, provider: IdentityProvider) -> None:
    provider.claims["email"] = "root@example.org"
    sign_in(site, provider)
    assert site.raw(None, "GET", "/v1/keys").status_code == 200
    site.http.cookies.clear()
    provider.claims |= {"email": "eve@example.org", "groups": ["sales"]}
    assert sign_in(site, provider).status_code == 403


@pytest.mark.parametrize(
    "wrong",
    [
        {"claims": {"aud": "other"}},
        {"claims": {"iss": "https://evil.example"}},
        {"claims": {"exp": 1000}},
        {"claims": {"nonce": "other"}},
        {"claims": {"email": None}},
        {"claims": {"email_verified": False}},
        {"code": "other"},
        {"other key": True},
        {"unsigned": True},
        {"shared secret": True},
    ],
    ids=str,
)
def test_answers_that_are_not_valid_are_refused(site: Site, provider: IdentityProvider, wrong: dict[str, Any]) -> None:
    provider.claims |= wrong.get("claims", {})
    provider.code = wrong.get("code", provider.code)
    if wrong.get("other key"):
        provider.announced = ec.generate_private_key(ec.SECP256R1())  # type: ignore[attr-defined]
    if wrong.get("unsigned"):
        provider.announced, provider.key, provider.algorithm = provider.key, None, "none"  # type: ignore[attr-defined]
    if wrong.get("shared secret"):
        provider.announced, provider.key = provider.key, "x" * 32  # type: ignore[attr-defined]
        provider.algorithm = "HS256"
    response = sign_in(site, provider)
    assert response.status_code == 401
    assert site.raw(None, "GET", "/v1/reviews").status_code == 401


def test_a_sign_in_of_another_browser_is_refused(site: Site, provider: IdentityProvider) -> None:
    assert sign_in(site, provider, state="other").status_code == 400
    site.http.cookies.clear()
    assert site.http.get("/auth/callback?code=code-1&state=x").status_code == 400
    assert sign_in(site, provider, iss="https://evil.example").status_code == 400
    assert sign_in(site, provider, error="access_denied").status_code == 401


def test_another_issuer_and_plain_http_are_refused(site: Site, provider: IdentityProvider) -> None:
    provider.issuer = "https://evil.example"
    assert site.http.get("/auth/oidc", follow_redirects=False).status_code == 503
    with pytest.raises(ValueError, match="https"):
        OidcSettings(issuer="http://login.example", client_id="x", public_url="https://testserver")

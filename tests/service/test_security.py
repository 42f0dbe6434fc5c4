"""Who may do what, and what a hostile request gets."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from bylaw.guard.service.api.routes import ENDPOINTS
from bylaw.guard.service.auth import People
from bylaw.guard.service.context import Settings
from bylaw.guard.service.gate import LOGIN
from bylaw.guard.service.sign_in import safe_path
from tests.service.support import Site

ALLOWED = {"agent": {"support"}, "operator": {"operator", "admin"}, "admin": {"admin"}}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_every_endpoint_needs_its_scope(endpoint: Any, shared: Site) -> None:
    path = "/v1" + endpoint.path.replace("{id}", "none")
    assert shared.raw(None, endpoint.method, path).status_code == 401
    for who in ("support", "operator", "admin"):
        is_let_through = who in ALLOWED[endpoint.scope] or (endpoint.path.endswith("/wait") and who != "support")
        status = shared.raw(who, endpoint.method, path, headers={"content-type": "text/plain"}).status_code
        assert (status != 403) == is_let_through, (who, status)


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    site = Site()
    with site.http:  # one event loop for all requests, which is quicker
        yield site


def test_a_key_that_is_revoked_expired_or_wrong_is_refused(site: Site) -> None:
    key, record = site.context.credentials.create("bob", ["operator"])
    assert site.raw(key, "GET", "/v1/reviews").status_code == 200
    site.ask("admin", "DELETE", f"/v1/keys/{record.id}")
    assert site.raw(key, "GET", "/v1/reviews").status_code == 401
    brief = site.key("carl", "operator", seconds=0.01)
    time.sleep(0.02)
    good = site.keys["operator"]
    forms = (
        brief,
        good[:-1] + ("a" if good[-1] != "a" else "b"),
        good + "x",
        good.split("_")[0],
        "",
        "bylaw__x",
        "é" * 9,
    )
    for wrong in forms:
        response = site.raw(None, "GET", "/v1/reviews", headers={"authorization": f"Bearer {wrong}".encode()})
        assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized"), wrong
    assert site.raw(None, "GET", "/v1/reviews", headers={"authorization": f"Basic {good}"}).status_code == 401


def test_keys_are_stored_hashed_and_never_listed(site: Site) -> None:
    secret = site.keys["operator"].split("_", 2)[2]
    rows = list(site.store.audit())
    assert rows
    assert all(secret not in json.dumps(row.data) + row.stored for row in rows)
    listed = site.raw("admin", "GET", "/v1/keys").text
    assert secret not in listed and all(one["digest"] == "" for one in json.loads(listed)["items"])


def test_a_key_of_an_agent_has_no_other_scope(site: Site) -> None:
    for body in (
        {"name": "x", "scopes": ["agent", "operator"], "agents": ["support"]},
        {"name": "x", "scopes": ["agent"]},
        {"name": "x", "scopes": ["operator"], "agents": ["support"]},
        {"name": " ", "scopes": ["operator"]},
        {"name": "x\n", "scopes": ["operator"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "x", "scopes": ["operator"], "seconds": -1},
    ):
        site.ask("admin", "POST", "/v1/keys", body, status=400)


def test_an_agent_uses_only_its_own_name_and_sessions(site: Site) -> None:
    call = {"tool": "lookup_order", "session": "mine"}
    site.ask("support", "POST", "/v1/decide", {**call, "agent": "mailer"}, status=403)
    decision = site.ask("support", "POST", "/v1/decide", call)
    reported = {"call_id": decision["call_id"], "session": "mine"}
    site.ask("mailer", "POST", "/v1/decide", call, status=403)
    site.ask("mailer", "POST", "/v1/record", reported, status=403)
    site.ask("mailer", "POST", "/v1/release", reported, status=403)
    site.ask("mailer", "POST", "/v1/observe", {"kind": "message", "session": "mine"}, status=403)
    site.ask("mailer", "POST", "/v1/sessions/end", {"session": "mine"}, status=403)
    site.ask("mailer", "POST", "/v1/past_calls", call, status=403)
    run = {"session": "mine", "run": "r", "agent": "mailer"}
    site.ask("mailer", "POST", "/v1/runs", run, status=403)
    site.ask("support", "POST", "/v1/runs", run, status=403)  # not as the agent at the top
    site.ask("support", "POST", "/v1/record", {**reported, "session": "nobody's"}, status=404)
    site.ask("support", "POST", "/v1/runs", {"session": "mine", "run": "r1", "agent": "support"})
    site.ask("support", "POST", "/v1/runs", {**run, "run": "r2", "parent_run": "r1"})
    site.ask("mailer", "POST", "/v1/decide", {**call, "run": "r2"})  # announced by the agent above


def test_nobody_answers_a_review_of_their_own(site: Site) -> None:
    id = site.decide("issue_refund", {"amount": 900})["review"]
    site.ask("support", "POST", f"/v1/reviews/{id}/approve", {}, status=403)
    for name in ("support", "Support ", "su\u200bpport"):
        try:
            key = site.key(name, "operator")
        except Exception:
            continue
        site.ask(key, "POST", f"/v1/reviews/{id}/approve", {}, status=403)
    site.ask("mailer", "GET", f"/v1/reviews/{id}/wait?timeout=0", status=404)
    body = {"by": "somebody else"}
    site.ask("operator", "POST", f"/v1/reviews/{id}/approve", body, status=400)
    assert site.ask("operator", "POST", f"/v1/reviews/{id}/approve", {})["decided_by"] == "ann"


def test_bodies_that_cannot_be_read_are_refused(site: Site) -> None:
    head = {"content-type": "application/json"}
    for content, status in (
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"tool": 3, "session": "s"}', 400),
        (b'{"tool": "t", "session": "s", "unknown": 1}', 400),
        (b'{"tool": "t", "session": "s", "arguments": {"a": 1, "a": 2}}', 400),
        (b'{"tool": "t", "session": "s", "arguments": {"a": "\\ud800"}}', 400),
        (b'{"tool": "t", "session": "s", "arguments": {"a": NaN}}', 400),
        (b'{"tool": "t", "session": "s", "arguments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b"\xff", 400),
    ):
        response = site.raw("support", "POST", "/v1/decide", content=content, headers=head)
        assert response.status_code == status, content[:80]
    wrong = site.raw("support", "POST", "/v1/decide", content=b"{}", headers={"content-type": "text/plain"})
    assert wrong.status_code == 415
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    assert site.decide("lookup_order", {"a": deep})["denial"] == "structural"


def test_queries_are_read_strictly(site: Site) -> None:
    for query in ("limit=0", "limit=x", "unknown=1", "limit=1&limit=2", "status=null"):
        assert site.raw("operator", "GET", f"/v1/reviews?{query}").status_code == 400, query
    assert site.raw("operator", "GET", "/v1/sessions/view").status_code == 400
    site.decide("lookup_order", session="null")
    [found] = site.ask("operator", "GET", "/v1/decisions?session=null")["decisions"]
    assert found["session"] == "null"


def test_large_bodies_are_refused_whatever_their_length_claims() -> None:
    site = Site(settings=Settings(largest_body=1000))
    head = {"content-type": "application/json"}
    body = json.dumps({"tool": "lookup_order", "session": "s", "arguments": {"a": "x" * 2000}}).encode()
    assert site.raw("support", "POST", "/v1/decide", content=body, headers=head).status_code == 413

    def parts() -> Any:
        yield body[:600]
        yield body[600:]

    assert site.raw("support", "POST", "/v1/decide", content=parts(), headers=head).status_code == 413
    assert (
        site.raw("support", "POST", "/v1/decide", content=b"{}", headers={**head, "content-length": "-1"}).status_code
        == 400
    )


def test_a_slow_body_is_given_up() -> None:
    site = Site(settings=Settings(body_seconds=0.05))
    status = []

    async def receive() -> Any:
        await asyncio.sleep(5)

    async def send(message: Any) -> None:
        status.append(message.get("status"))

    key = site.keys["support"].encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/decide",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"authorization", b"Bearer " + key), (b"content-type", b"application/json")],
    }
    asyncio.run(site.app(scope, receive, send))
    assert status[0] == 400


def test_too_many_requests_are_refused() -> None:
    site = Site(settings=Settings(rate=0.001, burst=2))
    statuses = [site.raw("operator", "GET", "/v1/switches").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert site.raw("admin", "GET", "/v1/switches").status_code == 200  # somebody else
    assert [site.raw(None, "GET", "/v1/openapi.json").status_code for _ in range(3)] == [200, 200, 429]


def junk(number: int) -> str:
    return f"bylaw_{number:016x}_{'x' * 43}"


def exhausted(**more: Any) -> Site:
    """A service whose only address has tried keys until it is refused."""
    site = Site(settings=Settings(rate=0.001, burst=20), **more)
    statuses = [site.raw(junk(number), "GET", "/v1/switches").status_code for number in range(21)]
    assert statuses == [401] * 20 + [429]
    return site


def test_whoever_tries_keys_locks_out_no_valid_key_of_the_address() -> None:
    site = exhausted(people=People(trusted=("unix",), operators=("lea",)))
    assert site.raw("operator", "GET", "/v1/switches").status_code == 200  # though it was never seen before
    cookie = {"cookie": f"{LOGIN}={site.key('eve', 'operator', kind='login')}"}
    site.context.credentials._listed_until = 0.0  # a second later
    assert site.raw(None, "GET", "/v1/switches", headers=cookie).status_code == 200
    assert site.raw(None, "GET", "/v1/switches", headers={"cookie": f"{LOGIN}={junk(1)}"}).status_code == 429
    wrong = site.keys["operator"][:-1] + "-"
    for key in (wrong, junk(1), "nonsense"):
        assert site.raw(key, "GET", "/v1/switches").status_code == 429
    assert [site.raw("operator", "GET", "/v1/switches").status_code for _ in range(20)] == [200] * 19 + [429]


def test_a_person_behind_a_proxy_does_not_suffer_from_keys_that_others_try() -> None:
    site = exhausted(people=People(trusted=("10.0.0.0/8",), operators=("lea",)))
    proxy = TestClient(site.app, base_url="https://testserver", client=("10.0.0.1", 1))
    for _ in range(21):
        tried = proxy.get("/v1/switches", headers={"authorization": f"Bearer {junk(1)}"}).status_code
    assert tried == 429
    headers = {"x-forwarded-user": "lea", "cookie": f"{LOGIN}={junk(2)}"}
    assert proxy.get("/v1/switches", headers=headers).status_code == 200


def test_a_key_that_was_revoked_is_refused_at_an_exhausted_address() -> None:
    site = exhausted()
    assert site.raw("operator", "GET", "/v1/switches").status_code == 200
    site.context.credentials.revoke(site.keys["operator"].split("_")[1], by="root")
    assert site.raw("operator", "GET", "/v1/switches").status_code == 429
    site.context.credentials._listed_until = 0.0
    assert site.raw("operator", "GET", "/v1/switches").status_code == 429


def test_a_flood_of_unknown_keys_is_no_flood_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    site = exhausted()
    asked: list[Any] = []
    real = site.store.followed

    def followed(kind: Any, **more: Any) -> Any:
        asked.append(more)
        return real(kind, **more)

    monkeypatch.setattr(site.store, "followed", followed)
    monkeypatch.setattr("bylaw.guard.service.auth.REMEMBERED", 3600.0)
    site.context.credentials._listed_until = 0.0
    assert {site.raw(junk(number), "GET", "/v1/switches").status_code for number in range(50)} == {429}
    one_list = len(asked)
    assert 1 <= one_list <= 2  # the second is the end of the pages
    assert {site.raw(junk(number), "GET", "/v1/switches").status_code for number in range(50)} == {429}
    assert len(asked) == one_list


def test_a_slow_list_of_keys_is_read_less_often(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now, lists = 1000.0, 0
    real = site.store.followed

    def followed(kind: Any, **more: Any) -> Any:
        nonlocal now, lists
        lists += 1
        now += 1.0
        return real(kind, **more)

    monkeypatch.setattr(site.store, "followed", followed)
    monkeypatch.setattr("bylaw.guard.service.auth.time.monotonic", lambda: now)
    key = site.keys["operator"]
    assert site.context.credentials.is_listed(key)
    once = lists
    now += 15.0
    assert site.context.credentials.is_listed(key) and lists == once
    now += 60.0
    assert site.context.credentials.is_listed(key) and lists == 2 * once


def test_health_is_reported_to_everybody_at_any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    site = exhausted()
    for path in ("/healthz", "/readyz"):
        assert {site.raw(None, "GET", path).status_code for _ in range(30)} == {200}
        assert site.raw(junk(1), "GET", path).status_code == 200  # it is not asked whose key this is
    assert site.raw(None, "GET", "/healthz/").status_code == 429

    asked = 0
    release = threading.Event()

    def slow_head() -> Any:
        nonlocal asked
        asked += 1
        release.wait(10)

    monkeypatch.setattr(site.store, "audit_head", slow_head)

    async def together() -> list[Any]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(site.app), base_url="https://testserver") as web:
            waiting = [asyncio.ensure_future(web.get("/readyz")) for _ in range(20)]
            await asyncio.sleep(0.05)
            release.set()
            return await asyncio.gather(*waiting)

    assert {answer.status_code for answer in asyncio.run(together())} == {200}
    assert asked == 1  # those who ask at the same time share one query of the store


def test_paths_lead_nowhere(site: Site) -> None:
    for path in (
        "/v1/../etc/passwd",
        "/v1/reviews/..%2f..%2fetc",
        "/v1/%2e%2e/x",
        "/static/../app.py",
        "//evil.example/",
    ):
        assert site.raw("admin", "GET", path).status_code in (404, 400), path
    for name in ("../x.yaml", "/etc/x.yaml", "", "a\nb.yaml", "x" * 300):
        site.ask("admin", "POST", "/v1/rules/activate", {"files": {name: "guard: {}"}}, status=400)


def test_rules_from_the_network_read_no_file_of_the_server(site: Site, tmp_path: Any) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"type": "object"}')
    kind = "kind: must_match_json_schema, then: block"
    for key in ("schema_path", "sche\\x6da_path"):
        rule = f'guard:\n  rules:\n  - {{id: a, {kind}, params: {{"{key}": "{secret}"}}}}\n'
        found = site.ask("operator", "POST", "/v1/rules/validate", {"files": {"a.yaml": rule}})
        assert [one["code"] for one in found["diagnostics"]] == ["unreadable-schema"]
        asked = {"files": {"a.yaml": rule}, "trace": ""}
        assert site.ask("operator", "POST", "/v1/check", asked, status=422)["error"]["diagnostics"]
    index = f"kind: Index\nincludes: [{secret}]\n"
    assert not site.ask("operator", "POST", "/v1/rules/validate", {"files": {"a.yaml": index}})["ok"]


def test_nothing_of_a_request_gets_into_headers(site: Site) -> None:
    response = site.raw(None, "POST", "/auth/login", data={"key": site.keys["admin"], "next": "/console/\r\nx: y"})
    assert "x" not in response.headers
    for after in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/console\\..",
        "/consolex",
        "/console//x",
    ):
        site.http.cookies.clear()
        form = {"key": site.keys["admin"], "next": after}
        response = site.http.post("/auth/login", data=form, follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (303, "/console/"), after
    assert safe_path("/console/reviews?status=all") == "/console/reviews?status=all"


def test_every_answer_forbids_frames_and_inline_script(site: Site) -> None:
    for path in ("/v1/reviews", "/healthz", "/nowhere"):
        headers = site.raw("operator", "GET", path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and "unsafe" not in policy and "script-src 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"


def test_the_stream_needs_a_key(site: Site) -> None:
    assert site.raw(None, "GET", "/v1/stream").status_code == 401
    assert site.raw("support", "GET", "/v1/stream").status_code == 403
    assert site.raw("operator", "GET", "/v1/stream", headers={"last-event-id": "x"}).status_code == 400
    assert site.raw("support", "GET", "/metrics").status_code == 403
    assert site.raw(None, "GET", "/metrics").status_code == 401


def sign_in(site: Site, who: str) -> str:
    site.http.cookies.clear()
    response = site.http.post("/auth/login", data={"key": site.keys.get(who, who)}, follow_redirects=False)
    cookie = response.headers["set-cookie"]
    assert response.status_code == 303
    assert all(word in cookie for word in (f"{LOGIN}=", "Secure", "HttpOnly", "SameSite=lax", "Path=/"))
    return str(site.http.cookies[LOGIN])


def test_a_login_needs_a_form_token_for_changes(site: Site) -> None:
    from bylaw.guard.service.auth import csrf_token

    cookie = sign_in(site, "operator")
    assert cookie != site.keys["operator"]
    assert site.raw(None, "GET", "/v1/reviews").status_code == 200
    body = {"agent": "support"}
    assert site.raw(None, "POST", "/v1/switches/kill", body).status_code == 403
    token = {"x-csrf-token": csrf_token(cookie)}
    for more in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"x-csrf-token": "0" * 64}):
        assert site.raw(None, "POST", "/v1/switches/kill", body, headers={**token, **more}).status_code == 403
    assert site.raw(None, "POST", "/v1/switches/kill", body, headers=token).status_code == 200
    assert site.raw(cookie, "GET", "/v1/reviews").status_code == 401  # a login is not a key
    site.http.cookies.clear()
    site.http.cookies.set(LOGIN, site.keys["operator"])
    assert site.raw(None, "GET", "/v1/reviews").status_code == 401  # nor a key a login
    site.http.cookies.clear()
    site.http.cookies.set(LOGIN, cookie)
    out = site.http.post("/auth/logout", data={"csrf_token": csrf_token(cookie)}, follow_redirects=False)
    assert out.headers["location"] == "/console/login"
    site.http.cookies.set(LOGIN, cookie)
    assert site.raw(None, "GET", "/v1/reviews").status_code == 401


def test_a_login_ends_with_the_key_it_was_made_with(site: Site) -> None:
    credentials = site.context.credentials
    now = [time.time()]
    credentials._clock = lambda: now[0]
    key, record = credentials.create("bob", ["admin"])
    brief, ends = credentials.create("bob", ["admin"], seconds=60)
    lasting, brief_login = sign_in(site, key), sign_in(site, brief)
    [first, second] = credentials.list(kind="login")
    assert (first.made_with, second.made_with, second.expires_at) == (record.id, ends.id, ends.expires_at)
    site.http.cookies.clear()
    by_provider, _ = credentials.create("bob", ["admin"], seconds=99, kind="login")

    def is_let_in(cookie: str) -> bool:
        who = credentials.check(cookie, kind="login") if allows(cookie) else None
        return who is not None and credentials.is_valid(who)

    def allows(cookie: str) -> bool:
        return bool(site.raw(None, "GET", "/v1/keys", headers={"cookie": f"{LOGIN}={cookie}"}).status_code == 200)

    assert is_let_in(lasting) and is_let_in(brief_login) and is_let_in(by_provider)
    listener = credentials.check(lasting, kind="login")
    type(credentials)(site.store).revoke(record.id, by="root")  # in another worker
    assert not credentials.is_valid(listener)  # what a stream asks, which remembers nothing
    credentials._known.clear()  # a second later
    assert not is_let_in(lasting) and is_let_in(brief_login)
    now[0] += 61
    assert not is_let_in(brief_login) and is_let_in(by_provider)
    assert {one.id: one.status for one in credentials.list()}[ends.id] == "expired"
    out = site.http.post("/auth/logout", headers={"cookie": f"{LOGIN}={lasting}"}, follow_redirects=False)
    assert out.status_code == 303


def test_a_header_of_a_proxy_that_is_there_twice_names_nobody() -> None:
    site = Site(people=People(admins=("root",), trusted=("127.0.0.1",)))
    http = TestClient(site.app, base_url="https://testserver", client=("127.0.0.1", 9))
    one, other = ("x-forwarded-user", "root"), ("x-forwarded-user", "eve")
    assert http.get("/v1/keys", headers=[one]).status_code == 200
    assert http.get("/v1/keys", headers=[one, other]).status_code == 401


def test_large_heads_are_refused_before_a_key_is_looked_at(site: Site) -> None:
    many = {f"x-{number}": "v" * 1000 for number in range(70)}
    for who, path, headers in (
        ("operator", "/v1/reviews", many),
        (None, "/v1/reviews", {"x": "v" * 70_000}),
        ("no key", "/v1/reviews?x=" + "v" * 60_000, {"x": "v" * 6_000}),
    ):
        response = site.raw(who, "GET", path, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (431, "headers-too-large")
    assert site.raw("operator", "GET", "/v1/reviews", headers={"x": "v" * 60_000}).status_code == 200


def test_every_failure_of_the_api_has_one_form(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def failure(method: str, path: str, **more: Any) -> tuple[int, str]:
        response = site.raw("admin", method, path, **more)
        assert response.headers["x-frame-options"] == "DENY" and response.json()["error"]["message"]
        return response.status_code, response.json()["error"]["code"]

    assert failure("GET", "/v1/nothing") == failure("GET", "/v1") == (404, "not-found")
    assert failure("PUT", "/v1/reviews") == (405, "method-not-allowed")
    assert "GET" in site.raw("admin", "PUT", "/v1/reviews").headers["allow"]
    monkeypatch.setattr(site.ops.reviews, "list", lambda **_: 1 / 0)
    assert failure("GET", "/v1/reviews") == (500, "error")
    head = {"content-type": "application/json"}
    for text in (b"\\ud800", b"\\ud800 and more", b"\\udbff\\u0041"):
        body = b'{"tool": "t", "session": "' + text + b'"}'
        message = site.raw("support", "POST", "/v1/decide", content=body, headers=head).json()["error"]["message"]
        assert "surrogate" in message


def test_times_that_are_none_are_refused(site: Site) -> None:
    for path in ("decisions/series", "audit", "audit/export"):
        for query in ("since=-1e308", "since=1e308", "since=nan", "since=inf"):
            assert site.raw("operator", "GET", f"/v1/{path}?{query}").status_code == 400, (path, query)
    for query in ("since=-1e308&until=1e308", "until=1e12", "since=2&until=1", "since=0&until=5e-324"):
        assert site.raw("operator", "GET", f"/v1/decisions/series?{query}").status_code == 400, query
    found = site.ask("operator", "GET", "/v1/decisions/series?since=0&until=1e10")
    assert found["buckets"]
    assert all(one["start"] is not None for one in found["buckets"])


def test_nobody_is_signed_in_by_another_site(site: Site) -> None:
    form = {"key": site.keys["admin"]}
    for origin in ("https://evil.example", "null", "http://[", ""):
        assert site.http.post("/auth/login", data=form, headers={"origin": origin}).status_code == 403, origin
    own = site.http.post("/auth/login", data=form, headers={"origin": "https://testserver"}, follow_redirects=False)
    assert own.status_code == 303


def test_agents_do_not_sign_in(site: Site) -> None:
    assert site.http.post("/auth/login", data={"key": site.keys["support"]}).status_code == 403
    assert site.http.post("/auth/login", data={"key": "x"}).status_code == 401
    assert site.http.get("/auth/oidc").status_code == 404


def test_only_a_trusted_proxy_names_people() -> None:
    people = People(operators=("ann", "group:desk"), admins=("root",), trusted=("10.0.0.0/8",))
    headers = {"x-forwarded-user": "ann"}
    assert people.forwarded("192.0.2.1", headers) is None
    assert people.forwarded(None, headers) is None
    known = people.forwarded("10.1.2.3", headers)
    assert known is not None and known.may("operator") and not known.may("admin")
    stranger = people.forwarded("10.1.2.3", {"x-forwarded-user": "eve"})
    assert stranger is not None and not stranger.scopes
    reported = {"x-forwarded-user": "eve", "x-forwarded-groups": "x, desk"}
    grouped = people.forwarded("10.1.2.3", reported)
    assert grouped is not None and not grouped.scopes  # the proxy may not set this header, so its client has
    grouped = replace(people, groups_header="X-Forwarded-Groups".lower()).forwarded("10.1.2.3", reported)
    assert grouped is not None and grouped.may("operator")
    assert not people.scopes("group:desk", []) and not people.scopes("*", []) and not people.scopes("desk", [])
    assert replace(people, operators=("*",)).scopes("group:desk", []) == {"operator"}
    assert people.forwarded("10.1.2.3", {"x-forwarded-user": "a\nb"}) is None
    site = Site(people=people)
    assert site.raw(None, "GET", "/v1/reviews", headers=headers).status_code == 401  # comes from `testclient`


def test_without_a_store_nothing_is_let_through(site: Site) -> None:
    site.store.close()
    assert site.raw("support", "POST", "/v1/decide", {"tool": "lookup_order", "session": "s"}).status_code in (401, 503)
    assert site.raw("operator", "GET", "/v1/reviews").status_code == 503
    ready = site.http.get("/readyz")
    assert (ready.status_code, ready.json()["ok"]) == (503, False)
    assert site.http.get("/healthz").status_code == 200

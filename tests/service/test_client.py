"""The client has the interface of a guard, and says so when nobody has judged a call."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import httpcore2
import httpx2
import msgspec
import pytest

import bylaw
from bylaw import AsyncGuardClient, GuardClient
from bylaw.guard.incidents.follower import Correlator
from bylaw.guard.integrations.calls import Calls
from bylaw.guard.service.context import Settings
from bylaw.model.events import Message, Origin, Request, Response, ToolCall
from tests.service.support import Site


class Http:
    """The service in this process, as an httpx2 client; `away` makes it fail, before or after the service has it.
    `answers` is an answer in place of the service's."""

    def __init__(self, site: Site) -> None:
        self._site, self.away = site, ""
        self.asked: list[str] = []
        self.answers: httpx2.Response | None = None

    @contextmanager
    def stream(self, method: str, path: str, *, headers: dict[str, str], timeout: float, **more: Any) -> Iterator[Any]:
        self.asked.append(path)
        if self.away == "before":
            raise httpx2.ConnectError("refused")
        if self.answers is not None:
            yield self.answers
            return
        response = self._site.http.request(method, path, headers=headers, **more)
        if self.away == "after":
            raise httpx2.ReadTimeout("timed out")
        yield httpx2.Response(response.status_code, stream=httpx2.ByteStream(response.content))


@pytest.fixture
def http(site: Site) -> Http:
    return Http(site)


def client(site: Site, http: Http, **more: Any) -> GuardClient:
    return GuardClient("https://testserver", key=site.keys["support"], http=http, **more)


def test_tools_run_as_with_a_guard_in_process(site: Site, http: Http) -> None:
    guard = client(site, http)
    ran = []

    @guard.tool
    def issue_refund(order: str, amount: float) -> str:
        ran.append(amount)
        return "done"

    with guard.session("t-1", agent="support") as session:
        assert issue_refund("A-1", 20) == "done"
        with pytest.raises(bylaw.Denied, match="needs a person"):
            issue_refund("A-1", 900)
        assert session.decide("issue_refund", {"amount": 900}).review is not None
        with session.sub_agent("mailer"):
            pass
    assert ran == [20]
    view = site.ops.sessions.get("t-1")
    assert view.summary.status == "ended"
    assert view.tree[0].calls[0].result == "done"


def test_decisions_equal_those_of_the_guard_itself(site: Site, http: Http) -> None:
    guard = client(site, http)
    for tool, arguments in (("lookup_order", None), ("issue_refund", {"amount": 900}), ("drop", {"n": 2**70})):
        remote = guard.decide(bylaw.Attempt(tool=tool, arguments=arguments, session="a", agent="support"))
        local = site.guard.decide(bylaw.Attempt(tool=tool, arguments=arguments, session="b", agent="support"))
        for name in ("action", "decided_by", "matches", "reason", "policy", "call", "denial", "advice", "counters"):
            if name != "advice" or remote.review is None:  # which names the review
                assert getattr(remote, name) == getattr(local, name), name


def test_events_and_results_reach_the_rules() -> None:
    rule = "{id: r, kind: must_call_before, params: {first: a, second: b}, scope: session, then: block}"
    site = Site({"guard.yaml": f"guard:\n  agent: support\n  rules:\n  - {rule}\n"})
    guard = client(site, Http(site))
    assert not guard.decide(bylaw.Attempt(tool="b", session="s"))
    first = guard.decide(bylaw.Attempt(tool="a", session="s"))
    assert first and guard.release(first) and not guard.release(first)
    assert not guard.decide(bylaw.Attempt(tool="b", session="s"))
    first = guard.decide(bylaw.Attempt(tool="a", session="s"))
    assert guard.record(first, {"ok": 1}) == ()
    origin = Origin("s", agent="support")
    request = Request(origin=origin, held_messages=[{"role": "user", "content": "hi"}])
    call = ToolCall(origin=origin, name="a", call_id="1", arguments={})
    for event in (
        request,
        Response(origin=origin, text="yes", tool_calls=(call,), request=request),
        Message(origin=origin, role="user", content="hello"),
    ):
        assert guard.observe(event) == ()
    assert guard.decide(bylaw.Attempt(tool="b", session="s"))
    said = [row.data["said"] for row in site.store.events(session="s") if row.kind == "observation"]
    assert said[1]["text"] == "yes" and said[2] == {"role": "user", "content": "hello"}


def test_away_is_a_denial_unless_said_otherwise() -> None:
    site = Site(settings=Settings(past_calls=True))
    http = Http(site)
    guard, lax = client(site, http), client(site, http, on_unreachable="allow")
    http.away = "before"
    denied = guard.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    assert (denied.action, denied.decided_by) == (bylaw.Action.BLOCK, "on_unreachable")
    assert "cannot be reached" in denied.reason and denied.call is None
    allowed = lax.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="s"))
    assert allowed and allowed.decided_by == "on_unreachable" and "not judged" in allowed.notes[0]
    assert allowed.call is not None and allowed.call.arguments == {"amount": 900}
    assert lax.record(allowed, "done") == ()
    http.away = ""
    lax.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    rows = [row.kind for row in site.store.events(session="s")]
    assert rows == ["taken", "result", "decision"]  # it counts, and its result is known
    with pytest.raises(ValueError, match="deny"):
        client(site, http, on_unreachable="pass")


def test_a_decision_whose_answer_was_lost_is_released() -> None:
    rule = "{id: once, kind: max_calls, params: {tool: pay, limit: 1}, scope: session, then: block}"
    site = Site({"guard.yaml": f"guard:\n  agent: support\n  rules:\n  - {rule}\n"})
    http = Http(site)
    guard = client(site, http)
    http.away = "after"
    assert not guard.decide(bylaw.Attempt(tool="pay", session="s"))
    http.away = ""
    assert guard.decide(bylaw.Attempt(tool="pay", session="s"))
    assert not guard.decide(bylaw.Attempt(tool="pay", session="s"))
    assert http.asked.count("/v1/decide") == 3  # none was repeated


ALLOW = (
    b'{"action":"allow","decided_by":null,"matched":[],"reason":"","review":null,"policy":"x","session":"s",'
    b'"call_id":"c","call":{"tool":"pay","arguments":{}}}'
)


class Drip(httpx2.SyncByteStream):
    """An answer that comes byte by byte."""

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(100):
            time.sleep(0.005)
            yield b" "


@pytest.mark.parametrize(
    ("status", "content", "is_away"),
    [
        (200, ALLOW.replace(b'"action":"allow"', b'"action":"block","action":"allow"'), False),
        (200, ALLOW.replace(b'{"tool":"pay","arguments":{}}', b"null"), False),
        (200, b"<html>", False),
        (200, b"[" * 100_000, False),
        (200, b" " * (17 << 20) + ALLOW, False),
        (201, ALLOW, False),
        (302, b"", False),
        (429, b'{"error":{"code":"too-many-requests","message":"m"}}', False),
        (429, b"", False),
        (500, b"oops", False),
        (503, b'{"error":{"code":"unavailable","message":"m"}}', False),
        (503, b"no upstream", True),
        (502, b"", True),
    ],
)
def test_only_a_service_that_is_away_is_away(
    site: Site, http: Http, status: int, content: bytes, is_away: bool
) -> None:
    lax = client(site, http, on_unreachable="allow")
    http.answers = httpx2.Response(status, stream=httpx2.ByteStream(content))
    decision = lax.decide(bylaw.Attempt(tool="pay", session="s"))
    assert bool(decision) is is_away
    assert decision.decided_by == ("on_unreachable" if is_away else "service")


def test_a_time_out_is_for_the_whole_answer(site: Site, http: Http) -> None:
    guard = client(site, http, timeout=0.02)
    http.answers = httpx2.Response(200, stream=Drip())
    started = time.monotonic()
    assert guard.decide(bylaw.Attempt(tool="pay", session="s")).decided_by == "on_unreachable"
    assert time.monotonic() - started < 0.3
    http.answers = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"x"))
    assert "compressed" in guard.decide(bylaw.Attempt(tool="pay", session="s")).reason


class DrippingServer:
    """Answers every request byte by byte, and counts the bytes that it could send."""

    def __init__(self) -> None:
        self.sent = self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(20)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    for byte in b"HTTP/1.1 200 OK\r\n" + b"x-header: y\r\n" * 1000:
                        connection.sendall(bytes([byte]))
                        self.sent += 1
                        time.sleep(0.02)

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize("kind", [GuardClient, AsyncGuardClient])
def test_a_time_out_is_for_all_of_a_request_whatever_arrives_meanwhile(kind: type[GuardClient]) -> None:
    """Each byte arrives long before the time is over."""
    server = DrippingServer()
    attempt = bylaw.Attempt(tool="pay", session="s")
    guard = kind(server.url, key="bylaw_x", timeout=0.3)
    decision = asyncio.run(guard.adecide(attempt)) if isinstance(guard, AsyncGuardClient) else guard.decide(attempt)
    assert decision.decided_by == "on_unreachable"
    assert "timed out" in decision.reason or "too long" in decision.reason
    assert server.connections == 1 and 0 < server.sent < 200
    server.close()


def test_a_result_is_reported_with_the_same_checks_by_both_clients(caplog: pytest.LogCaptureFixture) -> None:
    """No service listens there, so the call was allowed without it."""
    guard = AsyncGuardClient("http://127.0.0.1:9", key="bylaw_x", timeout=0.3, on_unreachable="allow")
    decision = asyncio.run(guard.adecide(bylaw.Attempt(tool="pay", session="s")))
    for record in (guard.record, lambda *given, **more: asyncio.run(guard.arecord(*given, **more))):
        with pytest.raises(ValueError, match="is_error"):
            record(decision, "done", is_error=cast(Any, "yes"))
        caplog.clear()
        record(decision, "done")
        assert "ran without having been judged" in caplog.text


def test_addresses_of_one_name_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from bylaw.guard.service.client_link import Deadline, _Backend

    tried: list[tuple[str, float]] = []

    class Never(httpcore2.NetworkBackend):
        def connect_tcp(  # type: ignore[override]
            self, host: str, port: int, timeout: float | None = None, **more: Any
        ) -> Any:
            assert timeout is not None
            tried.append((host, timeout))
            time.sleep(0.05)
            raise httpcore2.ConnectTimeout(host)

    names = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{one}", 1)) for one in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: names)
    deadline = Deadline()
    with deadline.at(time.monotonic() + 0.5), pytest.raises(httpcore2.ConnectTimeout):
        _Backend(Never(), deadline).connect_tcp("guard.test", 1, timeout=9.0)
    assert [host for host, _ in tried] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert 0.5 >= tried[0][1] > tried[1][1] > tried[2][1]
    assert deadline.left(9.0) == 9.0


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"call": {"tool": "drop", "arguments": {"n": 1}}}, "another call"),
        ({"call": {"tool": "pay", "arguments": {"n": True}}}, "another call"),
        ({"call": {"tool": "pay", "arguments": {"n": 1, "m": 2}}}, "another call"),
        ({"call_id": "c-2"}, "another call"),
        ({"call_id": None}, "another call"),
        ({"session": "other"}, "another call"),
        ({"agent": "mailer"}, "another agent"),
        ({"decided_by": "review", "review": "r-1", "call": {"tool": "drop", "arguments": {}}}, "another call"),
    ],
)
def test_an_answer_allows_only_the_call_that_was_asked_about(
    site: Site, http: Http, changed: dict[str, Any], why: str
) -> None:
    attempt = bylaw.Attempt(tool="pay", arguments={"n": 1}, session="s", agent="support", call_id="c-1")
    answer = {**msgspec.json.decode(ALLOW), "agent": "support", "call_id": "c-1"}
    answer["call"] = {"tool": "pay", "arguments": {"n": 1}}

    def decide(other: dict[str, Any], resumes: str | None = None) -> bylaw.Decision:
        given = {name: value for name, value in {**answer, **other}.items() if value is not None or name != "call_id"}
        http.answers = httpx2.Response(200, stream=httpx2.ByteStream(msgspec.json.encode(given)))
        return client(site, http, on_unreachable="allow").decide(attempt, review=resumes)

    assert decide({})
    decision = decide(changed)
    assert (decision.action, decision.decided_by) == (bylaw.Action.BLOCK, "service") and why in decision.reason
    edited = {"decided_by": "review", "review": "r-1", "call": {"tool": "pay", "arguments": {"n": 7}}}
    resumed = decide(edited, resumes="r-1")
    assert resumed.call is not None and resumed.call.arguments == {"n": 7}  # a person has changed it


def test_large_numbers_and_sessions_that_hold_secrets_are_the_same_call(site: Site, http: Http) -> None:
    guard = client(site, http)
    arguments = {"order": "A-1", "n": 2**70, "x": 1.0, "e": 1e22, "text": "é\u2028", "none": None}
    assert guard.decide(bylaw.Attempt(tool="lookup_order", arguments=arguments, session="mail ann@example.org"))


def test_malformed_calls_are_refused_also_while_the_service_is_away(site: Site, http: Http) -> None:
    lax = client(site, http, on_unreachable="allow")
    http.away = "before"
    wrong: list[dict[str, Any]] = [{"tool": ""}, {"tool": 5}, {"ts": "now"}, {"agent": 5}, {"ancestors": "ab"}]
    for given in (*wrong, {"ts": float("nan")}, {"arguments": {"a": object()}}, {"run": "x" * 5_000}):
        assert not lax.decide(bylaw.Attempt(**{"tool": "pay", "session": "s", **given})), given
    assert not http.asked


def test_a_call_that_ran_unjudged_and_is_not_counted_is_reported(
    site: Site, http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    lax = client(site, http, on_unreachable="allow")
    http.away = "before"
    lax.record(lax.decide(bylaw.Attempt(tool="issue_refund", session="s", ts=time.time() - 9_999)), "done")
    http.away = ""
    with caplog.at_level(logging.ERROR, "bylaw"):
        assert lax.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    assert "a call of `issue_refund` ran unjudged, and is not counted" in caplog.text


def test_a_call_that_ran_unjudged_is_judged_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(settings=Settings(past_calls=True))
    http = Http(site)
    lax = client(site, http, on_unreachable="allow")
    http.away = "before"
    refund = bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="s", agent="support")
    for attempt in (refund, *(bylaw.Attempt(tool=tool, session="s") for tool in ("drop_table", "lookup_order"))):
        lax.record(lax.decide(attempt), "done")
    http.away = ""
    caplog.clear()
    lax.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    stopped = "a call of `{}` ran unjudged, and `{}` would have stopped it: {}"
    assert caplog.messages == [
        stopped.format("issue_refund", "large-refund", "a refund over 500 needs a person"),
        stopped.format("drop_table", "allowlist", "`drop_table` is not a tool of this agent"),
    ]
    rows = [row.data["matches"] for row in site.store.events(session="s") if row.kind == "taken"]
    assert [[one["rule"] for one in found] for found in rows] == [["large-refund"], ["allowlist"], []]
    shown = site.ops.decisions.recent(session="s").decisions
    assert [(one.tool, one.decided_by, one.would) for one in reversed(shown)] == [
        ("issue_refund", "on_unreachable", "pause"),
        ("drop_table", "on_unreachable", "block"),
        ("lookup_order", "on_unreachable", None),
        ("lookup_order", None, None),
    ]
    versions = site.ops.versions
    Correlator(versions.load(versions.active()).policies, site.store).catch_up()
    (incident,) = site.ops.incidents.list()
    assert (incident.rule, incident.count, incident.stopped) == ("large-refund", 1, 0)
    assert bylaw.verify_audit(site.store).findings == []


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("takes_past_calls", [False, True])
def test_a_call_that_ran_with_other_arguments_is_reported_to_the_service(
    takes_past_calls: bool, away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(settings=Settings(past_calls=takes_past_calls))
    http = Http(site)
    guard = client(site, http)
    calls = Calls(guard)
    attempt = bylaw.Attempt(tool="issue_refund", arguments={"amount": 5, "ticket": "T-1"}, session="s", call_id="c")
    decision = guard.decide(attempt)
    assert decision.allowed
    http.away = "before" if away else ""
    calls.record(decision, "done", None, attempt, {"amount": 900, "ticket": "T-1"})
    http.away = ""
    guard.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    assert "has run with other arguments than the guard had allowed" in caplog.text
    said = "`large-refund` would have stopped it" if takes_past_calls else "ran unjudged, and is not counted"
    assert said in caplog.text
    kinds = [row.kind for row in site.store.events(session="s")]
    assert kinds == ["decision", *(["taken"] if takes_past_calls else []), "result", "decision"]


def test_a_call_whose_decision_was_lost_counts_once_though_it_ran() -> None:
    rule = "{id: twice, kind: max_calls, params: {tool: pay, limit: 2}, scope: session, then: block}"
    site = Site({"guard.yaml": f"guard:\n  agent: support\n  rules:\n  - {rule}\n"}, settings=Settings(past_calls=True))
    http = Http(site)
    lax = client(site, http, on_unreachable="allow")
    http.away = "after"
    first = lax.decide(bylaw.Attempt(tool="pay", session="s"))
    assert first.decided_by == "on_unreachable"  # the service has allowed it too, but nobody knows that
    lax.record(first, "done")  # and neither is this known to have arrived
    http.away = ""
    assert lax.decide(bylaw.Attempt(tool="pay", session="s"))
    assert not lax.decide(bylaw.Attempt(tool="pay", session="s"))
    assert [row.kind for row in site.store.events(session="s")].count("taken") == 0
    assert bylaw.verify_audit(site.store).findings == []


def test_another_call_under_a_used_id_is_refused_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(settings=Settings(past_calls=True))
    http = Http(site)
    lax = client(site, http, on_unreachable="allow")
    assert lax.decide(bylaw.Attempt(tool="lookup_order", session="s", call_id="c"))
    http.away = "before"
    assert lax.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="s", call_id="c"))
    http.away = ""
    caplog.clear()
    lax.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    why = "the call id `c` is already used in this session by another call"
    assert caplog.messages == [f"a call of `issue_refund` ran unjudged, and is not counted: {why}"]
    past = {"tool": "issue_refund", "arguments": {"amount": 900}, "session": "s", "call_id": "c"}
    assert site.ask("support", "POST", "/v1/past_calls", past, status=409)["error"]["message"] == why
    assert [row.kind for row in site.store.events(session="s")] == ["decision", "decision"]


def test_a_past_call_whose_answer_was_lost_is_reported_again_and_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(settings=Settings(past_calls=True))
    http = Http(site)
    lax = client(site, http, on_unreachable="allow")
    http.away = "before"
    lax.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="s"))
    http.away = "after"
    assert not client(site, http).decide(bylaw.Attempt(tool="lookup_order", session="t"))
    lax.close()
    http.away = ""
    caplog.clear()
    lax.close()
    assert caplog.messages == [
        "a call of `issue_refund` ran unjudged, and `large-refund` would have stopped it: "
        "a refund over 500 needs a person"
    ]
    assert [row.kind for row in site.store.events(session="s")] == ["taken"]


def test_all_calls_that_ran_unjudged_are_counted_though_one_of_them_ends_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(settings=Settings(past_calls=True))
    http = Http(site)
    lax = client(site, http, on_unreachable="allow")
    http.away = "before"
    for _ in range(5):
        lax.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 1}, session="s"))
    http.away = ""
    caplog.clear()
    ended = lax.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    assert (ended.action, ended.decided_by) == ("terminate_session", "session")
    ran = "a call of `issue_refund` ran unjudged, and "
    assert caplog.messages == [
        f"{ran}`refund-limit` would have stopped it: too many refunds",
        f"{ran}`session` would have stopped it: the session was ended by refund-limit",
        f"{ran}`refund-limit` would have stopped it: too many refunds",
    ]
    (summary,) = site.ops.sessions.list()
    assert (summary.status, summary.ended_by) == ("terminated", "refund-limit")
    assert bylaw.verify_audit(site.store).findings == []


def test_a_session_that_a_past_call_has_ended_is_shown_with_the_rule() -> None:
    site = Site(settings=Settings(past_calls=True))
    for _ in range(4):
        site.ask(
            "support",
            "POST",
            "/v1/past_calls",
            {"tool": "issue_refund", "arguments": {"amount": 1}, "session": "s"},
        )
    (listed,) = site.ops.sessions.list()
    shown = site.ops.sessions.get("s").summary
    assert [(one.status, one.ended_by) for one in (listed, shown)] == [("terminated", "refund-limit")] * 2


def test_a_refusal_is_never_let_through(site: Site, http: Http) -> None:
    wrong = GuardClient("https://testserver", key="bylaw_x", http=http, on_unreachable="allow")
    decision = wrong.decide(bylaw.Attempt(tool="lookup_order", session="s"))
    assert (decision.action, decision.decided_by) == (bylaw.Action.BLOCK, "service")
    lax = client(site, http, on_unreachable="allow")
    foreign = lax.decide(bylaw.Attempt(tool="lookup_order", session="s", agent="mailer"))
    assert not foreign and "not for `mailer`" in foreign.reason
    for attempt in (bylaw.Attempt(tool="t"), bylaw.Attempt(tool="t", session="s", arguments={"a": object()}), "t"):
        assert not lax.decide(attempt)  # type: ignore[arg-type]


def test_ask_waits_for_a_person_and_runs_what_was_approved(site: Site, http: Http) -> None:
    guard = client(site, http)
    attempt = bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="s")

    def answer() -> None:
        [review] = site.ops.reviews.list(status="pending")
        site.ops.reviews.approve(review.id, by="ann", edited={"tool": "issue_refund", "arguments": {"amount": 5}})

    person = threading.Timer(0.05, answer)
    with site.http:  # one event loop for all requests, as in a server
        assert "(the review is pending)" in guard.ask(attempt, timeout=0).reason
        person.start()
        decision = guard.ask(attempt, timeout=60)
    person.join()
    assert decision and decision.call is not None and decision.call.arguments == {"amount": 5}
    assert "a person changed the call" in decision.notes[-1]


def test_the_async_client_needs_no_threads(site: Site, http: Http) -> None:
    async def story() -> list[Any]:
        transport = httpx2.ASGITransport(app=site.app)
        web = httpx2.AsyncClient(transport=transport, base_url="https://testserver")
        guard = AsyncGuardClient("https://testserver", key=site.keys["support"], http=http, ahttp=web)

        @guard.tool(on_denied="return")
        async def issue_refund(amount: float) -> str:
            return "done"

        async with guard.session("a-1", agent="support"):
            found = [await issue_refund(5), await issue_refund(900)]
        paused = await guard.aask(
            bylaw.Attempt(tool="issue_refund", arguments={"amount": 901}, session="a-2"), timeout=0
        )
        await guard.arelease(await guard.adecide(bylaw.Attempt(tool="lookup_order", session="a-2")))
        await guard.aend_session("a-2")
        await web.aclose()
        return [*found, paused.action]

    done, denied, paused = asyncio.run(story())
    assert (done, paused) == ("done", bylaw.Action.PAUSE)
    assert "needs a person" in denied


def test_what_only_operators_may_do_is_reported(site: Site, http: Http) -> None:
    guard = client(site, http)
    for name in ("policies", "incidents"):
        with pytest.raises(NotImplementedError, match="console"):
            getattr(guard, name)
    with pytest.raises(NotImplementedError, match="console"):
        guard.kill("support")

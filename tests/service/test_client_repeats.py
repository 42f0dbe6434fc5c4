"""What a client tells again, since it does not know whether it has arrived, happens once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import bylaw
from bylaw.guard.decide.session import MOST_REPORTED, SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.service.client import GuardClient
from bylaw.model.events import Message, Origin, Request, Response
from tests.service.support import Site
from tests.service.test_client import Http, client

RULES = """guard:
  agent: support
  rules:
  - {id: turns, kind: max_turns, params: {limit: 3}, scope: session, then: block}
  - {id: pays, kind: max_calls, params: {tool: pay, limit: 2}, scope: session, then: block}
  - {id: polite, kind: forbidden_text, params: {text: never}, then: block}
  - {id: one-mail, kind: must_call_once, params: {tool: mail}, scope: session, then: block}
"""
ORIGIN = Origin("s", agent="support")
REPORTS: dict[str, Callable[[GuardClient], Any]] = {
    "response": lambda guard: guard.observe(Response(origin=ORIGIN, text="never", content=[])),
    "message": lambda guard: guard.observe(Message(origin=ORIGIN, role="user", content="hello")),
    "request": lambda guard: guard.observe(Request(origin=ORIGIN, model="m")),
    "result": lambda guard: guard.record("c", "done", session="s"),
    "release": lambda guard: guard.release("c", session="s"),
    "end": lambda guard: guard.end_session("s"),
}


ONLY_WHEN = "guard: {agent: support, rules: [{id: never, when: {tool_name_in: [never]}, then: block}]}"


class Place:
    """A service with one call, `c`, and a client whose way to it can be cut."""

    def __init__(self, rules: str = RULES) -> None:
        self.site = Site({"guard.yaml": rules})
        self.http = Http(self.site)
        self.guard = client(self.site, self.http)
        self.guard.decide(bylaw.Attempt(tool="pay", session="s", call_id="c"))

    def rows(self) -> list[Any]:
        assert bylaw.verify_audit(self.site.store).findings == []
        rows = self.site.store.events(session="s")
        return [(row.kind, row.data.get("found"), row.data.get("call_id")) for row in rows]


@pytest.mark.parametrize("rules", [RULES, ONLY_WHEN], ids=["kinds", "when"])
@pytest.mark.parametrize("what", REPORTS)
def test_what_is_reported_again_after_its_answer_was_lost_happens_once(what: str, rules: str) -> None:
    plain, lost = Place(rules), Place(rules)
    REPORTS[what](plain.guard)
    lost.http.away = "after"
    REPORTS[what](lost.guard)
    lost.guard.close()  # the second time, also in vain
    lost.http.away = ""
    for place in (plain, lost):
        assert place.guard.decide(bylaw.Attempt(tool="look", session="s", call_id="d"))
    assert lost.rows() == plain.rows() and len(plain.rows()) == 3


class LosesAnswers(httpx2.ASGITransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await super().handle_async_request(request)
        raise httpx2.ReadTimeout("timed out")


def test_what_the_async_client_tells_again_happens_once() -> None:
    place = Place(ONLY_WHEN)

    async def story() -> None:
        web = httpx2.AsyncClient(transport=LosesAnswers(app=place.site.app), base_url="https://testserver")
        key = place.site.keys["support"]
        guard = bylaw.AsyncGuardClient("https://testserver", key=key, http=place.http, ahttp=web)
        await guard.arecord("c", "done", session="s")
        await guard.aend_session("s")
        await guard.aclose()

    asyncio.run(story())
    assert [kind for kind, *_ in place.rows()] == ["decision", "result", "session"]


def test_equal_events_that_are_reported_once_each_all_count() -> None:
    place = Place()
    for _ in range(3):
        REPORTS["response"](place.guard)
    assert [kind for kind, *_ in place.rows()].count("observation") == 3


def test_a_lost_end_does_not_end_the_session_that_another_program_has_begun_since() -> None:
    place = Place()
    place.http.away = "after"
    place.guard.end_session("s")
    place.http.away = ""
    other = client(place.site, place.http)
    for _ in range(2):
        assert other.decide(bylaw.Attempt(tool="pay", session="s"))
    place.guard.close()
    assert not other.decide(bylaw.Attempt(tool="pay", session="s")), "the two before still count"


def test_a_service_says_that_it_judged_nothing_now_and_knows_the_request_after_a_restart() -> None:
    place = Place()
    body = {"kind": "response", "session": "s", "text": "never", "content": [], "request_id": "r-1"}
    (found,) = place.site.ask("support", "POST", "/v1/observe", body)["found"]
    assert found["rule"] == "polite"
    place.site.ops.guard._sessions._live.clear()
    assert place.site.ask("support", "POST", "/v1/observe", body) == {"found": [], "repeated": True}
    assert place.site.ask("support", "POST", "/v1/observe", {**body, "request_id": "r-2"}).get("repeated") is None


def test_what_was_refused_can_be_reported_again_under_its_id() -> None:
    place = Place()
    body = {"call_id": "none", "session": "s", "content": "x", "request_id": "r-1"}
    place.site.ask("support", "POST", "/v1/record", body, status=409)
    assert place.site.ask("support", "POST", "/v1/record", {**body, "call_id": "c"}).get("repeated") is None


def test_requests_are_remembered_in_bounds() -> None:
    state = SessionState("s")
    for number in range(MOST_REPORTED + 1):
        state.mark_reported(f"r-{number}")
    assert (
        len(state.reported) == MOST_REPORTED
        and state.is_reported(f"r-{MOST_REPORTED}")
        and not state.is_reported("r-0")
    )
    assert load("s", dump(state), ()).reported == state.reported

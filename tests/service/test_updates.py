"""Updates as they happen, over server-sent events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bylaw.guard.service import context
from bylaw.guard.service.context import Settings
from bylaw.guard.service.errors import TooMany
from bylaw.guard.service.gate import LOGIN
from tests.service.support import Site


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "POLL", 0.005)


async def take(stream: Any, most: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for chunk in stream:
        if chunk.startswith(b"id: "):
            head, event, data = chunk.decode().rstrip("\n").split("\n")
            update = json.loads(data.removeprefix("data: "))
            assert (head, event) == (f"id: {update['seq']}", f"event: {update['kind']}")
            found.append(update)
        if len(found) == most:
            await stream.aclose()
            return found
    return found


def attempt(tool: str, **more: Any) -> Any:
    from bylaw import Attempt

    return Attempt(tool=tool, session="s", agent="support", **more)


def test_what_others_write_is_reported(site: Site) -> None:
    async def story() -> list[dict[str, Any]]:
        hub = site.context.hub
        taking = asyncio.create_task(take(hub.stream(None), 3))
        await asyncio.sleep(0.02)
        assert hub.listeners == 1
        site.guard.decide(attempt('lookup_order\n\ndata: {"forged": 1}'))
        site.guard.decide(attempt("issue_refund", arguments={"amount": 900}))
        found = await taking
        assert hub.listeners == 0
        return found

    found = asyncio.run(story())
    assert [one["kind"] for one in found] == ["decision", "review", "decision"]
    assert found[0]["data"]["tool"].startswith("lookup_order\n") and found[2]["data"]["action"] == "pause"


def test_who_comes_back_gets_what_was_missed(site: Site) -> None:
    first = site.store.last_event()
    for _ in range(3):
        site.guard.decide(attempt("lookup_order"))
    found = asyncio.run(take(site.context.hub.stream(first + 1), 2))
    assert [one["seq"] for one in found] == [first + 2, first + 3]


def test_a_stream_ends_when_the_service_does_and_has_limits() -> None:
    site = Site(settings=Settings(most_streams=1))

    async def story() -> None:
        hub = site.context.hub
        taking = asyncio.create_task(take(hub.stream(None), 99))
        await asyncio.sleep(0.02)
        with pytest.raises(TooMany):
            await anext(hub.stream(None))
        site.context.stopping.set()
        async with asyncio.timeout(120):
            assert await taking == []

    asyncio.run(story())


def test_a_listener_that_is_too_slow_is_sent_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MOST_WAITING", 2)

    async def story() -> int:
        hub = site.context.hub
        stream = hub.stream(None)
        await anext(stream)
        site.guard.decide(attempt("lookup_order"))
        await anext(stream)
        for _ in range(5):
            site.guard.decide(attempt("lookup_order"))
        async with asyncio.timeout(120):
            while hub.listeners:
                await asyncio.sleep(0.005)
            return len([one async for one in stream])

    assert asyncio.run(story()) <= 2


def test_an_agent_that_waits_is_reported_before_its_time_is_up(site: Site) -> None:
    review = site.guard.decide(attempt("issue_refund", arguments={"amount": 900})).review
    key = {"authorization": f"Bearer {site.keys['support']}"}

    async def story() -> Any:
        import httpx2

        web = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=site.app), base_url="https://testserver")
        waiting = asyncio.create_task(web.get(f"/v1/reviews/{review}/wait?timeout=60", headers=key))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.to_thread(site.ops.reviews.reject, review, by="ann", note="no")
        async with asyncio.timeout(45):
            return (await waiting).json()

    answer = asyncio.run(story())
    assert (answer["status"], answer["note"]) == ("rejected", "no")


@pytest.mark.parametrize("kind", ["key", "login", "silent"])
def test_a_stream_ends_when_its_key_is_revoked(site: Site, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    from bylaw.guard.service import auth
    from bylaw.guard.service.api import routes

    monkeypatch.setattr(routes, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(auth, "REMEMBERED", 0.0)
    monkeypatch.setattr(context, "BEAT", 0.01 if kind == "silent" else 60.0)
    credentials = site.context.credentials
    key, record = credentials.create("bob", ["operator"])
    login, _ = credentials.create("bob", ["operator"], kind="login", made_with=record.id)
    seen: list[bytes] = []

    async def story() -> None:
        async def receive() -> Any:
            await asyncio.sleep(600)

        async def send(message: Any) -> None:
            seen.append(message.get("body", b""))

        headers = [(b"authorization", f"Bearer {key}".encode())]
        if kind == "login":
            headers = [(b"cookie", f"{LOGIN}={login}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/v1/stream", "query_string": b"", "headers": headers}
        scope |= {"scheme": "https", "asgi": {"spec_version": "2.4"}, "root_path": ""}
        async with asyncio.timeout(120):
            listening = asyncio.create_task(site.app(scope, receive, send))
            while len(seen) < 2:
                await asyncio.sleep(0.005)
            site.guard.decide(attempt("lookup_order"))
            while not any(b"event: decision" in one for one in seen):
                await asyncio.sleep(0.005)
            credentials.revoke(record.id, by="root")
            if kind != "silent":
                site.guard.decide(attempt("send_email"))
            await listening

    asyncio.run(story())
    assert not any(b"send_email" in one for one in seen)

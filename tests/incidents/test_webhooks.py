"""Notifications against a server that fails, hangs, drips and redirects."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

import bylaw
from bylaw.guard.incidents.follower import Correlator, Follower
from bylaw.guard.incidents.notifications import AT_ONCE, Outbox, Reminders, ReminderTimes, RetryPolicy
from bylaw.guard.incidents.webhook import Webhook, sign
from bylaw.guard.stores.ports import PAGE
from bylaw.guard.stores.records import Notification, Recipient
from bylaw.model.ports import DeliveryResult
from tests.incidents.receiver import Receiver, receiving
from tests.incidents.support import CAP, World

SECRET = "only for tests"
ASK = {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def broken(**given: Any) -> World:
    """A world in which somebody has to be told of one incident."""
    world = World([CAP, ASK], **given)
    world.decide("pay", args={"amount": 900})
    world.follow(notify=True)
    return world


def make_outbox(world: World, receiver: Receiver, *, timeout: float = 5.0, **patience: Any) -> Outbox:
    posters = {"first": {"webhook": Webhook(receiver.address, SECRET, seconds=timeout)}}
    return Outbox(world.store, posters, patience=RetryPolicy(**patience), clock=world.clock)  # type: ignore[arg-type]


def outbox(world: World) -> list[Notification]:
    return list(world.store.followed(Notification))


def test_opening_and_solving_are_notified_once_each(receiver: Receiver) -> None:
    world = broken()
    for _ in range(3):
        make_outbox(world, receiver).deliver()
    world.decide("pay", args={"amount": 900})
    world.follow(notify=True)  # a repeat: counted, not told again
    (incident,) = world.incidents.list()
    world.incidents.solve(incident.id, by="ann")
    for _ in range(3):
        make_outbox(world, receiver).deliver()
    bodies = [json.loads(body) for _, _, body in receiver.got]
    assert [(body["event"], body["incident"]["status"]) for body in bodies] == [
        ("incident.opened", "unresolved"),
        ("incident.solved", "solved"),
    ]
    assert bodies[0]["incident"]["rule"] == "cap"
    assert "arguments" not in receiver.got[0][2].decode()
    assert [one.status for one in outbox(world)] == ["delivered", "delivered"]
    assert [one.deliveries[-1].answer for one in outbox(world)] == [200, 200]


def test_the_signature_covers_time_and_body(receiver: Receiver) -> None:
    world = broken()
    make_outbox(world, receiver).deliver()
    _, headers, body = receiver.got[0]
    signature, now = headers["Bylaw-Signature"], world.clock.now
    assert bylaw.verify_webhook(body, signature, SECRET, now=now)
    assert not bylaw.verify_webhook(body + b" ", signature, SECRET, now=now)
    assert not bylaw.verify_webhook(body, signature, "another", now=now)
    assert not bylaw.verify_webhook(body, signature, SECRET, now=now + 301)
    later = signature.replace(f"t={int(now)}", f"t={int(now) + 200}")
    assert not bylaw.verify_webhook(body, later, SECRET, now=now + 200)
    assert json.loads(body)["id"] == headers["Bylaw-Idempotency-Key"]


@pytest.mark.parametrize("signature", [None, "", "t=1", "t=1,v1=", "t=x,v1=" + "0" * 64, "v1=" + "0" * 64, "é" * 300])
def test_odd_signatures_are_refused(signature: Any) -> None:
    assert not bylaw.verify_webhook(b"{}", signature, SECRET, now=1.0)


def test_a_right_signature_passes_and_an_empty_secret_never_does() -> None:
    assert bylaw.verify_webhook(b"{}", sign(b"{}", SECRET, at=1.9), SECRET, now=1.0)
    with pytest.raises(ValueError, match="empty"):
        bylaw.verify_webhook(b"{}", sign(b"{}", "", at=1.0), "", now=1.0)


def test_a_failing_receiver_is_tried_again_with_growing_waits(receiver: Receiver) -> None:
    receiver.answers = [500, "close", "garbage", 429, 200]
    world, waits = broken(), []
    sender = make_outbox(world, receiver, wait=2.0)
    while outbox(world)[0].status == "pending":
        due = outbox(world)[0].at
        waits.append(due - world.clock.now)
        tried = len(receiver.got)
        sender.deliver()
        assert len(receiver.got) - tried == (0 if due > world.clock.now else 1)
        world.clock.now = max(world.clock.now, due)
    (sent,) = outbox(world)
    assert (sent.status, len(sent.deliveries)) == ("delivered", 5)
    assert [wait for wait in waits if wait] == [2.0, 4.0, 8.0, 16.0]
    assert len({headers["Bylaw-Idempotency-Key"] for _, headers, _ in receiver.got}) == 1
    assert [one.answer for one in sent.deliveries] == [500, None, None, 429, 200]
    assert all(one.problem for one in sent.deliveries[:-1])


@pytest.mark.parametrize("patience", [{"attempts": 3}, {"attempts": 99, "seconds": 9.0}])
def test_it_is_given_up_in_the_end(receiver: Receiver, patience: dict[str, Any]) -> None:
    receiver.answers = [503] * 50
    world = broken()
    for _ in range(20):
        make_outbox(world, receiver, **patience).deliver()
        world.clock.now += 1000
    assert [one.status for one in outbox(world)] == ["failed"]
    assert len(receiver.got) == len(outbox(world)[0].deliveries) <= 3


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_an_answer_that_will_not_change_is_final(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    world = broken()
    make_outbox(world, receiver).deliver()
    assert [(one.status, len(one.deliveries)) for one in outbox(world)] == [("failed", 1)]


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.answers = [other.address]
        world = broken()
        make_outbox(world, receiver).deliver()
        assert other.got == []
    (sent,) = outbox(world)
    assert (sent.status, sent.deliveries[0].answer) == ("failed", 307)


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_a_receiver_that_hangs_is_left(receiver: Receiver, how: str) -> None:
    receiver.answers = [how]
    world = broken()
    started = time.monotonic()
    make_outbox(world, receiver, timeout=0.3).deliver()
    assert time.monotonic() - started < 120
    (sent,) = outbox(world)
    assert (sent.status, sent.deliveries[0].problem) == ("pending", "no answer within 0.3 s")


def test_nobody_listens() -> None:
    world = broken()
    Outbox(world.store, {"first": {"webhook": Webhook("http://127.0.0.1:9/x", SECRET)}}, clock=world.clock).deliver()
    (sent,) = outbox(world)
    assert (sent.status, len(sent.deliveries)) == ("pending", 1)


def test_a_body_that_is_too_long_is_not_sent(receiver: Receiver) -> None:
    world = broken()
    make_outbox(world, receiver, body_bytes=20).deliver()
    assert receiver.got == []
    assert outbox(world)[0].status == "failed"


@pytest.mark.parametrize(
    "address", ["ftp://x/y", "file:///etc/passwd", "x", "", "http://", "http://a:b@c/", "http://x:port/", "http://x /"]
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(ValueError):
        Webhook(address, SECRET)


def test_a_webhook_needs_a_secret() -> None:
    with pytest.raises(ValueError, match="secret"):
        Webhook("http://127.0.0.1/", "")


def test_reviews_are_notified_when_they_open_before_they_expire_and_when_they_escalate(receiver: Receiver) -> None:
    with receiving() as second:
        world = World([ASK], review_seconds=1000.0)
        world.decide("wire")
        world.follow(notify=True)
        reminders = Reminders(world.store, ReminderTimes(expiring_seconds=100, escalate_seconds=500), clock=world.clock)
        posters = {
            to: {"webhook": Webhook(one.address, SECRET)} for to, one in (("first", receiver), ("second", second))
        }
        sender = Outbox(world.store, posters, clock=world.clock)  # type: ignore[arg-type]
        seen = []
        for later in (0, 400, 200, 350, 10, 100):
            world.clock.now += later
            Reminders(world.store, reminders._times, clock=world.clock).sweep()  # as after a restart
            reminders.sweep()
            sender.deliver()
            seen.append((_events(receiver), _events(second)))
    assert seen == [
        (["review.opened"], []),
        (["review.opened"], []),
        (["review.opened"], ["review.escalated"]),
        (["review.opened", "review.expiring"], ["review.escalated"]),
        (["review.opened", "review.expiring"], ["review.escalated"]),
        (["review.opened", "review.expiring"], ["review.escalated"]),
    ]


def test_an_answered_review_is_not_reminded_of(receiver: Receiver) -> None:
    world = World([ASK], review_seconds=1000.0)
    decision = world.decide("wire")
    world.guard.reviews.approve(decision.review, by="ann")
    world.follow(notify=True)
    world.clock.now += 950
    assert Reminders(world.store, ReminderTimes(escalate_seconds=1.0), clock=world.clock).sweep() == 0
    assert outbox(world) == []


def test_without_recipients_nothing_is_put_into_the_outbox() -> None:
    world = World([CAP, ASK])
    world.decide("pay", args={"amount": 900})
    world.decide("wire")
    world.follow()
    world.incidents.solve(world.incidents.list()[0].id, by="ann")
    assert outbox(world) == []


def _events(receiver: Receiver) -> list[str]:
    return [json.loads(body)["event"] for _, _, body in receiver.got]


def test_a_recipient_that_is_down_does_not_hold_up_the_other(receiver: Receiver) -> None:
    with receiving() as second:
        receiver.answers = [503] * 100
        world = World([ASK], review_seconds=1000.0)
        for n in range(40):
            world.decide("wire", session=f"s{n}")
        world.follow(notify=True)
        world.clock.now += 10
        Reminders(world.store, ReminderTimes(escalate_seconds=5), clock=world.clock).sweep()
        sent: list[Notification] = []
        posters = {
            to: {"webhook": Webhook(one.address, SECRET)} for to, one in (("first", receiver), ("second", second))
        }
        sender = Outbox(world.store, posters, undelivered=sent.append, clock=world.clock)  # type: ignore[arg-type]
        sender.deliver()
    assert (len(receiver.got), len(sent), sent[0].status) == (1, 1, "pending")
    assert set(_events(second)) == {"review.escalated"} and len(second.got) == 31


class Waiting:
    """Notifications in the outbox, a first recipient that is down, and a second that is not."""

    def __init__(self, first: int, second: int) -> None:
        self.world = World([])
        self.tried: dict[Recipient, int] = {"first": 0, "second": 0}
        with self.world.store.transaction("") as transaction:
            for to, count in (("first", first), ("second", second)):
                for number in range(count):
                    transaction.put_followed(
                        Notification(id=f"{to} {number}", event="e", to=to, body={}, created_at=0.0)
                    )  # type: ignore[arg-type]
        self.outbox = Outbox(
            self.world.store,
            {"first": {"webhook": self._down}, "second": {"webhook": self._up}},
            clock=self.world.clock,
        )

    def _down(self, body: bytes, *, key: str, at: float) -> DeliveryResult:
        self.tried["first"] += 1
        self.world.clock.now += 10.0
        return DeliveryResult(problem="no answer")

    def _up(self, body: bytes, *, key: str, at: float) -> DeliveryResult:
        self.tried["second"] += 1
        return DeliveryResult(answer=200)


def test_however_much_is_due_for_a_recipient_that_is_down() -> None:
    waiting = Waiting(2 * PAGE + 1, AT_ONCE + 3)
    assert waiting.outbox.deliver() == AT_ONCE - 1
    assert waiting.tried == {"first": 1, "second": AT_ONCE - 1}


def test_a_recipient_that_is_down_is_left_alone_for_a_while() -> None:
    waiting = Waiting(5, 0)
    for _ in range(3):
        assert waiting.outbox.deliver() == 0
    assert waiting.tried["first"] == 1
    waiting.world.clock.now += RetryPolicy().wait
    waiting.outbox.deliver()
    assert waiting.tried["first"] == 2


def test_once_delivers_all_that_can_be() -> None:
    waiting = Waiting(PAGE + 1, 3 * AT_ONCE)
    world = waiting.world
    Follower(Correlator([], world.store, clock=world.clock), outbox=waiting.outbox).once()
    assert waiting.tried == {"first": 1, "second": 3 * AT_ONCE}


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "169.254.0.1:8080"])
def test_a_link_local_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="link-local"):
        Webhook(f"http://{host}/latest", "secret")


def test_a_name_or_number_that_leads_to_a_link_local_address_gets_nothing() -> None:
    posted = Webhook("http://2852039166/", "secret")(b"{}", key="k", at=1.0)
    assert posted.final and "link-local" in (posted.problem or "")

"""A store with plausible traffic of the last hours, for `bylaw guard serve --demo` and for pictures of the console.

The traffic goes through the guard, the reviews and the follow-up as any other does; only their clock is not the real
one.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from random import Random

from msgspec import Struct

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.guard import Guard
from bylaw.guard.incidents.follow import make_follower
from bylaw.guard.incidents.incidents import Incidents
from bylaw.guard.service.demo.conversations import (
    Script,
    invoices,
    leak,
    mails,
    question,
    raised_refund,
    refund,
    stubborn_refund,
)
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.rule_versions import RuleVersions
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.guard_policy import GuardSet

HOURS = 8.0
RULE_FILES = ("support.yaml", "billing.yaml")
PEOPLE = ("ann", "lea", "marek")
PACE = 8.0
"""seconds between two new conversations while the service runs"""


class Demo(Struct, frozen=True):
    """The files of a demo."""

    policies: tuple[str, ...]
    store: str


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make_demo(folder: Path, *, now: float | None = None, hours: float = HOURS) -> Demo:
    """Write rule files and a store into the folder: the traffic of the hours before `now`."""
    now = time.time() if now is None else now
    texts = {name: (files(__name__) / name).read_text("utf-8") for name in RULE_FILES}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    demo = Demo(tuple(str(folder / name) for name in RULE_FILES), str(folder / "demo.db"))
    clock = _Clock(now - hours * 3600 - 1800)
    store = SqliteStore(demo.store)
    try:
        versions = RuleVersions(store, clock=clock)
        milder = {path: texts[Path(path).name].replace("value: 500", "value: 1000") for path in demo.policies}
        first = versions.add(milder, by="lea", note="first rules for the refund agent")
        earlier = BaseGuard(versions.load(first).policies, store=store, durable=True, clock=clock)
        _run([(clock.now, question(earlier, 4100, Random(0)))], clock, clock.now + 1200, lambda: None)
        versions.begin(demo.policies)
        clock.now += 300
        wider = {path: texts[Path(path).name].replace("value: 6 }", "value: 8 }") for path in demo.policies}
        third = versions.add(
            wider, by="marek", note="six lookups were too few for families with many orders", folder=""
        )
        policies = versions.load(third).policies
        guard = BaseGuard(policies, store=store, durable=True, clock=clock)
        follower = make_follower(policies, store, None, None, clock=clock)
        scripts = [*_traffic(guard, now, hours), (now - hours * 3600, _people(guard, clock, now))]
        _run(scripts, clock, now, follower.once)
        Operations(Guard(GuardSet(tuple(policies)), store=store), versions, clock).proposals.mine(by=PEOPLE[1])
        clock.now = now - 1500
        guard.kill("crawler", "paused while the supplier's site is down")
    finally:
        store.close()
    return demo


def _run(scripts: list[tuple[float, Script]], clock: _Clock, end: float, follow: Callable[[], object]) -> None:
    """All scripts by one clock, in the order of time. Those that are not done by the end stay open."""
    queue = [(at, number, script) for number, (at, script) in enumerate(scripts)]
    heapq.heapify(queue)
    next_follow = clock.now
    while queue and queue[0][0] <= end:
        at, number, script = heapq.heappop(queue)
        if at > next_follow:
            clock.now = next_follow = at
            follow()
            next_follow += 240
        clock.now = at
        wait = next(script, None)
        if wait is not None:
            heapq.heappush(queue, (at + wait, number, script))
    clock.now = end
    follow()


def keep_going(demo: Demo, stop: threading.Event) -> None:
    """New conversations in real time, until the event is set. Their agents wait for the answers of people, and follow
    the rules that people activate."""
    store = SqliteStore(demo.store)
    versions = RuleVersions(store)
    guard = Guard(GuardSet(tuple(versions.begin(demo.policies).policies)), store=store)
    versions.attach(guard)
    random, queue = Random(), list[tuple[float, int, Script]]()
    number, begin = 6000, 0.0
    with closing(store), suppress(StoreUnavailable):
        while not stop.wait(0.2):
            now = time.time()
            if now >= begin:
                number, begin = number + 1, now + random.expovariate(1 / PACE)
                heapq.heappush(queue, (now, number, _conversation(guard, number, random, large=0.2)))
            while queue and queue[0][0] <= now:
                _, its_number, script = heapq.heappop(queue)
                with suppress(ValueError):  # somebody has ended its session
                    wait = next(script, None)
                    if wait is not None:
                        heapq.heappush(queue, (now + wait, its_number, script))


def _conversation(guard: BaseGuard, number: int, random: Random, *, large: float = 0.0) -> Script:
    """`large`: the share of refunds that need a person."""
    kind = random.random()
    if kind < 0.62:
        return question(guard, number, random)
    if kind < 0.86:
        slip = random.choices(["", "confirm", "reason", "notify"], [6, 2, 2, 0.6])[0]
        amount = random.uniform(510, 2400) if random.random() < large else random.uniform(15, 420)
        return refund(guard, number, random, amount=round(amount, 2), slip=slip)
    if kind < 0.95:
        return invoices(guard, number, random, amount=round(random.lognormvariate(5.6, 1.1), 2))
    return mails(guard, number, ["lena@example.org", "yuki@example.org, noor@example.org"])


def _traffic(guard: BaseGuard, now: float, hours: float) -> Iterator[tuple[float, Script]]:
    """Conversations that start in these hours; more of them towards the middle of the day."""
    random = Random(24)
    first, number = now - hours * 3600, 4100
    at = first
    while at < now - 90:
        share = (at - first) / (now - first)
        at += random.expovariate(1 / (260 if share < 0.25 else 110 if share < 0.7 else 150))
        number += 1
        yield at, _conversation(guard, number, random)
    yield now - 0.62 * hours * 3600, stubborn_refund(guard, 5001)
    yield now - 0.45 * hours * 3600, leak(guard, 5002)
    yield now - 0.3 * hours * 3600, mails(guard, 5003, [f"customer{n}@example.org" for n in range(16)], pause=6.0)
    yield now - 0.5 * hours * 3600, refund(guard, 5004, Random(1), amount=740.0)
    yield now - 0.2 * hours * 3600, refund(guard, 5005, Random(2), amount=1290.0)
    yield now - 900, refund(guard, 5006, Random(3), amount=612.5)
    yield now - 420, raised_refund(guard, 5007)
    yield now - 240, mails(guard, 5008, ["ada@example.org", "jonas.weber@gmail.com"], pause=5.0)


def _people(guard: BaseGuard, clock: _Clock, now: float) -> Script:
    """Operators who answer reviews after some minutes, and handle the first incident."""
    incidents = Incidents(guard.store, clock)
    while True:
        yield 60
        for review in guard.reviews.list(status="pending"):
            age = clock() - review.created_at
            if age > 240 and review.created_at < now - 1000:
                if review.arguments.get("amount", 0) > 1000:
                    guard.reviews.reject(review.id, by="lea", note="the order was 129, not 1,290")
                else:
                    guard.reviews.approve(review.id, by="ann", note="called the customer")
        for incident in incidents.list(status="unresolved"):
            if incident.rule == "refund-retries" and clock() - incident.opened_at > 300:
                incidents.acknowledge(incident.id, by="ann")
                incidents.assign(incident.id, "marek", by="ann", note="please look at what the customer got")
                incidents.note(
                    incident.id, "three refunds of 95 went out; the order was 285, so it is even", by="marek"
                )
                incidents.solve(incident.id, by="marek", note="the limit worked; nothing to pay back")
            elif incident.rule == "no-card-numbers" and clock() - incident.opened_at > 600:
                incidents.acknowledge(incident.id, by="lea", note="a test card, looking into the tool's answer")

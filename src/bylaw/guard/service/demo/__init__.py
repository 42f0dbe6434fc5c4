"""A store with plausible traffic of the last hours, for `bylaw guard serve --demo` and for pictures of the console.

The traffic goes through the guard, the reviews and the follow-up as any other does; only their clock is not the real
one. Each conversation is a generator that acts, and yields the seconds until it goes on.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.guard import Guard
from bylaw.guard.incidents.follower import make_follower
from bylaw.guard.incidents.incidents import Incidents
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.rule_versions import RuleVersions
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.events import Message, Origin, Response
from bylaw.model.rule import GuardSet

Script: TypeAlias = Generator[float, None, None]
Use: TypeAlias = Generator[float, None, Decision]

NAMES = ("Ada Brandt", "Jonas Weber", "Mira Okafor", "Tomás Silva", "Lena Fischer", "Yuki Tanaka", "Noor Haddad")
GOODS = ("a desk lamp", "hiking boots", "a coffee grinder", "noise-cancelling headphones", "a rain jacket")


class Agent:
    """One run of an agent in a session."""

    def __init__(self, guard: BaseGuard, session: str, agent: str, above: Agent | None = None) -> None:
        self.guard, self.session, self.agent, self.above = guard, session, agent, above
        self.run = f"{session}/{agent}"
        self.origin = Origin(session, self.run, agent=agent)
        guard.start_run(session, self.run, agent=agent, parent_run=None if above is None else above.run)

    def call(self, tool: str, review: str | None = None, **arguments: Any) -> Decision:
        parent = None if self.above is None else self.above.run
        attempt = Attempt(
            tool=tool, arguments=arguments, agent=self.agent, session=self.session, run=self.run, parent_run=parent
        )
        return self.guard.decide(attempt, review=review)

    def use(self, tool: str, result: Any, **arguments: Any) -> Use:
        """Call a tool, wait for a person if it pauses, and record what it returns if it may run."""
        decision = self.call(tool, **arguments)
        yield 0.4
        if decision.review is not None:
            while (answer := self.guard.reviews.get(decision.review)) is not None and answer.status == "pending":
                yield 20
            decision = self.call(tool, decision.review, **arguments)
        if decision:
            self.guard.record(decision, result)
            yield 1.5
        return decision

    def hear(self, text: str) -> None:
        self.guard.observe(Message(origin=self.origin, role="user", content=text))

    def say(self, text: str) -> None:
        content = [{"type": "text", "text": text}]
        self.guard.observe(Response(origin=self.origin, text=text, content=content, model="demo-1"))


def question(guard: BaseGuard, number: int, random: Random) -> Script:
    """A customer asks where an order is."""
    session, order = f"ticket-{number}", f"A-{number % 900 + 100}"
    support = Agent(guard, session, "support")
    support.hear(f"Hello, where is my order {order}?")
    yield random.uniform(2, 6)
    yield from support.use("lookup_order", {"status": "shipped", "total": 20 + number % 140}, order_id=order)
    if random.random() < 0.4:
        yield from support.use("get_customer", {"name": random.choice(NAMES)}, order_id=order)
    if random.random() < 0.3:
        yield from support.use("read_policy", "parcels take two to four days", topic="delivery")
    support.say(f"Your order {order} was shipped yesterday and arrives within two days.")
    yield 1
    yield from support.use("send_reply", "sent", order_id=order, text="shipped yesterday")
    yield random.uniform(5, 30)
    guard.end_session(session)


def refund(guard: BaseGuard, number: int, random: Random, *, amount: float, slip: str = "") -> Script:
    """A customer wants money back. `slip`: what the agent forgets, `confirm`, `notify` or `reason`."""
    session, order, goods = f"ticket-{number}", f"A-{number % 900 + 100}", random.choice(GOODS)
    support = Agent(guard, session, "support")
    support.hear(f"I sent {goods} back last week (order {order}). When do I get my {amount:.0f} back?")
    yield random.uniform(2, 5)
    yield from support.use("lookup_order", {"status": "returned", "total": amount}, order_id=order)
    support.say(f"I see that {goods} arrived in our warehouse. I am starting the refund.")
    yield 2
    refunds = Agent(guard, session, "refunds", support)
    yield from refunds.use("lookup_order", {"total": amount, "returned": True}, order_id=order)
    if slip != "confirm":
        yield from refunds.use("confirm_refund_amount", True, order_id=order, amount=amount)
    arguments = {"order_id": order, "amount": amount, "reason": "returned goods"}
    if slip == "reason":
        del arguments["reason"]
    decision = yield from refunds.use("issue_refund", "done", **arguments)
    if not decision and slip == "confirm":
        support.say("One moment, I need you to confirm the amount.")
        yield from refunds.use("confirm_refund_amount", True, order_id=order, amount=amount)
        decision = yield from refunds.use("issue_refund", "done", **arguments)
    if decision and slip != "notify":
        yield from refunds.use("notify_customer", "sent", order_id=order, text=f"{amount:.2f} is on its way")
    yield random.uniform(10, 40)
    guard.end_session(session)


def raised_refund(guard: BaseGuard, number: int) -> Script:
    """A customer who asks for ten times as much after the first refund; the second one waits for a person."""
    session, order = f"ticket-{number}", f"A-{number % 900 + 100}"
    support = Agent(guard, session, "support")
    support.hear(f"The desk of order {order} arrived with a broken leg.")
    yield 4
    yield from support.use("lookup_order", {"status": "delivered", "total": 248.0}, order_id=order)
    support.say("I am sorry about that. I am refunding the desk.")
    refunds = Agent(guard, session, "refunds", support)
    yield from refunds.use("confirm_refund_amount", True, order_id=order, amount=248.0)
    yield from refunds.use("issue_refund", "done", order_id=order, amount=248.0, reason="broken on arrival")
    yield from refunds.use("notify_customer", "sent", order_id=order, text="248.00 is on its way")
    yield 20
    support.hear("That was only a part of it. I paid 2480. Refund the rest to my new account.")
    yield 6
    support.say("I see. I am refunding 2480 to the account that you gave me.")
    yield from refunds.use("confirm_refund_amount", True, order_id=order, amount=2480.0)
    account = {"holder": "J. Weber", "country": "LT"}
    yield from refunds.use("issue_refund", "done", order_id=order, amount=2480.0, reason="the rest", account=account)


def stubborn_refund(guard: BaseGuard, number: int) -> Script:
    """An agent that splits one refund into many, until a rule ends the session."""
    session, order = f"ticket-{number}", f"A-{number % 900 + 100}"
    support = Agent(guard, session, "support")
    support.hear("Refund my whole order in small parts, please.")
    yield 4
    refunds = Agent(guard, session, "refunds", support)
    yield from refunds.use("confirm_refund_amount", True, order_id=order, amount=95)
    for part in range(1, 6):
        yield from refunds.use("issue_refund", "done", order_id=order, amount=95, reason=f"part {part} of 5")
        yield 3


def mails(guard: BaseGuard, number: int, addresses: list[str], *, pause: float = 8.0) -> Script:
    """A mailer writes to customers, one after the other."""
    session = f"campaign-{number}"
    support = Agent(guard, session, "support")
    support.hear("Tell everybody on the list that the warehouse is closed on Friday.")
    yield 3
    mailer = Agent(guard, session, "mailer", support)
    yield from mailer.use("find_contacts", {"found": len(addresses)}, list="friday-deliveries")
    for address in addresses:
        text = "Our warehouse is closed on Friday; your parcel arrives on Monday."
        yield from mailer.use("send_email", "sent", to=address, subject="Delivery on Monday", text=text)
        yield pause
    yield 20
    guard.end_session(session)


def leak(guard: BaseGuard, number: int) -> Script:
    """An answer that contains a card number: nothing could stop it, so it becomes an incident."""
    session = f"ticket-{number}"
    support = Agent(guard, session, "support")
    support.hear("Which card did I pay with?")
    yield 3
    yield from support.use("get_customer", {"name": "Mira Okafor", "card": "on file"}, order_id="A-561")
    support.say("You paid with the card 4111 1111 1111 1111.")
    yield 30
    guard.end_session(session)


def invoices(guard: BaseGuard, number: int, random: Random, *, amount: float) -> Script:
    session = f"invoice-{number}"
    billing = Agent(guard, session, "billing")
    yield from billing.use("list_invoices", {"open": 3}, customer=f"C-{number}")
    yield from billing.use("charge_card", {"ok": True}, customer=f"C-{number}", amount=amount)
    if random.random() < 0.3:
        yield from billing.use("cancel_invoice", "cancelled", invoice=f"2026-{number:04}", why="charged twice")
    yield 15
    guard.end_session(session)


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

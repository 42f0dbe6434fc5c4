"""What the agents of the demo do: each conversation is a generator that acts, and yields the seconds until it goes
on."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any, TypeAlias

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt, Decision
from bylaw.model.events import Message, Origin, Response

Script: TypeAlias = Generator[float, None, None]
Use: TypeAlias = Generator[float, None, Decision]

NAMES = ("Ada Brandt", "Jonas Weber", "Mira Okafor", "Tomás Silva", "Lena Fischer", "Yuki Tanaka", "Noor Haddad")
GOODS = ("a desk lamp", "hiking boots", "a coffee grinder", "noise-cancelling headphones", "a rain jacket")


class Agent:
    """One run of an agent in a session."""

    def __init__(self, guard: BaseGuard, session: str, agent: str, above: Agent | None = None) -> None:
        self.guard, self.session, self.agent, self.above = guard, session, agent, above
        self.run = f"{session}/{agent}"
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
        origin = Origin(self.session, self.run, agent=self.agent)
        self.guard.observe(Message(origin=origin, role="user", content=text))

    def say(self, text: str) -> None:
        origin = Origin(self.session, self.run, agent=self.agent)
        self.guard.observe(Response(origin=origin, text=text, content=[{"type": "text", "text": text}], model="demo-1"))


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

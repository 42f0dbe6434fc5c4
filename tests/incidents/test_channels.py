"""Notifications by webhook, chat and e-mail, each against a receiver on this machine that speaks the real protocol."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from bylaw.guard.incidents.channels import (
    PASSWORD,
    SECRET,
    SLACK,
    Mailer,
    MailSettings,
    Notify,
    add_webhooks,
    open_channels,
    read_notify,
)
from bylaw.guard.incidents.follower import make_follower
from bylaw.guard.incidents.notifications import Outbox, RetryPolicy
from bylaw.guard.incidents.webhook import chat_text, verify_webhook
from bylaw.guard.stores.records import Notification
from bylaw.model.canonical import canonical_json
from bylaw.model.ports import DeliveryResult
from tests.guard.support import policies
from tests.incidents.mail_receiver import MailReceiver, receiving_mail
from tests.incidents.receiver import receiving
from tests.incidents.support import CAP, World

KEY = "only for tests"
EVIL = "x\r\nBcc: eve@evil.example\n\n<!channel> @here `*b*` <https://evil.example|click> \u202e\x1b[2J"


def mail(receiver: MailReceiver, **more: Any) -> MailSettings:
    settings: dict[str, Any] = {"host": "localhost", "port": receiver.port, "sender": "bylaw@example.org"}
    return MailSettings(**(settings | {"to": ("ann@example.org", "bob@example.org"), "security": "plain"} | more))


def opened(text: str = "a limit", event: str = "incident.opened") -> bytes:
    about = {"id": "incident-1", "rule": text, "message": text, "session": text, "agent": text, "tool": text}
    return canonical_json({"id": "n-1", "event": event, "incident" if "incident" in event else "review": about})


def broken() -> World:
    world = World([CAP])
    world.decide("pay", args={"amount": 900})
    world.follow(notify=True)
    return world


def outbox(world: World) -> list[Notification]:
    return list(world.store.followed(Notification))


# -- all of them ------------------------------------------------------------------------------------------------------


def test_one_incident_reaches_a_webhook_a_chat_room_and_a_mailbox() -> None:
    with receiving() as hook, receiving() as room, receiving_mail() as box:
        notify = Notify(webhook=hook.address, slack=SLACK, email=mail(box), public_url="https://guard.example.org/")
        channels = open_channels(notify, environment={SECRET: KEY, SLACK: room.address})
        world = broken()
        assert Outbox(world.store, channels, clock=world.clock).deliver() == 3
    (sent,) = outbox(world)
    assert (sent.status, [one.channel for one in sent.deliveries]) == ("delivered", ["webhook", "slack", "email"])
    _, headers, body = hook.got[0]
    assert verify_webhook(body, headers["Bylaw-Signature"], KEY, now=world.clock.now)
    link = f"https://guard.example.org/console/incidents/{json.loads(body)['incident']['id']}"
    (payload,) = [json.loads(body) for _, _, body in room.got]
    assert list(payload) == ["text"] and "`The rule cap was broken`" in payload["text"]
    assert f"<{link}|Open it in the console>" in payload["text"]
    (message,) = box.got
    assert message["Subject"] == "[Bylaw] The rule cap was broken"
    assert message["To"] == "ann@example.org, bob@example.org" and message["Auto-Submitted"] == "auto-generated"
    assert link in message.get_content() and "Session: s" in message.get_content()
    assert "900" not in payload["text"] + message.get_content()  # no arguments


def test_a_channel_that_fails_is_tried_again_alone() -> None:
    with receiving() as hook, receiving_mail() as box:
        box.answers = {"MAIL": "451 later"}
        channels = open_channels(Notify(webhook=hook.address, email=mail(box)), secret=KEY)
        world = broken()
        sent: list[Notification] = []
        sender = Outbox(world.store, channels, undelivered=sent.append, clock=world.clock)
        sender.deliver()
        assert (sent[0].status, sent[0].deliveries[-1].answer) == ("pending", 451)
        assert sender.deliver() == 0 and len(sent) == 1  # not before its time
        box.answers = {}
        world.clock.now = outbox(world)[0].at
        assert sender.deliver() == 1
    assert outbox(world)[0].status == "delivered"
    assert (len(hook.got), len(box.got)) == (1, 1)


def test_a_channel_that_takes_long_to_fail_is_left_alone_for_longer() -> None:
    world, tried = broken(), list[str]()

    def hangs(body: bytes, *, key: str, at: float) -> DeliveryResult:
        tried.append(key)
        time.sleep(0.01)
        return DeliveryResult(problem="no answer")

    sender = Outbox(world.store, {"first": {"slack": hangs}}, patience=RetryPolicy(wait=0.0), clock=world.clock)
    sender.deliver()
    sender.deliver()  # it is due again, but the channel is not asked
    assert len(tried) == 1
    world.clock.now += 600
    sender.deliver()
    assert len(tried) == 2


def test_a_notification_is_failed_if_one_channel_gives_up_and_only_that_one_sends_it_again() -> None:
    with receiving() as hook, receiving_mail() as box:
        box.answers = {"RCPT": "550 no such mailbox"}
        channels = open_channels(Notify(webhook=hook.address, email=mail(box)), secret=KEY)
        world = broken()
        Outbox(world.store, channels, clock=world.clock).deliver()
        (sent,) = outbox(world)
        assert (sent.status, len(hook.got)) == ("failed", 1)
        assert sent.deliveries[-1].problem == "the mail server answered 550: no such mailbox"
        box.answers = {}
        world.incidents.resend(sent.id)
        Outbox(world.store, channels, clock=world.clock).deliver()
    assert (outbox(world)[0].status, len(hook.got), len(box.got)) == ("delivered", 1, 1)


def test_a_channel_that_is_no_longer_configured_keeps_nothing_waiting() -> None:
    with receiving() as hook, receiving_mail() as box:
        box.answers = {"MAIL": "451 later"}
        world = broken()
        channels = open_channels(Notify(webhook=hook.address, email=mail(box)), secret=KEY)
        Outbox(world.store, channels, clock=world.clock).deliver()
        world.clock.now = outbox(world)[0].at
        Outbox(world.store, open_channels(Notify(webhook=hook.address), secret=KEY), clock=world.clock).deliver()
        assert (outbox(world)[0].status, len(hook.got)) == ("failed", 1)


def test_secrets_are_removed_from_what_is_reported() -> None:
    with receiving() as hook, receiving() as room, receiving_mail() as box:
        notify = Notify(webhook=hook.address, slack=SLACK, email=mail(box))
        channels = open_channels(notify, environment={SECRET: KEY, SLACK: room.address})
        world = World([CAP])
        secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
        world.decide("pay", agent=f"bot {secret}", args={"amount": 900})
        world.follow(notify=True)
        Outbox(world.store, channels, clock=world.clock).deliver()
        shown = [body.decode() for _, _, body in (*hook.got, *room.got)] + [box.got[0].as_string()]
    assert len(shown) == 3
    for text in shown:
        assert secret not in text and "[redacted: api key]" in text


def test_an_escalation_has_channels_and_a_time_of_its_own() -> None:
    with receiving_mail() as first, receiving_mail() as second:
        notify = Notify(email=mail(first), escalation={"email": mail(second)}, escalate_after=100.0)  # type: ignore[arg-type]
        notify = read_back(notify)
        world = World([{"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"}], review_seconds=1000.0)
        world.decide("wire")
        follower = make_follower(policies(world.rules, "hitl"), world.store, notify=notify, clock=world.clock)
        follower.once()
        world.clock.now += 101
        follower.once()
    assert [one["Subject"] for one in first.got] == ["[Bylaw] A call of wire waits for a person"]
    assert [one["Subject"] for one in second.got] == ["[Bylaw] Nobody has answered: a call of wire waits for a person"]


def read_back(notify: Notify) -> Notify:
    """As a worker is given it."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(notify), type=Notify)


def test_whoever_names_a_second_address_has_reviews_escalated() -> None:
    notify = add_webhooks(None, "http://127.0.0.1:9/", "http://127.0.0.1:10/")
    assert notify.times.escalate_seconds == 1800.0
    assert add_webhooks(None, "http://127.0.0.1:9/", None).times.escalate_seconds is None


# -- chat -------------------------------------------------------------------------------------------------------------


def test_text_of_an_agent_mentions_nobody_and_links_nowhere_in_a_chat() -> None:
    text = chat_text(opened(EVIL), "https://guard.example.org")
    assert "<!channel>" not in text and "<https://evil" not in text and "\r" not in text and "\x1b" not in text
    for line in text.splitlines()[:-1]:  # every value is inline code, which nothing in it can end
        assert line.count("`") == 2 and line.endswith("`") and "@here" not in line.split("`")[2]


def test_the_address_of_a_chat_room_is_in_no_message() -> None:
    with receiving() as room:
        room.answers = [404, "http://127.0.0.1:9/moved"]
        token = f"{room.address}/T0/B0/the-token"
        (poster,) = open_channels(Notify(slack=SLACK), environment={SLACK: token})["first"].values()
        for _ in range(2):
            posted = poster(opened(), key="n", at=1.0)
            assert posted.final and "the-token" not in str(posted)
    assert "the-token" not in str(poster(opened(), key="n", at=1.0))  # nobody listens any more


@pytest.mark.parametrize(
    "address", ["https://chat.example:port/the-token", "ftp://x/the-token", "https://u:p@x/the-token"]
)
def test_an_address_that_cannot_be_used_is_not_repeated(address: str) -> None:
    with pytest.raises(ValueError) as caught:
        open_channels(Notify(slack=SLACK), environment={SLACK: address})
    assert "the-token" not in str(caught.value) and f"slack: ${SLACK}: " in str(caught.value)


# -- e-mail -----------------------------------------------------------------------------------------------------------


def test_no_value_begins_a_header_or_a_recipient() -> None:
    with receiving_mail() as box:
        for event in ("incident.opened", "review.opened", EVIL):
            assert Mailer(mail(box))(opened(EVIL, event), key=f"k-{EVIL}", at=1.0).delivered
    assert [one for one in box.commands if one.startswith("rcpt")] == [
        "rcpt TO:<ann@example.org>",
        "rcpt TO:<bob@example.org>",
    ] * 3
    for message in box.got:
        assert message["Bcc"] is None and message["To"] == "ann@example.org, bob@example.org"
        assert set(message.keys()) == {
            *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Bylaw-Idempotency-Key"),
            *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
        }
        assert all(line.isprintable() for line in message.get_content().splitlines())


def test_a_mail_has_one_id_at_each_delivery_and_text_of_any_language() -> None:
    with receiving_mail() as box:
        for _ in range(2):
            Mailer(mail(box))(opened("Größe ✓ 上限"), key="n-1", at=1.0)
    assert len({one["Message-ID"] for one in box.got}) == 1
    assert "Größe ✓ 上限" in box.got[0]["Subject"] and "Größe ✓ 上限" in box.got[0].get_content()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    file = tmp_path_factory.mktemp("mail") / "authority.pem"
    authority.cert_pem.write_to_path(file)
    return context, str(file)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_is_sent_encrypted_and_signed_in(certificates: tuple[ssl.SSLContext, str], security: Any) -> None:
    with receiving_mail(certificates[0], at_once=security == "tls") as box:
        settings = mail(box, security=security, user="bylaw", certificates=certificates[1])
        notify = Notify(email=settings)
        (poster,) = open_channels(notify, environment={PASSWORD: "pass phrase"})["first"].values()
        assert poster(opened(), key="n", at=1.0).delivered
        assert box.encrypted == [True] and any(one.startswith("AUTH") for one in box.commands)
        box.answers = {"AUTH": "535 wrong pass phrase"}
        refused = poster(opened(), key="n", at=1.0)
        assert refused.final and "535" in str(refused.problem)


def test_a_server_without_encryption_or_with_a_strange_certificate_gets_nothing(
    certificates: tuple[ssl.SSLContext, str],
) -> None:
    with receiving_mail() as box:
        refused = Mailer(mail(box, security="starttls"))(opened(), key="n", at=1.0)
        assert refused.final and "no encryption" in str(refused.problem)
    with receiving_mail(certificates[0]) as other:
        refused = Mailer(mail(other, security="starttls"))(opened(), key="n", at=1.0)
        assert "certificate" in str(refused.problem)
    assert box.got == other.got == []


@pytest.mark.parametrize("how", ["hang", "drip"])
@pytest.mark.parametrize("command", ["CONNECT", "EHLO", "RCPT", "END"])
def test_a_mail_server_that_hangs_is_left(command: str, how: str) -> None:
    with receiving_mail() as box:
        box.answers = {command: how}
        started = time.monotonic()
        posted = Mailer(mail(box), seconds=0.3)(opened(), key="n", at=1.0)
        assert time.monotonic() - started < 60
    assert (posted.problem, posted.final) == ("no answer within 0.3 s", False)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_server_that_hangs_before_it_encrypts_is_left(
    certificates: tuple[ssl.SSLContext, str], security: Any
) -> None:
    with receiving_mail(certificates[0], at_once=security == "tls") as box:
        box.answers = {"TLS": "hang"}
        started = time.monotonic()
        posted = Mailer(mail(box, security=security, certificates=certificates[1]), seconds=0.5)(
            opened(), key="n", at=1.0
        )
        took = time.monotonic() - started
    assert posted.problem == "no answer within 0.5 s" and took < 60


def test_a_mail_that_was_taken_is_delivered_however_the_server_says_goodbye() -> None:
    with receiving_mail() as box:
        box.answers = {"QUIT": "hang"}

        def end_when_taken() -> None:
            while not box.got:
                time.sleep(0.01)
            box.released.set()  # it closes the connection without an answer

        threading.Thread(target=end_when_taken, daemon=True).start()
        assert Mailer(mail(box), seconds=60.0)(opened(), key="n", at=1.0).delivered


def test_a_mail_that_some_have_is_not_sent_to_them_again() -> None:
    with receiving_mail() as box:
        taken = Mailer(mail(box, to=("ann@example.org",)))
        assert taken(opened(), key="n", at=1.0).delivered
        posted = Mailer(mail(box))
        _refuse_second(box)
        posted_now = posted(opened(), key="n", at=1.0)
    assert posted_now.final and "refused it for bob@example.org" in str(posted_now.problem) and len(box.got) == 2


def _refuse_second(box: MailReceiver) -> None:
    """The second recipient from now on."""

    class Answers(dict[str, str]):
        seen = 0

        def get(self, command: str, usual: Any = None) -> Any:
            self.seen += command == "RCPT"
            return "452 full" if command == "RCPT" and self.seen == 2 else usual

    box.answers = Answers()


def test_nobody_listens() -> None:
    settings = MailSettings(host="localhost", port=9, sender="a@b.c", to=("a@b.c",), security="plain")
    posted = Mailer(settings, seconds=5.0)(opened(), key="n", at=1.0)
    assert not posted.final and "cannot be reached" in str(posted.problem)


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("notify: {slack: BYLAW_SLACK_WEBHOOK}", "$BYLAW_SLACK_WEBHOOK holds no address"),
        ("notify: {webhook: 'https://a.example'}", "set $BYLAW_WEBHOOK_SECRET"),
        ("notify: {email: {host: h, sender: a@b.c, to: [a@b.c], user: u}}", "set $BYLAW_SMTP_PASSWORD"),
        ("notify: {email: {host: h, sender: a@b.c, to: [a@b.c], certificates: /none.pem}}", "/none.pem"),
        ("notify: {email: {host: h, sender: a@b.c, to: []}}", "`to` names nobody"),
        ('notify: {email: {host: h, sender: a@b.c, to: ["a@b.c\\nBcc: x@y.z"]}}', "is not an e-mail address"),
        ("notify: {email: {host: 169.254.169.254, sender: a@b.c, to: [a@b.c]}}", "link-local"),
        ("notify: {email: {host: h, sender: a@b.c, to: [a@b.c], user: u, security: plain}}", "plain connection"),
        ("notify: {email: {host: h, sender: a@b.c, to: [a@b.c], password: p}}", "unknown field `password`"),
        ("notify: {public_url: 'javascript:alert(1)'}", "http://"),
        ("notify: {timeout: 0}", "timeout"),
        ("people: {}", "there is no `notify`"),
        ("notify: [", "not YAML"),
    ],
)
def test_settings_that_cannot_be_used_are_reported_before_anything_is_sent(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "serve.yaml").write_text(text)
    with pytest.raises(ValueError) as caught:
        open_channels(read_notify(str(tmp_path / "serve.yaml")), environment={})
    assert why in str(caught.value)


def test_the_example_of_the_guide_can_be_used(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "service.md").read_text("utf-8")
    text = page.split('```yaml title="notify.yaml"\n')[1].split("```")[0]
    (tmp_path / "notify.yaml").write_text(text)
    notify = read_notify(str(tmp_path / "notify.yaml"))
    assert notify.channels == {"first": ["webhook", "slack", "email"], "second": ["email"]}
    assert set(re.findall(r"BYLAW_\w+(?==)", page)) >= {SECRET, SLACK, PASSWORD}
    secrets = {SECRET: KEY, SLACK: "https://chat.example.org/x", PASSWORD: "p"}
    assert set(open_channels(notify, environment=secrets)) == {"first", "second"}


@pytest.fixture(autouse=True)
def no_secrets_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (SECRET, SLACK, PASSWORD):
        monkeypatch.delenv(name, raising=False)
    yield

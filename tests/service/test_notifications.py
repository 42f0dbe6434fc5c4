"""Notifications of a service: by its configuration file to real receivers, and over the API."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bylaw.guard.incidents.channels import SECRET, SLACK
from bylaw.guard.service.app import ServeConfig, make_app, make_versions, read_service_file
from bylaw.guard.service.server import FollowUp, serve
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.records import Delivery, Notification
from tests.incidents.mail_receiver import receiving_mail
from tests.incidents.receiver import receiving
from tests.service.support import RULES, Site

LONG = 60.0
"""seconds until a test gives up"""


def test_a_service_tells_its_channels_and_says_what_did_not_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "guard.yaml").write_text(RULES)
    with receiving() as hook, receiving() as room, receiving_mail() as box:
        room.answers = [410] * 9
        monkeypatch.setenv(SECRET, "only for tests")
        monkeypatch.setenv(SLACK, f"{room.address}/the-token")
        email = {
            "host": "localhost",
            "port": box.port,
            "security": "plain",
            "sender": "b@a.example",
            "to": ["a@a.example"],
        }
        (tmp_path / "serve.yaml").write_text(yaml.safe_dump({"notify": {"slack": SLACK, "email": email}}))
        file = read_service_file(str(tmp_path / "serve.yaml"))
        config = ServeConfig(policies=(str(tmp_path / "guard.yaml"),), webhook=hook.address, file=file)
        store = MemoryStore()
        context = make_app(config, store).state.context
        follow_up = FollowUp(config, store, make_versions(config, store))
        paused = context.operations.guard.decide(_refund())
        assert paused.review is not None
        follow_up.start()
        try:
            found = _wait_for(lambda: context.operations.notifications.list(status="failed"))
        finally:
            follow_up.end()
    assert context.operations.notifications.channels == {"first": ["webhook", "slack", "email"], "second": []}
    assert [one.event for one in found] == ["review.opened"] and len(hook.got) == len(box.got) == 1
    assert f"review.opened:{paused.review} is not delivered by slack: answered 410" in caplog.text
    assert "the-token" not in caplog.text + str(found)


def _refund() -> Any:
    import bylaw

    return bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, agent="support", session="t-1")


def _wait_for(look: Any) -> Any:
    until = time.monotonic() + LONG
    while not (found := look()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def test_a_channel_without_its_secret_is_reported_before_anything_listens(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv(SECRET, raising=False)
    config = ServeConfig(policies=(str(tmp_path / "none.yaml"),), webhook="https://alerts.example")
    with pytest.raises(ValueError, match=f"set .{SECRET}"):
        serve(config, pytest.fail)


def test_operators_see_resend_and_test_over_the_api() -> None:
    site = Site()
    refused = Delivery(at=1.0, seconds=0.1, answer=403, problem="answered 403", final=True)
    now = site.ops.clock()
    with site.store.transaction("") as transaction:
        transaction.put_followed(
            Notification(id="n:1", event="e", body={}, status="failed", deliveries=(refused,), created_at=now, at=now)
        )
    (one,) = site.ask("operator", "GET", "/v1/notifications?status=failed")["items"]
    assert one["deliveries"][0]["problem"] == "answered 403"
    assert site.ask("operator", "POST", "/v1/notifications/n:1/resend")["status"] == "pending"
    assert site.ask("operator", "POST", "/v1/notifications/n:1/resend", status=409)
    assert site.ask("operator", "POST", "/v1/notifications/none/resend", status=404)
    assert site.ask("operator", "POST", "/v1/notifications/test", status=409)
    site.ops.notifications.channels = {"first": ["email"]}
    assert site.ask("operator", "POST", "/v1/notifications/test")["event"] == "test"
    assert site.ask("operator", "GET", "/v1/notifications?status=failed")["items"] == []
    for method, path in (("GET", "/v1/notifications"), ("POST", "/v1/notifications/test")):
        assert site.ask("support", method, path, status=403) and site.ask(None, method, path, status=401)


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="bylaw")

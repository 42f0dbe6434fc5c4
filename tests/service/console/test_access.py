"""Keys and notifications in the console, and what reviews, incidents and rules show beside the plain record."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bylaw.guard.model import Attempt
from bylaw.guard.stores.records import Delivery, Notification
from tests.service.console.site import Site, submit, token_of
from tests.service.console.test_views import EVIL, Markup

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


@pytest.fixture(scope="module")
def ann(site: Site) -> Any:
    return site.client("ann")


# -- keys -------------------------------------------------------------------------------------------------------------


def make_key(client: Any, **fields: str) -> Any:
    given = {"label": "bot", "scope": "agent", "agents": "refunds, support", "expires": "30"} | fields
    return submit(client, "/console/keys", "/console/keys/create", **given)


def test_a_key_is_shown_once_works_and_is_revoked(site: Site, ann: Any) -> None:
    made = make_key(ann, label="refund bot")
    key = re.search(r'id="new-key">(bylaw_\w+?_[\w-]+)<', made.text)
    assert made.status_code == 200 and key is not None and made.headers["cache-control"] == "no-store"
    assert "data-once" in made.text  # the script changes the address, so that reloading makes no second key
    assert key[1] not in ann.get("/console/keys").text
    record = next(one for one in site.context.credentials.list() if one.name == "refund bot")
    assert (record.scopes, record.agents, record.created_by) == (("agent",), ("refunds", "support"), "ann")
    assert record.expires_at == pytest.approx(record.created_at + 30 * 86_400)
    call = {"session": "keys-1", "agent": "support", "tool": "lookup_order", "arguments": {}}
    ask: dict[str, Any] = {"headers": {"authorization": f"Bearer {key[1]}"}, "json": call}
    assert site.client().post("/v1/decide", **ask).status_code == 200
    gone = submit(ann, "/console/keys", "/console/keys/revoke", id=record.id)
    assert gone.headers["location"] == "/console/keys?done=key-revoked"
    assert site.client().post("/v1/decide", **ask).status_code == 401
    assert {"key created", "key revoked"} <= {
        row.data.get("how") for row in site.operations.audit.query(text=record.id, limit=50).rows
    }


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"label": " "}, "needs the name"),
        ({"scope": "root"}, "choose a scope"),
        ({"expires": "9999"}, "when the key expires"),
        ({"agents": ""}, "names its agents"),
        ({"scope": "admin"}, "only a key of the scope `agent` names agents"),
    ],
)
def test_a_key_that_cannot_be_made_is_reported_why_and_nothing_typed_is_lost(
    site: Site, ann: Any, fields: dict[str, str], why: str
) -> None:
    before = len(site.context.credentials.list())
    answer = make_key(ann, **({"label": "typed"} | fields))
    assert answer.status_code == 400 and why in answer.text and "new-key" not in answer.text
    assert fields.get("label", "typed") != "typed" or 'value="typed"' in answer.text
    assert len(site.context.credentials.list()) == before


def test_names_of_keys_stay_text(ann: Any) -> None:
    made = make_key(ann, label=EVIL, agents=EVIL)
    for text in (made.text, ann.get("/console/keys").text):
        assert Markup(text).risky == [] and "&lt;script&gt;alert(2)" in text


def test_a_key_that_is_not_there_cannot_be_revoked(ann: Any) -> None:
    answer = submit(ann, "/console/keys", "/console/keys/revoke", id="nothing")
    assert answer.status_code == 404 and "there is no key" in answer.text


def test_an_operator_finds_no_way_to_the_keys(site: Site) -> None:
    page = site.client("lea", "operator").get("/console/tasks").text
    assert "/console/keys" not in page and "/console/notifications" in page


# -- notifications ----------------------------------------------------------------------------------------------------


def reported(site: Site, name: str, *deliveries: Delivery, **fields: Any) -> None:
    body = {"event": "review.opened", "review": {"id": f"review-{name}", "tool": name}}
    about = {"id": f"n:{name}", "event": "review.opened", "body": body, "deliveries": deliveries}
    now = site.operations.clock()
    with site.store.transaction("") as transaction:
        transaction.put_followed(Notification(**(about | {"created_at": now, "at": now} | fields)))


def test_what_did_not_arrive_is_seen_and_sent_again(site: Site, ann: Any) -> None:
    now = site.operations.clock()
    gone = Delivery(at=now, seconds=0.1, answer=410, problem=f"answered 410 {EVIL}", channel="slack", final=True)
    reported(site, f"wire {EVIL}", Delivery(at=now, seconds=0.1, answer=200), gone, status="failed")
    reported(site, "quiet", Delivery(at=now, seconds=0.1, answer=200), status="delivered")
    assert "1 notification of the last 24 hours did not arrive" in ann.get("/console/tasks").text
    page = ann.get("/console/notifications?status=failed").text
    assert "answered 410 &lt;img" in page and "quiet" not in page and Markup(page).risky == []
    submit(ann, "/console/notifications", "/console/notifications/resend", id=f"n:wire {EVIL}")
    assert "did not arrive" not in ann.get("/console/tasks").text
    (waiting,) = site.operations.notifications.list(status="pending")
    assert [one.channel for one in waiting.deliveries] == ["webhook"]  # that one has it
    again = submit(ann, "/console/notifications", "/console/notifications/resend", id="n:quiet")
    assert again.status_code == 409 and "the notification is delivered" in again.text


def test_a_test_is_sent_if_somebody_would_get_it(site: Site, ann: Any) -> None:
    refused = submit(ann, "/console/notifications", "/console/notifications/test")
    assert refused.status_code == 409 and "under `notify`" in refused.text
    site.operations.notifications.channels = {"first": ["slack", "email"], "second": []}
    page = ann.get("/console/notifications").text
    assert "told by slack, email" in page and "Send a test" in page
    submit(ann, "/console/notifications", "/console/notifications/test")
    (test,) = [one for one in site.operations.notifications.list(status="pending") if one.event == "test"]
    assert test.body == {"event": "test", "test": {"by": "ann"}}
    site.operations.notifications.channels = {}


# -- beside the record ------------------------------------------------------------------------------------------------


def refund(site: Site, session: str, amount: float, tool: str = "issue_refund") -> Any:
    arguments = {"order_id": session, "amount": amount, "reason": "late"}
    site.guard.start_run(session, "r1", agent="support")
    site.guard.start_run(session, "r2", agent="refunds", parent_run="r1")
    return site.guard.decide(Attempt(tool=tool, arguments=arguments, agent="refunds", session=session, run="r2"))


def test_a_review_is_compared_with_an_earlier_call_and_never_with_a_later_one(site: Site) -> None:
    for session, amount in (("earlier", 111), ("asked", 901), ("later", 222)):
        site.guard.record(refund(site, session, amount, "confirm_refund_amount"), True)
        decision = refund(site, session, amount)
        if session == "asked":
            review = str(decision.review)
    similar = site.operations.reviews.view(review).similar
    assert similar is not None and similar.decision.session == "earlier"
    refund(site, "asked", 333)  # another call in the same session
    assert site.operations.reviews.view(review).similar == similar


def test_secrets_in_notes_about_rules_are_not_stored(site: Site, ann: Any) -> None:
    files = dict(site.operations.rules.active().version.files)
    name, text = next(iter(files.items()))
    made = site.operations.rules.activate(
        {**files, name: text + "\n# more\n"}, by="ann", note=f"key {SECRET} was in it"
    )
    assert made.note == "key [redacted: api key] was in it"
    assert SECRET not in ann.get("/console/rules/versions").text + ann.get("/console/audit?kind=service").text
    rows = site.operations.audit.query(text=made.id, limit=5).rows
    assert rows and all(SECRET not in str(row.data) for row in rows)
    site.operations.rules.rollback(by="ann", note=SECRET)
    assert SECRET not in site.operations.rules.versions()[0].note


def test_what_only_the_follow_up_has_found_is_a_match_of_its_rule(site: Site, ann: Any) -> None:
    hits = site.operations.rules.hits(buckets=1)
    assert hits["mail-burst"][0] >= 1  # a window never stops a call
    now = site.operations.clock()
    day: dict[str, Any] = {"since": now - 86_400.0, "until": now, "buckets": 24}
    assert sum(site.operations.rules.noticed("mail-burst", **day)) == hits["mail-burst"][0]
    assert "only the follow-up noticed" in ann.get("/console/rule?name=mail-burst").text
    assert site.operations.rules.noticed("large-refund", **day) == [0] * 24


def test_a_session_shows_the_counters_of_its_runs_of_itself_and_of_windows(site: Site, ann: Any) -> None:
    found = site.operations.sessions.get("campaign-5003").tree[0].below[0]
    assert found.agent == "mailer" and found.counters == {"mail-burst: window 300s send_email": 13}  # 12 are allowed
    assert "window 300s send_email" in ann.get("/console/session?name=campaign-5003").text
    refunds = site.operations.sessions.get("ticket-5007").tree[0].below[0]
    assert refunds.counters["refund-retries: run issue_refund"] == 2


def test_a_task_names_its_session_agent_and_run(site: Site, ann: Any) -> None:
    task = next(one for one in site.operations.incidents.tasks(kind="anomaly_review", status="pending") if one.run)
    page = ann.get("/console/tasks").text
    link = re.search(rf'href="(/console/session\?name={task.session})#(run-[^"]+)" title="{task.run}"', page)
    assert link is not None and f'id="{link[2]}"' in ann.get(link[1]).text


def test_an_incident_leads_to_its_runs_and_calls(site: Site, ann: Any) -> None:
    incident = next(one for one in site.operations.incidents.list() if one.run)
    page = ann.get(f"/console/incidents/{incident.id}").text
    links = set(re.findall(r'href="(/console/session\?name=[^"#]+)#((?:run|call)-[^"]+)"', page))
    assert {anchor.split("-")[0] for _, anchor in links} == {"run", "call"}
    for address, anchor in links:
        assert f'id="{anchor}"' in ann.get(address).text


def test_a_change_that_the_rules_forbid_names_the_rule_its_line_and_what_to_do(site: Site, ann: Any) -> None:
    before = site.operations.versions.active_id()
    answer = submit(ann, "/console/agents", "/console/agents/change", name="refunds", mode="request")
    assert answer.status_code == 422 and site.operations.versions.active_id() == before
    for text in ("`large-refund` pauses, and nobody can be asked", "support.yaml:31", "run the agent in mode `hitl`"):
        assert text in answer.text


def test_the_plot_of_live_shows_what_the_filters_let_through(ann: Any) -> None:
    def total(query: str) -> int:
        label = re.search(r'aria-label="Decisions in the last [^:]+: ([^"]+)"', ann.get(f"/console/live?{query}").text)
        assert label is not None
        return sum(int(one.replace(",", "")) for one in re.findall(r"[\d,]*\d", label[1]))

    assert total("tool=there_is_none") == total("session=none") == 0
    assert 0 < total("tool=issue_refund&action=pause") < total("tool=issue_refund") < total("")


def test_a_form_without_a_token_makes_no_key(site: Site, ann: Any) -> None:
    before = len(site.context.credentials.list())
    fields = {"label": "x", "scope": "admin", "expires": ""}
    assert ann.post("/console/keys/create", data=fields).status_code == 403
    other = token_of(site.client("lea").get("/console/tasks").text)
    before += 1
    assert ann.post("/console/keys/create", data=fields | {"csrf_token": other}).status_code == 403
    assert len(site.context.credentials.list()) == before

"""Whole stories in the browser: what people do on several pages, and what it means for the agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bylaw.guard.model import Attempt
from bylaw.guard.service.client import GuardClient
from bylaw.model.guard_policy import Action
from tests.service.console.site import Site

OpenPage = Callable[..., Any]
LONG = 120.0


def test_a_paused_call_is_edited_approved_run_and_audited(served: Site, open_page: OpenPage) -> None:
    key = served.key("refund bot", "agent", agents=["support", "refunds"])
    agent = GuardClient(served.url, key=key, timeout=LONG)
    agent.start_run("story-1", "r1", agent="support")
    agent.start_run("story-1", "r2", agent="refunds", parent_run="r1")

    def attempt(tool: str) -> Attempt:
        arguments = {"order_id": "A-7", "amount": 7000, "reason": "broken"}
        return Attempt(tool=tool, arguments=arguments, agent="refunds", session="story-1", run="r2")

    agent.record(agent.decide(attempt("confirm_refund_amount")), True)
    page = open_page("ann")
    page.goto("/console/reviews")
    page.locator("html[data-stream=open]").wait_for(state="attached")
    before = page.locator("#list tbody tr").count()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agent.ask, attempt("issue_refund"), timeout=LONG)
        row = page.locator("#list tr", has_text="story-1")
        row.wait_for()  # it appears by itself
        assert page.locator("#list tbody tr").count() == before + 1
        row.locator("a.whole").click()
        assert "a refund over 500 needs a person" in page.locator(".head").inner_text()
        assert "id: large-refund" in page.locator(".source-lines").inner_text()
        page.click("summary[data-key=e]")
        edited = json.loads(page.input_value("#edited")) | {"amount": 700}
        page.fill("#edited", json.dumps(edited))
        page.fill("#note", "seven hundred, not thousand")
        page.click("text=Approve the edited call")
        page.wait_for_url("**done=approved")
        decision = waiting.result(LONG)
    assert decision.action is Action.ALLOW and decision.call is not None
    assert decision.call.arguments == {"order_id": "A-7", "amount": 700, "reason": "broken"}
    agent.record(decision, "done")
    review = page.url.split("/reviews/")[1].split("?")[0]
    page.goto(f"/console/audit?text={review}")
    text = page.locator("main").inner_text()
    assert f"{review} approved by ann" in text and f"{review} spent" in text
    page.goto("/console/session?name=story-1")
    assert "amount=700" in page.locator(".story").inner_text()
    agent.close()


def test_an_incident_from_the_first_alert_to_solved(served: Site, open_page: OpenPage) -> None:
    served.guard.start_run("story-2", "r1", agent="support")
    served.guard.start_run("story-2", "r2", agent="mailer", parent_run="r1")
    for number in range(13):
        mail = {"to": f"customer{number}@example.org"}
        sent = Attempt(tool="send_email", arguments=mail, agent="mailer", session="story-2", run="r2")
        assert served.guard.decide(sent).allowed  # a window never stops a call
    page = open_page("ann")
    page.goto("/console/tasks?kind=anomaly_alert")
    page.locator("html[data-stream=open]").wait_for(state="attached")
    served.follow()
    task = page.locator("#list tr", has_text="story-2")
    task.wait_for()
    task.get_by_role("button", name="Acknowledge").click()
    page.wait_for_url("**done=acknowledged")
    page.goto("/console/incidents?status=acknowledged")
    page.locator("tr", has_text="story-2").locator("a.whole").click()
    assert "more than 12 mails in five minutes" in page.locator(".head").inner_text()
    page.fill("#to", "marek")
    page.fill("#note", "was this announced?")
    page.get_by_role("button", name="Assign", exact=True).click()
    page.wait_for_url("**done=assigned")
    page.fill("#note", "it was")
    page.get_by_role("button", name="Solve").click()
    page.wait_for_url("**done=solved")
    timeline = page.locator("section", has_text="Timeline").last.inner_text()
    for word in ("opened", "acknowledged", "to marek: was this announced?", "solved", "it was"):
        assert word in timeline
    page.goto("/console/incidents?status=solved")
    assert page.locator("tr", has_text="story-2").count() == 1
    page.goto("/console/audit?session=story-2&kind=incident")
    assert "solved" in page.locator("main").inner_text()


def test_a_proposal_from_its_evidence_over_shadow_to_active(served: Site, open_page: OpenPage) -> None:
    for number in range(24):
        with served.guard.session(f"evidence-{number}", agent="support") as session:
            for tool in ("lookup_order", "send_reply"):
                session.record(session.decide(tool, {"order_id": f"A-{number}"}), "done")
    page = open_page("ann")
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/console/proposals")
    page.get_by_role("button", name="Search the record").click()
    page.wait_for_url("**done=mined")
    page.locator("a.whole", has_text="send_reply only after lookup_order").first.click()
    page.locator("text=recorded calls in").wait_for()  # it was tried on the record
    assert "calls of" in page.locator(".stats").inner_text()
    page.get_by_role("button", name="Accept into shadow").click()
    page.wait_for_url("**done=accepted")
    rule = "send_reply-after-lookup_order"

    def reply(session: str) -> Any:
        return served.guard.decide(
            Attempt(tool="send_reply", arguments={"order_id": "A-9"}, agent="support", session=session)
        )

    served.operations.versions.look(now=True)
    shadowed = reply("story-3")
    assert shadowed.allowed and shadowed.would is Action.BLOCK
    page.goto("/console/rules/shadow")
    card = page.locator("section", has_text="story-3").first
    assert "allow → block: 1" in card.inner_text()
    page.goto(f"/console/rule?name={rule}")
    page.get_by_role("button", name="Turn it on").click()
    page.wait_for_url("**done=promoted")
    served.operations.versions.look(now=True)
    stopped = reply("story-4")
    assert stopped.action is Action.BLOCK and stopped.decided_by == rule
    page.goto("/console/rules/versions")
    assert "is on" in page.locator("tbody tr").first.inner_text()

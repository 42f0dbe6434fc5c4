"""Every page in Debian's Chromium: light, dark and on a phone, without errors, accessible, and inert to hostile text.

A page is loaded once: the theme and the width are changed in the open window, since only the style sheet depends on
them. Then come whole stories: what people do on several pages, and what it means for the agent. All share one browser.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bylaw.guard.model import Attempt
from bylaw.guard.service import demo
from bylaw.guard.service.client import GuardClient
from bylaw.model.events import Message, Origin
from bylaw.model.guard_policy import Action
from tests.service.console.site import Site

PAGES = (
    "login", "tasks", "reviews", "incidents", "live", "sessions", "session?name=ticket-5007", "rules", "rules/source",
    "rules/shadow", "rules/versions", "rules/versions/rules-1", "rules/edit", "rule?name=large-refund", "proposals",
    "audit", "agents", "agents/import", "a review", "an incident", "a proposal",
)  # fmt: skip
COLOURFUL = ("login", "tasks", "live", "session?name=ticket-5007", "rules", "agents", "a review", "an incident")
"""pages on which every colour occurs; the proof below looks at all pages"""
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
DARK = "rgb(15, 18, 22)"
WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
OpenPage = Callable[..., Any]
LONG = 120.0
"""seconds that an agent waits"""


def address(site: Site, page: str) -> str:
    operations = site.operations
    if page == "a proposal" and not operations.proposals.list():
        operations.proposals.mine(by="ann", min_support=5)
    match page:
        case "a review":
            page = f"reviews/{operations.reviews.list(status='pending')[0].id}"
        case "an incident":
            page = f"incidents/{operations.incidents.list()[0].id}"
        case "a proposal":
            page = f"proposals/{operations.proposals.list()[0].id}"
    return f"/console/{page}"


@pytest.fixture(scope="module")
def window(browser: Any, served: Site, signed_in: Callable[[str], Any]) -> Iterator[Any]:
    """One window for all pages; `problems` is what they report."""
    context = browser.new_context(storage_state=signed_in("ann"), base_url=served.url)
    page = context.new_page()
    page.problems = []
    page.on("console", lambda one: page.problems.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    context.close()


def serious(page: Any, axe: str | None, only: dict[str, Any]) -> list[Any]:
    """What axe finds that keeps people from using the page."""
    if axe is None:
        return []
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    options = {"runOnly": only, "resultTypes": ["violations"], "iframes": False}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    bad = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in bad]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light_dark_fits_a_phone_and_is_accessible(
    served: Site, window: Any, axe: str | None, name: str
) -> None:
    window.problems.clear()
    window.emulate_media(color_scheme="light")
    window.set_viewport_size(DESKTOP)
    window.goto(address(served, name))
    assert window.locator("h1").count() == 1
    too_wide = "document.documentElement.scrollWidth > window.innerWidth"
    background = "getComputedStyle(document.body).backgroundColor"
    assert not window.evaluate(too_wide) and window.evaluate(background) != DARK
    if name in COLOURFUL:
        assert serious(window, axe, WCAG) == []
    window.emulate_media(color_scheme="dark")
    assert window.evaluate(background) == DARK
    if name in COLOURFUL:
        assert serious(window, axe, CONTRAST) == []
    window.set_viewport_size(PHONE)
    assert not window.evaluate(too_wide)
    assert window.problems == []


@pytest.mark.proof
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(
    served: Site, open_page: OpenPage, axe: str | None, scheme: str, size: dict[str, int]
) -> None:
    page = open_page(viewport=size, color_scheme=scheme, has_touch=size is PHONE)
    for name in PAGES:
        page.goto(address(served, name))
        assert serious(page, axe, WCAG) == [], name


def test_axe_can_be_fetched(axe: str | None) -> None:
    if axe is None:
        pytest.skip("axe-core is not there, and npm could not fetch it: pages were not searched for barriers")
    assert "axe" in axe


def test_the_theme_is_switched_and_remembered(open_page: OpenPage) -> None:
    page = open_page(color_scheme="light")
    page.goto("/console/tasks")
    page.click("[data-do=theme]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == DARK
    page.goto("/console/live")
    assert page.get_attribute("html", "data-theme") == "dark"


def test_hostile_text_does_nothing(served: Site, open_page: OpenPage) -> None:
    """Tool names, arguments, reasons, notes, ids of sessions and runs, names of agents, and texts of a conversation."""
    session = f"s-{EVIL}"
    guard = served.guard
    guard.start_run(session, f"r-{EVIL}", agent="support")
    guard.start_run(session, f"q-{EVIL}", agent="refunds", parent_run=f"r-{EVIL}")
    guard.observe(Message(origin=Origin(session, f"r-{EVIL}", agent="support"), role=EVIL, content=EVIL))

    def attempt(tool: str, **arguments: Any) -> Any:
        about = {"agent": "refunds", "session": session, "run": f"q-{EVIL}"}
        return guard.decide(Attempt(tool=tool, arguments=arguments, **about))

    attempt(f"t-{EVIL}", **{EVIL: EVIL})
    attempt("issue_refund", amount=1, **{EVIL: EVIL})
    guard.record(attempt("confirm_refund_amount", amount=900), {EVIL: EVIL})
    review = attempt("issue_refund", amount=900, **{EVIL: EVIL}).review
    served.follow()
    incident = served.operations.incidents.list(session=session)[0]
    served.operations.incidents.assign(incident.id, EVIL, by=EVIL, note=EVIL)
    guard.kill(f"a-{EVIL}", EVIL)
    page = open_page()
    page.goto("/console/live")
    page.get_by_title(session, exact=True).first.click()
    page.wait_for_url("**/console/session?name=*")
    assert page.locator("h1").inner_text().startswith(session)
    assert page.title() == f"{session} · Bylaw"
    for path in (f"reviews/{review}", f"incidents/{incident.id}", "agents", "tasks", "incidents", "audit"):
        page.goto(f"/console/{path}")
        assert page.title() != "owned" and page.locator("img").count() == 0
    guard.revive(f"a-{EVIL}")


def test_the_console_cannot_be_framed(served: Site, open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/console/login")
    with page.expect_console_message(lambda one: "frame" in one.text.lower()):
        page.set_content(f'<iframe src="{served.url}/console/tasks"></iframe>')
    assert all("/console/tasks" not in frame.url for frame in page.frames)
    page.problems.clear()


def test_keys_move_and_answer(served: Site, open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/console/tasks")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/console/reviews")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/reviews/review-*")
    page.keyboard.press("n")
    page.keyboard.type("ra")  # in a field, keys are text
    assert page.input_value("#note") == "ra"
    page.keyboard.press("Tab")
    page.keyboard.press("e")
    page.locator("#edited").wait_for()
    page.evaluate("document.activeElement.blur()")
    with page.expect_navigation(url="**done=rejected"):
        page.keyboard.press("r")
    assert page.locator("h1 .tag").inner_text() == "rejected"
    page.keyboard.press("?")
    page.locator("dialog#help").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog#help").wait_for(state="hidden")


def test_decisions_appear_as_they_are_made(served: Site, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo goes on while it is served."""
    monkeypatch.setattr(demo, "PACE", 0.1)
    page = open_page()
    page.goto("/console/live")
    page.locator("html[data-stream=open]").wait_for(state="attached")
    stop = threading.Event()
    agents = threading.Thread(target=demo.keep_going, args=(served.demo, stop))
    agents.start()
    try:
        page.get_by_title(re.compile(r"^(ticket|invoice|campaign)-60\d\d$")).first.wait_for()
    finally:
        stop.set()
        agents.join()
    assert page.locator("#plot svg").count() == 1


# -- stories ----------------------------------------------------------------------------------------------------------


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

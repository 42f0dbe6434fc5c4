"""Every page in Debian's Chromium: light, dark and on a phone, without errors, accessible, and inert to hostile text.

Starting a browser, opening a window and loading a page are what costs time here. So all tests share one window, a page
is loaded once and its theme and width are changed while it is open, and a story looks at the pages that it visits.
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
from bylaw.model.rule import Action
from tests.service.console.site import Site

ALONE = (
    "login", "sessions", "session?name=ticket-5007", "rules", "rules/source", "rules/versions/rules-1", "rules/edit",
    "agents", "agents/import", "keys",
)  # fmt: skip
IN_STORIES = (
    "notifications", "live", "tasks", "reviews", "a review", "audit", "incidents", "an incident", "proposals",
    "a proposal", "rules/shadow", "rules/versions", "rule?name=large-refund",
)  # fmt: skip
"""pages that a story looks at while it is there"""
SEARCHED = ("login", "session?name=ticket-5007", "agents", "keys")
"""those of `ALONE` that axe searches, with those of `IN_STORIES` that ask for it; the proof below searches all pages"""
COLOURFUL = ("session?name=ticket-5007", "agents")
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
DARK = "rgb(15, 18, 22)"
WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
REPEATED = [["tbody tr:nth-child(n+5)"], [".story > li:nth-child(n+9)"]]
"""rows like those before them"""
TOO_WIDE = "document.documentElement.scrollWidth > window.innerWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
WATCH_NOTIFICATIONS = """
    window.told = [];
    const Real = window.Notification;
    window.Notification = class extends Real {
      constructor(title, options) { super(title, options); window.told.push([title, options.body]); }
    };
"""
PERMISSIONS = ["notifications", "clipboard-read", "clipboard-write"]
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
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
def opened(browser: Any, served: Site, signed_in: Callable[[str], Any]) -> Iterator[Any]:
    """One window of Ann for all tests. She says yes to every question, and has let the console notify her."""
    context = browser.new_context(storage_state=signed_in("ann"), base_url=served.url, permissions=PERMISSIONS)
    context.set_default_timeout(LONG * 1000)
    context.add_init_script(WATCH_NOTIFICATIONS)
    page = context.new_page()
    page.problems, page.is_phone = [], False
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESKTOP)
    page.on("console", lambda one: page.problems.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    yield page
    context.close()


@pytest.fixture
def window(opened: Any) -> Iterator[Any]:
    """Whatever its pages report as an error fails the test."""
    opened.problems.clear()
    yield opened
    assert opened.problems == []


def serious(page: Any, axe: str | None, only: dict[str, Any], *, everything: bool = False) -> list[Any]:
    """What axe finds that keeps people from using the page."""
    if axe is None:
        return []
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    options = {"runOnly": only, "resultTypes": ["violations"], "iframes": False}
    where = {"exclude": [] if everything else REPEATED}
    found = page.evaluate("([where, options]) => axe.run(where, options)", [where, options])["violations"]
    bad = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in bad]


def look(page: Any, axe: str | None = None, *, twice: bool = False) -> None:
    """The open page fits a light desktop and a dark phone, and axe finds nothing; `twice`: in neither of them. The
    window stays as it is then, since each change draws the page anew: so half of the pages are loaded on the phone."""
    assert page.locator("h1").count() == 1
    for last in (False, True):
        if last:
            page.is_phone = not page.is_phone
            page.emulate_media(color_scheme="dark" if page.is_phone else "light")
            page.set_viewport_size(PHONE if page.is_phone else DESKTOP)
        assert not page.evaluate(TOO_WIDE) and (page.evaluate(BACKGROUND) == DARK) is page.is_phone
        if twice or not last:
            assert serious(page, axe, CONTRAST if last else WCAG) == []


def shown(page: Any, path: str) -> str:
    """The text that the window would be sent, without drawing it."""
    answer = page.request.get(path)
    assert answer.ok
    return str(answer.text())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ALONE)
def test_a_page_is_light_dark_fits_a_phone_and_is_accessible(
    served: Site, window: Any, axe: str | None, name: str
) -> None:
    window.goto(address(served, name))
    look(window, axe if name in SEARCHED else None, twice=name in COLOURFUL)


@pytest.mark.proof
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(
    served: Site, window: Any, axe: str | None, scheme: str, size: dict[str, int]
) -> None:
    window.emulate_media(color_scheme=scheme)
    window.set_viewport_size(size)
    for name in (*ALONE, *IN_STORIES):
        window.goto(address(served, name))
        assert serious(window, axe, WCAG, everything=True) == [], name
    window.emulate_media(color_scheme="light")
    window.set_viewport_size(DESKTOP)
    window.is_phone = False


def test_axe_can_be_fetched(axe: str | None) -> None:
    if axe is None:
        pytest.skip("axe-core is not there, and npm could not fetch it: pages were not searched for barriers")
    assert "axe" in axe


def test_the_theme_is_switched_and_remembered(window: Any, axe: str | None) -> None:
    window.goto("/console/notifications")
    look(window, axe)
    window.click("[data-do=theme]")
    assert (window.evaluate(BACKGROUND) == DARK) is not window.is_phone
    chosen = "light" if window.is_phone else "dark"
    assert f'data-theme="{chosen}"' in shown(window, "/console/incidents")
    window.context.clear_cookies(name="bylaw_theme")


def test_hostile_text_does_nothing(served: Site, window: Any) -> None:
    """Tool names, arguments, reasons, notes, ids of sessions and runs, names of agents and keys, and texts of a
    conversation."""
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
    served.operations.incidents.change(incident.id, "assign", to=EVIL, by=EVIL, note=EVIL)
    guard.kill(f"a-{EVIL}", EVIL)
    window.goto("/console/live")
    look(window)
    window.get_by_title(session, exact=True).first.click()
    window.wait_for_url("**/console/session?name=*")
    assert window.locator("h1").inner_text().startswith(session)
    assert window.title() == f"{session} · Bylaw"
    for path in (f"reviews/{review}", f"incidents/{incident.id}", "agents", "tasks", "incidents", "audit", "keys"):
        window.goto(f"/console/{path}")
        assert window.title() != "owned" and window.locator("img").count() == 0
    window.fill("#label", EVIL)
    window.select_option("#scope", "agent")
    window.fill("#agents", EVIL)
    window.get_by_role("button", name="Make the key").click()
    key = window.locator("#new-key").inner_text()
    window.locator("[data-once]").get_by_role("button", name="copy").click()
    window.locator("#status", has_text="Copied.").wait_for()
    assert window.evaluate("navigator.clipboard.readText()") == key
    window.reload()  # shows the key no more, and makes no second one
    assert window.locator("#new-key").count() == 0 and window.locator("tbody b", has_text=EVIL).count() == 1
    assert window.title() != "owned" and window.locator("img").count() == 0
    guard.revive(f"a-{EVIL}")


def test_the_console_cannot_be_framed(served: Site, window: Any) -> None:
    window.goto("/console/login")
    with window.expect_console_message(lambda one: "frame" in one.text.lower()):
        window.set_content(f'<iframe src="{served.url}/console/tasks"></iframe>')
    assert all("/console/tasks" not in frame.url for frame in window.frames)
    window.problems.clear()


def test_reviews_are_found_rejected_and_approved_with_keys_alone(served: Site, window: Any, axe: str | None) -> None:
    window.goto("/console/tasks")
    look(window)
    window.keyboard.press("g")
    window.wait_for_timeout(1300)  # milliseconds: however slowly, the second key belongs to the first
    window.keyboard.press("r")
    window.wait_for_url("**/console/reviews")
    look(window)
    window.keyboard.press("j")
    window.evaluate("document.getElementById('list').dataset.before = 'yes'")
    window.evaluate("document.body.dispatchEvent(new Event('bylaw-review'))")
    window.locator("#list:not([data-before])").wait_for()  # loaded again, and the keys go on where they were
    window.keyboard.press("Enter")
    window.wait_for_url("**/console/reviews/review-*")
    look(window, axe, twice=True)
    window.keyboard.press("n")
    window.keyboard.type("ra")  # in a field, keys are text
    assert window.input_value("#note") == "ra"
    window.keyboard.press("Tab")
    with window.expect_navigation(url="**done=rejected"):
        window.keyboard.press("r")
    assert window.locator("h1 .tag").inner_text() == "rejected"
    for key in ("g", "r"):
        window.keyboard.press(key)
    window.wait_for_url("**/console/reviews")
    window.keyboard.press("j")
    window.keyboard.press("Enter")
    window.wait_for_url("**/console/reviews/review-*")
    with window.expect_navigation(url="**done=approved"):
        window.keyboard.press("a")
    assert window.locator("h1 .tag").inner_text() == "approved"
    window.keyboard.press("?")
    window.get_by_role("button", name="Notify me in this browser").click()
    window.locator("dialog#help #status", has_text="This browser will notify you").wait_for()
    window.keyboard.press("Escape")
    window.locator("dialog#help").wait_for(state="hidden")


def test_decisions_appear_as_they_are_made(served: Site, window: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo goes on while it is served."""
    monkeypatch.setattr(demo, "PACE", 1.0)
    window.goto("/console/live")
    window.locator("html[data-stream=open]").wait_for(state="attached")
    stop = threading.Event()
    agents = threading.Thread(target=demo.keep_going, args=(served.demo, stop))
    agents.start()
    try:
        window.get_by_title(re.compile(r"^(ticket|invoice|campaign)-60\d\d$")).first.wait_for()
    finally:
        stop.set()
        agents.join()
    assert window.locator("#plot svg").count() == 1


# -- stories ----------------------------------------------------------------------------------------------------------


def test_a_paused_call_is_edited_with_keys_approved_run_and_audited(served: Site, window: Any) -> None:
    page = window
    key = served.key("refund bot", "agent", agents=["support", "refunds"])
    agent = GuardClient(served.url, key=key, timeout=LONG)
    agent.start_run("story-1", "r1", agent="support")
    agent.start_run("story-1", "r2", agent="refunds", parent_run="r1")

    def attempt(tool: str) -> Attempt:
        arguments = {"order_id": "A-7", "amount": 7000, "reason": "broken"}
        return Attempt(tool=tool, arguments=arguments, agent="refunds", session="story-1", run="r2")

    agent.record(agent.decide(attempt("confirm_refund_amount")), True)
    page.goto("/console/reviews")
    page.locator("html[data-stream=open]").wait_for(state="attached")
    before = page.locator("#list tbody tr").count()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agent.ask, attempt("issue_refund"), timeout=LONG)
        row = page.locator("#list tr", has_text="story-1")
        row.wait_for()  # it appears by itself
        assert page.locator("#list tbody tr").count() == before + 1
        assert page.evaluate("told") == [["A call waits for you", "issue_refund"]]  # by the browser
        row.locator("a.whole").focus()
        page.keyboard.press("Enter")
        assert "a refund over 500 needs a person" in page.locator(".head").inner_text()
        assert "id: large-refund" in page.locator(".source-lines").inner_text()
        page.keyboard.press("n")
        page.keyboard.type("seven hundred, not thousand")
        page.keyboard.press("Tab")
        page.keyboard.press("e")  # the cursor is in the arguments now
        edited = json.loads(page.input_value("#edited")) | {"amount": 700}
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.insert_text(json.dumps(edited))
        page.keyboard.press("Tab")
        with page.expect_navigation(url="**done=approved"):
            page.keyboard.press("Enter")
        decision = waiting.result(LONG)
    assert decision.action is Action.ALLOW and decision.call is not None
    assert decision.call.arguments == {"order_id": "A-7", "amount": 700, "reason": "broken"}
    agent.record(decision, "done")
    review = page.url.split("/reviews/")[1].split("?")[0]
    page.goto(f"/console/audit?text={review}")
    look(page)
    text = page.locator("main").inner_text()
    assert f"{review} approved by ann" in text and f"{review} spent" in text
    assert "amount=700" in shown(page, "/console/session?name=story-1")
    agent.close()


def test_an_incident_from_the_first_alert_to_solved(served: Site, window: Any, axe: str | None) -> None:
    page = window
    served.guard.start_run("story-2", "r1", agent="support")
    served.guard.start_run("story-2", "r2", agent="mailer", parent_run="r1")
    for number in range(13):
        mail = {"to": f"customer{number}@example.org"}
        sent = Attempt(tool="send_email", arguments=mail, agent="mailer", session="story-2", run="r2")
        assert served.guard.decide(sent).allowed  # a window never stops a call
    page.goto("/console/tasks?kind=anomaly_alert")
    page.locator("html[data-stream=open]").wait_for(state="attached")
    served.follow()
    task = page.locator("#list tr", has_text="story-2")
    task.wait_for()
    assert ["A rule was broken", "mail-burst"] in page.evaluate("told")
    task.get_by_role("button", name="Acknowledge").click()
    page.wait_for_url("**done=acknowledged")
    page.goto("/console/incidents?status=acknowledged")
    look(page)
    page.locator("tr", has_text="story-2").locator("a.whole").click()
    assert "more than 12 mails in five minutes" in page.locator(".head").inner_text()
    look(page, axe)
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
    assert shown(page, "/console/incidents?status=solved").count('title="story-2"') == 1
    assert re.search(r"incident-\w+ .*solved", shown(page, "/console/audit?session=story-2&kind=incident"))


def test_a_proposal_from_its_evidence_over_shadow_to_active(served: Site, window: Any) -> None:
    page = window
    for number in range(24):
        with served.guard.session(f"evidence-{number}", agent="support") as session:
            for tool in ("lookup_order", "send_reply"):
                session.record(session.decide(tool, {"order_id": f"A-{number}"}), "done")
    page.goto("/console/proposals")
    page.get_by_role("button", name="Search the record").click()
    page.wait_for_url("**done=mined")
    look(page)
    page.locator("a.whole", has_text="send_reply only after lookup_order").first.click()
    page.locator("text=recorded calls in").wait_for()  # it was tried on the record
    assert "calls of" in page.locator(".stats").inner_text()
    look(page)
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
    look(page)
    page.goto(f"/console/rule?name={rule}")
    look(page)
    page.get_by_role("button", name="Turn it on").click()
    page.wait_for_url("**done=promoted")
    served.operations.versions.look(now=True)
    stopped = reply("story-4")
    assert stopped.action is Action.BLOCK and stopped.decided_by == rule
    page.goto("/console/rules/versions")
    look(page)
    assert "is on" in page.locator("tbody tr").first.inner_text()

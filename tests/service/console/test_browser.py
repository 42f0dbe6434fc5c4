"""Every page in Debian's Chromium: light, dark and on a phone, without errors, accessible, and inert to hostile text.

A page is loaded once: the theme and the width are changed in the open window, since only the style sheet depends on
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bylaw.guard.model import Attempt
from bylaw.model.events import Message, Origin
from tests.service.console.site import Site

PAGES = (
    "login", "tasks", "reviews", "incidents", "live", "sessions", "session?name=ticket-5007", "rules", "rules/source",
    "rules/shadow", "rules/versions", "rules/versions/rules-1", "rules/edit", "rule?name=large-refund", "proposals",
    "audit", "agents", "agents/import", "a review", "an incident", "a proposal",
)  # fmt: skip
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
DARK = "rgb(15, 18, 22)"
WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
OpenPage = Callable[..., Any]


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
    options = {"runOnly": only, "resultTypes": ["violations"]}
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
    assert serious(window, axe, WCAG) == []
    window.emulate_media(color_scheme="dark")
    assert window.evaluate(background) == DARK
    assert serious(window, axe, CONTRAST) == []
    window.set_viewport_size(PHONE)
    assert not window.evaluate(too_wide)
    assert window.problems == []


@pytest.mark.proof
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_on_a_phone(served: Site, open_page: OpenPage, axe: str | None, scheme: str) -> None:
    page = open_page(viewport=PHONE, color_scheme=scheme, has_touch=True)
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


def test_decisions_appear_as_they_are_made(served: Site, open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/console/live")
    page.locator("html[data-stream=open]").wait_for(state="attached")
    served.guard.decide(Attempt(tool="fresh_tool", agent="crawler", session="fresh"))
    page.locator("a.whole", has_text="fresh_tool").wait_for()
    assert page.locator("#plot svg").count() == 1

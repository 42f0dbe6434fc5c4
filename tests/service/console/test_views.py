"""The console over HTTP, without a browser: what it shows, who may do what, and that text of users stays text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from starlette.routing import Route

from bylaw.guard.commands.serve import serve
from bylaw.guard.model import Attempt
from bylaw.guard.service import demo
from bylaw.guard.service.console import console_routes
from bylaw.guard.service.console.render import environment, path_part
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.events import Message, Origin, Response
from bylaw.rules import load_guard
from tests.service.console.site import Site, submit, token_of

PAGES = (
    "tasks", "tasks?status=completed&kind=anomaly_alert", "reviews", "reviews?status=all", "incidents",
    "incidents?status=solved", "live", "live?action=block&span=900", "sessions", "sessions?status=terminated", "rules",
    "rules/source", "rules/shadow", "rules/versions", "rules/versions/rules-1", "rules/edit", "rule?name=large-refund",
    "proposals", "proposals?status=accepted", "audit", "audit?kind=review&text=refund", "agents", "agents/import",
    "keys", "notifications", "notifications?status=failed",
)  # fmt: skip
EVIL = "<img src=x onerror=alert(1)>'\"--><script>alert(2)</script>"


class Markup(HTMLParser):
    """What a browser would run or be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.risky: list[str] = []
        self.forms: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.risky += [f"{tag} {name}" for name in found if name.startswith(("on", "hx-on", "data-hx-on", "style"))]
        if tag == "script" and not str(found.get("src", "")).startswith("/console/static/"):
            self.risky.append("script")
        for name in ("href", "src", "action", "hx-get", "hx-post"):
            value = str(found.get(name) or "/")
            if not value.startswith(("/", "#")) or value.startswith("//"):
                self.risky.append(f"{name}={value}")
        if tag in ("iframe", "object", "embed", "base", "img"):
            self.risky.append(tag)
        if tag == "form":
            self.forms.append({"method": found.get("method", "get"), "token": False})
        if tag == "input" and found.get("name") == "csrf_token":
            self.forms[-1]["token"] = True


@pytest.fixture(scope="module")
def ann(site: Site) -> Any:
    return site.client("ann")


def test_the_rules_of_the_demo_have_no_errors() -> None:
    folder = Path(demo.__file__).parent
    assert all(load_guard(folder / name).ok for name in demo.RULE_FILES)


def test_the_demo_has_rules_and_a_store_of_its_own() -> None:
    for more in (["--policy", "guard.yaml"], ["--store", "guard.db"]):
        done = CliRunner().invoke(serve, ["--demo", *more])
        assert done.exit_code == 2 and "--demo has rules and a store of its own" in done.output
    assert "Missing option '--policy'" in CliRunner().invoke(serve, []).output


def test_the_demo_has_something_for_every_page(site: Site) -> None:
    operations = site.operations
    assert {one.tool for one in operations.reviews.list(status="pending")} >= {"issue_refund", "send_email"}
    assert {one.status for one in operations.reviews.list()} >= {"pending", "used"}
    assert {one.status for one in operations.incidents.list()} == {"unresolved", "acknowledged", "solved"}
    assert operations.incidents.counts().alerts == 1
    assert {one.status for one in operations.sessions.list()} == {"open", "ended", "terminated"}
    assert [one.in_force for one in operations.rules.versions()] == [True, False, False]
    assert [one.agent for one in operations.agents.switches()] == ["crawler"]
    assert operations.rules.shadow_report(rule="refund-without-reason").rules


def test_the_audit_of_the_demo_holds(site: Site) -> None:
    report = site.operations.audit.verify()
    assert report.findings == [] and report.recomputed == report.decisions > 50


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_shown_with_a_token_in_each_form(ann: Any, page: str) -> None:
    answer = ann.get(f"/console/{page}")
    assert answer.status_code == 200
    markup = Markup(answer.text)
    assert markup.risky == []
    posts = [form for form in markup.forms if form["method"] == "post"]
    assert posts and all(form["token"] for form in posts)


def test_every_page_has_an_empty_state(empty_site: Site) -> None:
    client = empty_site.client("ann")
    for page in (page for page in PAGES if "?" not in page and page != "rules/versions/rules-1"):
        answer = client.get(f"/console/{page}")
        assert answer.status_code == 200, page
        if page in ("tasks", "reviews", "incidents", "live", "sessions", "proposals", "rules/shadow", "notifications"):
            assert 'class="empty"' in answer.text, page


# -- who may --------------------------------------------------------------------------------------------------------


def test_nobody_sees_anything_without_signing_in(site: Site) -> None:
    client = site.client()
    for route in console_routes(site.context):
        if isinstance(route, Route) and route.path not in ("/", "/console", "/console/", "/console/login"):
            path = re.sub(r"\{\w+\}", "x", route.path)
            method = "GET" if "GET" in (route.methods or ()) else "POST"
            answer = client.request(method, path)
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/console/login?next=%2Fconsole"), path
    assert client.get("/console/login").status_code == 200
    assert client.get("/console/badge", headers={"HX-Request": "true"}).status_code == 401


def test_an_agent_has_no_business_in_the_console(site: Site) -> None:
    key = site.key("bot", "agent", agents=["refunds"])
    client = site.client()
    for path in ("tasks", "live", "audit/export", "reviews/x/answer"):
        method = "POST" if path.endswith("answer") else "GET"
        answer = client.request(method, f"/console/{path}", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 403
    assert client.post("/auth/login", data={"key": key}).status_code == 403


ADMIN_ONLY = (
    "rules/activate", "rules/rollback", "rules/versions/rules-1/release", "rule/promote",
    "proposals/mine", "proposals/x/decide", "agents/import", "agents/change", "keys/create", "keys/revoke",
)  # fmt: skip


def test_an_operator_changes_no_rules(site: Site) -> None:
    lea = site.client("lea", "operator")
    before = site.operations.versions.active_id()
    token = token_of(lea.get("/console/tasks").text)
    for path in ADMIN_ONLY:
        fields = {"csrf_token": token, "name-1": "a.yaml", "text-1": "guard: {tools: [x]}", "then": "activate"}
        assert lea.post(f"/console/{path}", data=fields).status_code == 403, path
    assert site.operations.versions.active_id() == before
    assert lea.get("/console/rules/edit").status_code == lea.get("/console/keys").status_code == 403
    assert "Turn it on" not in lea.get("/console/rule?name=refund-without-reason").text


def test_a_form_of_another_site_changes_nothing(site: Site, ann: Any) -> None:
    token = token_of(ann.get("/console/agents").text)
    kill = {"agent": "mailer", "why": "x"}
    other = token_of(site.client("lea").get("/console/agents").text)
    for fields, headers in (
        (kill, {}),
        (kill | {"csrf_token": "0" * 64}, {}),
        (kill | {"csrf_token": other}, {}),
        (kill | {"csrf_token": token}, {"Sec-Fetch-Site": "cross-site"}),
        (kill | {"csrf_token": token}, {"Origin": "https://evil.example"}),
    ):
        assert ann.post("/console/agents/kill", data=fields, headers=headers).status_code == 403
    for route in console_routes(site.context):  # without a token, no change is made anywhere
        if isinstance(route, Route) and "POST" in (route.methods or ()):
            assert ann.post(re.sub(r"\{\w+\}", "x", route.path)).status_code == 403
    assert [one.agent for one in site.operations.agents.switches()] == ["crawler"]


def test_no_page_can_be_framed_and_none_runs_inline_script(ann: Any) -> None:
    for path in ("tasks", "login", "static/console.js", "nothing"):
        headers = ann.get(f"/console/{path}").headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["frame-ancestors"] == "'none'" and headers["x-frame-options"] == "DENY"
        assert policy["script-src"] == "'self'" and policy["style-src"] == "'self'"
    assert ann.get("/console/tasks").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("after", ["https://evil.example", "//evil.example", "/console/../evil", "javascript:alert(1)"])
def test_signing_in_leads_to_no_other_site(site: Site, after: str) -> None:
    page = site.client().get("/console/login", params={"next": after})
    assert Markup(page.text).risky == []
    answer = site.client().post("/auth/login", data={"key": site.key("ann"), "next": after})
    assert answer.headers["location"].startswith("/console/")


def test_a_wrong_key_is_reported_on_the_login_page(site: Site) -> None:
    client, headers = site.client(), {"Accept": "text/html"}
    for key, status in (("bylaw_x", 401), (site.key("bot", "agent", agents=["a"]), 403)):
        answer = client.post("/auth/login", data={"key": key}, headers=headers)
        assert answer.status_code == status and 'role="alert"' in answer.text and 'id="key"' in answer.text


def test_a_store_that_is_away_is_reported_on_a_page(empty_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = empty_site.client("ann")

    def away(**_: Any) -> Any:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(empty_site.operations.incidents, "tasks", away)
    answer = client.get("/console/tasks", headers={"Accept": "text/html"})
    assert answer.status_code == 503 and "the store is away" in answer.text and Markup(answer.text).risky == []


def test_static_files_stay_in_their_folder(ann: Any) -> None:
    for path in ("../routes.py", "..%2Froutes.py", "%2e%2e/routes.py", "....//routes.py", "/etc/passwd"):
        assert ann.get(f"/console/static/{path}").status_code == 404
    assert "Zero-Clause BSD" in ann.get("/console/static/htmx.LICENSE").text


# -- text of users ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(site: Site) -> str:
    """A session in which everything that an agent can choose is hostile; its id."""
    session = f"evil-{EVIL}"
    guard = site.guard
    guard.start_run(session, f"run-{EVIL}", agent="support")
    guard.start_run(session, f"sub-{EVIL}", agent="refunds", parent_run=f"run-{EVIL}")
    here = Origin(session, f"run-{EVIL}", agent="support")
    guard.observe(Message(origin=here, role=EVIL, content=EVIL))
    guard.observe(Response(origin=here, text=EVIL, content=[]))

    def attempt(tool: str, **arguments: Any) -> Any:
        return guard.decide(
            Attempt(tool=tool, arguments=arguments, agent="refunds", session=session, run=f"sub-{EVIL}")
        )

    attempt(f"tool-{EVIL}", **{EVIL: EVIL})
    attempt("issue_refund", amount=20, **{EVIL: EVIL})  # not confirmed: an incident
    guard.record(attempt("confirm_refund_amount", amount=900), {EVIL: EVIL})
    paused = attempt("issue_refund", amount=900, **{EVIL: [EVIL, {EVIL: EVIL}]})
    assert paused.review is not None
    guard.decide(Attempt(tool="x", agent=f"agent-{EVIL}", session=f"other-{EVIL}"))
    guard.kill(f"agent-{EVIL}", EVIL)
    site.follow()
    for incident in site.operations.incidents.list(session=session):
        site.operations.incidents.change(incident.id, "assign", to=EVIL, by=EVIL, note=EVIL)
    site.operations.rules.activate(
        {
            **site.operations.rules.active().version.files,
            "evil.json": json.dumps([{"id": EVIL, "when": {"tool_name_in": [EVIL]}, "then": "block", "reason": EVIL}]),
        },
        by=EVIL,
        note=EVIL,
    )
    return session


def test_text_of_users_stays_text_on_every_page(site: Site, ann: Any, hostile: str) -> None:
    review = next(one for one in site.operations.reviews.list(status="pending") if one.session == hostile)
    incidents = site.operations.incidents.list(session=hostile)
    assert incidents
    pages = [
        *PAGES,
        f"session?name={path_part(hostile)}",
        f"reviews/{review.id}",
        *(f"incidents/{one.id}" for one in incidents),
        f"rule?name={path_part(EVIL)}",
        f"rules/versions/{site.operations.versions.active_id()}",
        f"live?tool={quote(EVIL)}&agent={quote(EVIL)}&session={quote(EVIL)}",
        f"audit?text={quote(EVIL)}&session={quote(hostile)}",
        f"sessions?agent={quote(EVIL)}",
        f"reviews/{path_part(EVIL)}",
    ]
    shown = 0
    for page in pages:
        answer = ann.get(f"/console/{page}")
        assert answer.status_code in (200, 404), page
        assert Markup(answer.text).risky == [], page
        assert "<script>alert" not in answer.text and "<img" not in answer.text, page
        shown += "&lt;script&gt;alert(2)" in answer.text
    assert shown > 12  # it is shown, and not left out


def test_a_refused_form_shows_its_text_as_text(site: Site, ann: Any) -> None:
    review = site.operations.reviews.list(status="pending")[0].id
    page = f"/console/reviews/{review}"
    answer = submit(ann, page, f"{page}/answer", answer="edit", tool=EVIL, edited=EVIL, note=EVIL)
    assert answer.status_code == 400
    assert Markup(answer.text).risky == [] and "the arguments are not JSON" in answer.text
    assert "&lt;script&gt;" in answer.text  # what was typed is not lost
    answer = submit(ann, "/console/rules/edit", "/console/rules/check", **{"name-1": "a.yaml", "text-1": EVIL})
    assert Markup(answer.text).risky == []


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        ("[1]", "a JSON object"),
        ('{"amount": NaN}', "not JSON"),
        ("[" * 5000, "not JSON"),
        ('{"amount": 1, "amount": 9000}', "the key `amount` twice"),
        ('{"key": "[redacted: api key]"}', "stands for a secret"),
    ],
)
def test_an_edit_that_could_mean_something_else_is_refused(site: Site, ann: Any, edited: str, why: str) -> None:
    review = site.operations.reviews.list(status="pending")[0]
    page = f"/console/reviews/{review.id}"
    answer = submit(ann, page, f"{page}/answer", answer="edit", tool="issue_refund", edited=edited)
    assert answer.status_code == 400 and why in answer.text
    assert site.operations.reviews.get(review.id).status == "pending"


def test_every_template_escapes() -> None:
    found = environment()
    assert found.autoescape is True
    for name in found.list_templates():
        source = found.loader.get_source(found, name)[0]  # type: ignore[union-attr]
        assert not re.search(r"\|\s*safe|autoescape|<script(?![^>]+src=)|hx-on|hx-vals|javascript:|\sstyle=", source), (
            name
        )


# -- changes ----------------------------------------------------------------------------------------------------------


def pause(site: Site, session: str, amount: float = 900.0) -> tuple[Attempt, str]:
    """A refund of this session waits for a person."""
    site.guard.start_run(session, f"{session}-1", agent="support")
    site.guard.start_run(session, f"{session}-2", agent="refunds", parent_run=f"{session}-1")

    def attempt(tool: str) -> Attempt:
        arguments = {"order_id": "A-1", "amount": amount, "reason": "x"}
        return Attempt(tool=tool, arguments=arguments, agent="refunds", session=session, run=f"{session}-2")

    site.guard.record(site.guard.decide(attempt("confirm_refund_amount")), True)
    paused = site.guard.decide(attempt("issue_refund"))
    assert paused.review is not None
    return attempt("issue_refund"), paused.review


def test_two_people_on_one_review_know_of_each_other(site: Site, ann: Any) -> None:
    _, review = pause(site, "claimed")
    lea = site.client("lea", "operator")
    page = f"/console/reviews/{review}"
    assert "You are working on this review" in ann.get(page).text
    assert "<b>ann</b> is working on this review" in lea.get(page).text
    token = {"X-CSRF-Token": token_of(ann.get(page).text)}
    assert "You are working" in ann.post(f"{page}/claim", headers=token).text
    # both answer: the second one is told, and changes nothing
    seen = re.search(r'name="version" value="(\d+)"', lea.get(page).text)
    assert seen is not None
    assert submit(ann, page, f"{page}/answer", answer="reject", version=seen[1]).status_code == 303
    late = submit(lea, "/console/tasks", f"{page}/answer", answer="approve", version=seen[1])
    assert late.status_code == 409 and 'role="alert"' in late.text
    assert site.operations.reviews.get(review).status == "rejected"


def test_an_agent_cannot_approve_by_signing_in_under_its_name(site: Site) -> None:
    _, review = pause(site, "self")
    refunds = site.client("Refunds", "operator")
    answer = submit(refunds, "/console/tasks", f"/console/reviews/{review}/answer", answer="approve")
    assert answer.status_code == 403 and "cannot answer its own review" in answer.text


def test_rules_are_validated_compared_and_activated(site: Site, ann: Any) -> None:
    edit = "/console/rules/edit"
    files = site.operations.rules.active().version.files
    changed = {name: text.replace("value: 500 }", "value: 100 }") for name, text in files.items()}

    def fields(texts: dict[str, str]) -> dict[str, str]:
        numbered = enumerate(texts.items(), 1)
        return {key: value for n, (name, text) in numbered for key, value in ((f"name-{n}", name), (f"text-{n}", text))}

    bad = {name: text.replace("then: pause", "then: paus") for name, text in files.items()}
    answer = submit(ann, edit, "/console/rules/check", **fields(bad))
    assert "These rules cannot be used" in answer.text and "paus" in answer.text
    answer = submit(ann, edit, "/console/rules/check", then="compare", **fields(changed))
    assert "allow → pause" in answer.text
    before = site.operations.versions.active_id()
    answer = submit(ann, edit, "/console/rules/activate", then="activate", **fields(bad))
    assert answer.status_code in (400, 422) and "then: paus" in answer.text  # the text is still there
    stale = submit(ann, edit, "/console/rules/activate", then="activate", expected="rules-1", **fields(changed))
    assert stale.status_code == 409
    answer = submit(
        ann, edit, "/console/rules/activate", then="activate", expected=before, note="100", **fields(changed)
    )
    assert answer.status_code == 303
    version = site.operations.rules.active().version
    assert (version.by, version.note) == ("ann", "100")
    assert "value: 100 }" in ann.get(f"/console/rules/versions/{version.id}").text
    page = "/console/rules/versions"
    shown = ann.get(page).text
    assert f'name="expected" value="{version.id}"' in shown and f"Bring {before} back" in shown
    assert submit(ann, page, "/console/rules/rollback").status_code == 409  # without what was seen
    assert submit(ann, page, "/console/rules/rollback", expected=version.id).status_code == 303
    assert "value: 500 }" in str(site.operations.rules.active().version.files)
    again = submit(ann, page, "/console/rules/rollback", expected=version.id)  # a second click on the same page
    assert again.status_code == 409 and "value: 500 }" in str(site.operations.rules.active().version.files)


def test_agents_are_blocked_cleared_and_changed(site: Site, ann: Any) -> None:
    page = "/console/agents"
    assert submit(ann, page, f"{page}/kill", agent="mailer", why="a storm of mails").status_code == 303
    attempt = Attempt(tool="send_email", agent="mailer", ancestors=("support",), session="blocked")
    assert site.guard.decide(attempt).decided_by == "kill-switch"
    assert "a storm of mails (ann)" in ann.get(page).text
    assert submit(ann, page, f"{page}/revive", agent="mailer").status_code == 303
    assert submit(ann, page, f"{page}/kill", agent="*").status_code == 303
    assert site.guard.decide(Attempt(tool="lookup_order", agent="support", session="all")).decided_by == "kill-switch"
    assert "<b>Every agent</b> is blocked" in ann.get(page).text
    assert submit(ann, page, f"{page}/revive", agent="*").status_code == 303
    refused = submit(ann, page, f"{page}/change", name="refunds", mode="request")
    assert refused.status_code == 422 and 'role="alert"' in refused.text  # it has rules that pause
    assert submit(ann, page, f"{page}/change", name="crawler", rules="off").status_code == 303
    assert not site.operations.agents.get("crawler").rules_on
    assert submit(ann, page, f"{page}/change", name="billing", label="v4").status_code == 303
    assert [one.label for one in site.operations.agents.get("billing").versions if one.live] == ["v4"]


def test_a_manifest_is_tried_before_it_is_imported(site: Site, ann: Any) -> None:
    page = "/console/agents/import"
    assert 'data-text="list_invoices"' in ann.get("/console/agents").text  # to copy
    before = site.operations.versions.active_id()
    manifest = (
        "agents: [{manifestKey: a, executionMode: request}]\nversions:\n- agentManifestKey: a\n  status: deployed\n"
    )
    pausing = manifest + "  rules: [{id: r, when: {tool_name_in: [t]}, then: pause}]\n"
    tried = submit(ann, page, page, manifest=pausing, then="try")
    assert "These rules cannot be used" in tried.text  # nobody can be asked in mode `request`
    blocking = pausing.replace("pause", "block")
    assert "These rules can be used" in submit(ann, page, page, manifest=blocking, then="try").text
    assert site.operations.versions.active_id() == before
    assert submit(ann, page, page, manifest=" ", then="try").status_code == 400


def test_the_audit_is_searched_verified_and_exported(site: Site, ann: Any) -> None:
    assert "no row passes" in ann.get("/console/audit?text=there-is-no-such-text").text.lower()
    assert "The chain is intact" in submit(ann, "/console/audit", "/console/audit/verify").text
    lines = ann.get("/console/audit/export?session=ticket-5007").text.splitlines()
    assert lines and all(json.loads(line)["data"]["session"] == "ticket-5007" for line in lines)


def test_a_session_is_terminated(site: Site, ann: Any) -> None:
    attempt, _ = pause(site, "stop/me ü")
    page = f"/console/session?name={path_part('stop/me ü')}"
    answer = submit(ann, page, "/console/session/terminate", name="stop/me ü", why="enough")
    assert answer.headers["location"] == page + "&done=terminated"
    assert site.guard.decide(attempt).decided_by == "session"
    assert "ann: enough" in ann.get(page).text


def test_a_form_that_is_no_text_is_refused(ann: Any) -> None:
    form = "application/x-www-form-urlencoded"
    headers = {"X-CSRF-Token": token_of(ann.get("/console/agents").text), "Content-Type": form}
    answer = ann.post("/console/agents/kill", content=b"agent=%ff%fe&why=\xff", headers=headers)
    assert answer.status_code == 400

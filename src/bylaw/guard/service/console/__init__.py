"""The operator console: pages for people, served by the process that decides. Everything on them is in the API too.

- here: one visit of a page (who asks, with what, the frame of a page, how changes and refusals are answered), and the
  address of each
- `operators`, `rulebook`, `registry`: the views, by what people do: watch and answer, write rules, look things up
- `render`, `plots`: pure functions from values to text: templates and filters, differences, SVG
- `templates`, `static`: Jinja2 templates; the style sheet, one script, and htmx with its licence

Views are plain functions of a visit. They call the operations that the API calls, with the same checks of scopes, and
never the store. Reading is GET, every change is POST. A change answers with a redirect, so that reloading a page
repeats nothing; one that is refused shows its page again, with the reason. Ids that the guard has made are parts of a
path. Names that others have chosen, of sessions, rules and agents, may contain anything, so they are in the query or
the form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from bylaw.guard.service.auth import Principal
from bylaw.guard.service.console.render import BASE, STATIC, environment, zone_name, zone_of
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import BadRequest, ServiceError
from bylaw.guard.stores.records import Scope

View: TypeAlias = "Callable[[Visit], Response]"

NOTICES = {
    "acknowledged": "Acknowledged.",
    "accepted": "The rule is in shadow now: it is judged and recorded, and stops nothing.",
    "accepted-testing": "The rule is in a testing version. Release that version to bring it into force.",
    "activated": "The new rules are in force.",
    "approved": "Approved. The agent can resume the call.",
    "assigned": "Assigned.",
    "changed": "Changed. A new version of the rules is in force.",
    "key-revoked": "The key was revoked. Every worker refuses it within a second.",
    "dismissed": "Dismissed. It will not be proposed again.",
    "killed": "Every call of the agent is refused until you clear it.",
    "mined": "The record was searched for rules.",
    "noted": "The note was added.",
    "partly": "Your approval was recorded. Somebody else has to approve it too.",
    "promoted": "The rule is on.",
    "resent": "It will be delivered again.",
    "tested": "A test was sent. The list below shows whether it arrives.",
    "rejected": "Rejected. The agent is told so.",
    "revived": "The agent may call tools again.",
    "rolled-back": "The earlier rules are in force again.",
    "solved": "Solved.",
    "stored": "Stored as a testing version.",
    "terminated": "The session was ended. None of its calls may run any more.",
}
"""what a redirect may say: a code in the address, never a text"""


EFFECTS = {
    "preventive": "can stop a call before it runs",
    "detective": "needs what the model or a tool has answered, so it is judged afterwards",
    "closing": "only the end of the session decides it",
    "follow-up": "never stops a call; it opens an incident afterwards",
}
"""what each label of a rule means"""


class Visit:
    """A request to the console, read and checked."""

    def __init__(self, request: Request, context: Context, person: Principal, form: Mapping[str, str]) -> None:
        self.request, self.person, self.form = request, person, form
        self.operations, self.credentials = context.operations, context.credentials
        self.csrf: str = getattr(request.state, "csrf", "")
        self.now = self.operations.clock()
        self.zone = zone_of(request.cookies.get("bylaw_offset"))
        self.problem: str | None = None
        self.diagnostics: list[Any] = []
        """about rules that cannot be used"""

    def id(self) -> str:
        return str(self.request.path_params["id"])

    def name(self) -> str:
        """The name of a session, rule or agent, in the query or the form."""
        return self.form.get("name") or self.request.query_params.get("name", "")

    def asked(self, key: str, default: str = "") -> str:
        return self.request.query_params.get(key, default).strip()

    def choice(self, key: str, allowed: Mapping[str, Any] | tuple[str, ...], default: str) -> str:
        """One of these values; anything else counts as the default."""
        value = self.asked(key, default)
        return value if value in allowed else default

    def number(self, key: str) -> int | None:
        value = self.asked(key)
        return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None

    def text(self, key: str) -> str:
        return self.form.get(key, "").strip()

    @property
    def by(self) -> str:
        return self.person.name

    @property
    def here(self) -> str:
        """The address of this page, without what a redirect has added."""
        query = [(key, value) for key, value in self.request.query_params.multi_items() if key != "done"]
        return self.request.url.path + (f"?{urlencode(query)}" if query else "")

    def need(self, scope: Scope) -> None:
        self.person.require(scope)

    def render(self, template: str, *, current: str = "", code: int = 200, **data: Any) -> Response:
        frame: dict[str, Any] = {
            "csrf": self.csrf,
            "csrf_field": Markup('<input type="hidden" name="csrf_token" value="{}">').format(self.csrf),
            "current": current,
            "events": "/v1/stream",
            "diagnostics": self.diagnostics,
            "effects": EFFECTS,
            "form": _Blank(self.form),
            "here": self.here,
            "keys": self.request.cookies.get("bylaw_keys") != "off",
            "may": {"operator": self.person.may("operator"), "admin": self.person.may("admin")},
            "notice": NOTICES.get(self.asked("done")),
            "now": self.now,
            "open_tasks": self.operations.incidents.counts().tasks,
            "person": self.person,
            "problem": self.problem,
            "theme": theme_of(self.request),
            "zone": self.zone,
            "zone_name": zone_name(self.zone),
        }
        page = environment().get_template(template).render(frame | data)
        return HTMLResponse(page.encode("utf-8", "replace"), status_code=code)  # a name may have half of a character

    def redirect(self, path: str, done: str = "") -> Response:
        """`path` is below the console, so nothing in a request can lead away from it."""
        mark = "&" if "?" in path else "?"
        return RedirectResponse(f"{BASE}/{path}" + (f"{mark}done={done}" if done else ""), status_code=303)


class _Blank(dict[str, str]):
    """The fields of a form that was sent; empty ones for a form that was not."""

    def __missing__(self, key: str) -> str:
        return ""

    def __getattr__(self, key: str) -> str:
        return self[key]


def theme_of(request: Request) -> str:
    chosen = request.cookies.get("bylaw_theme", "")
    return chosen if chosen in ("light", "dark") else ""


def failed(visit: Visit, why: ServiceError, again: View | None) -> Response:
    """The page once more with the reason, or a page that holds only the reason."""
    visit.problem, visit.diagnostics = why.message, list(why.details.get("diagnostics", ()))
    if again is not None:
        try:
            response = again(visit)
            response.status_code = why.status
            return response
        except ServiceError:
            pass
    return visit.render("error.html", code=why.status, title=_TITLES.get(why.status, "That did not work"))


_TITLES = {403: "Not allowed", 404: "Not found", 409: "Not done"}


def answer(view: View, again: View | None, visit: Visit) -> Response:
    try:
        return view(visit)
    except ServiceError as why:
        return failed(visit, why, again)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; the gate has bounded its size and compared its token."""
    if request.method in ("GET", "HEAD"):
        return {}
    try:
        text = (await request.body()).decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=200))
    except ValueError:
        raise BadRequest("the form is not text in UTF-8") from None


def page(context: Context, view: View, again: View | None = None) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for people who may operate the guard; others are asked to sign in. `again`: the view that shows why
    a change was refused."""

    async def endpoint(request: Request) -> Response:
        person = getattr(request.state, "principal", None)
        if person is None:
            return _ask_to_sign_in(request)
        visit = Visit(request, context, person, {})
        if not person.may("operator"):
            return HTMLResponse("The console is for operators and admins.", status_code=403)
        try:
            visit.form = await read_form(request)
        except BadRequest as why:
            return await context.run(failed, visit, why, None)
        return await context.run(answer, view, again, visit)

    return endpoint


def _ask_to_sign_in(request: Request) -> Response:
    login = f"{BASE}/login"
    if request.headers.get("hx-request"):  # a piece of a page that was open when the login ended
        return Response(status_code=401, headers={"HX-Redirect": login})
    after = request.url.path if request.method == "GET" else f"{BASE}/"
    return RedirectResponse(f"{login}?next={quote(after, safe='')}", status_code=303)


# -- the address of each page ------------------------------------------------------------------------------------------


def console_routes(context: Context) -> list[BaseRoute]:
    """All below `/console`."""
    from bylaw.guard.service.console import operators, registry, rulebook  # each imports what is above

    read: dict[str, View] = {
        "tasks": operators.tasks,
        "badge": operators.badge,
        "reviews": operators.reviews,
        "reviews/{id}": operators.review,
        "incidents": operators.incidents,
        "incidents/{id}": operators.incident,
        "live": operators.live,
        "sessions": operators.sessions,
        "session": operators.session,
        "rules": rulebook.rules,
        "rules/source": rulebook.source,
        "rules/shadow": rulebook.shadow,
        "rules/versions": rulebook.versions,
        "rules/versions/{id}": rulebook.version,
        "rules/versions/{id}/compare": rulebook.compare_version,
        "rules/edit": rulebook.edit,
        "rule": rulebook.rule,
        "proposals": rulebook.proposals,
        "proposals/{id}": rulebook.proposal,
        "proposals/{id}/try": rulebook.try_out,
        "audit": registry.audit,
        "audit/export": registry.export,
        "agents": registry.agents,
        "agents/manifest": registry.manifest,
        "agents/import": registry.import_page,
        "notifications": registry.notifications,
        "keys": registry.keys,
    }
    change: dict[str, tuple[View, View | None]] = {
        "alerts/{id}/acknowledge": (operators.acknowledge_alert, operators.tasks),
        "reviews/{id}/claim": (operators.claim, None),
        "reviews/{id}/answer": (operators.answer_review, operators.review),
        "incidents/{id}/change": (operators.change_incident, operators.incident),
        "session/terminate": (operators.terminate, operators.session),
        "rules/check": (rulebook.check, None),
        "rules/activate": (rulebook.activate, rulebook.edit),
        "rules/rollback": (rulebook.rollback, rulebook.versions),
        "rules/versions/{id}/release": (rulebook.release, rulebook.version),
        "rule/promote": (rulebook.promote, rulebook.rule),
        "proposals/mine": (rulebook.mine, rulebook.proposals),
        "proposals/{id}/decide": (rulebook.decide_proposal, rulebook.proposal),
        "audit/verify": (registry.verify, None),
        "agents/kill": (registry.kill, registry.agents),
        "agents/revive": (registry.revive, registry.agents),
        "agents/import": (registry.import_manifest, registry.import_page),
        "agents/change": (registry.change_agent, registry.agents),
        "notifications/test": (registry.test, registry.notifications),
        "notifications/resend": (registry.resend, registry.notifications),
        "keys/create": (registry.create_key, registry.keys),
        "keys/revoke": (registry.revoke_key, registry.keys),
    }

    async def home(request: Request) -> Response:
        return RedirectResponse(f"{BASE}/tasks", status_code=303)

    async def login(request: Request) -> Response:
        return _login_page(request)

    return [
        Route("/", home),
        Route(BASE, home),
        Route(f"{BASE}/", home),
        Route(f"{BASE}/login", login),
        Mount(STATIC, _Static(directory=Path(__file__).parent / "static")),
        *(Route(f"{BASE}/{path}", page(context, view), methods=["GET"]) for path, view in read.items()),
        *(
            Route(f"{BASE}/{path}", page(context, view, again), methods=["POST"])
            for path, (view, again) in change.items()
        ),
        Route(f"{BASE}/{{rest:path}}", page(context, registry.no_page), methods=["GET"]),
    ]


def error_page(request: Request, problem: ServiceError) -> Response:
    """Why somebody could not sign in, or why there is no page. It needs no store, which may be what is missing."""
    if request.url.path.startswith("/auth/"):
        return _login_page(request, problem.message, problem.status)
    data = {"theme": theme_of(request), "problem": problem.message}
    return HTMLResponse(environment().get_template("away.html").render(data), status_code=problem.status)


def _login_page(request: Request, problem: str | None = None, code: int = 200) -> Response:
    """The form is sent to `/auth/login`, which accepts only addresses of the console in `next`."""
    context: Context = request.app.state.context
    data = {
        "next": request.query_params.get("next", f"{BASE}/"),
        "oidc": context.oidc is not None,
        "problem": problem,
        "theme": theme_of(request),
    }
    return HTMLResponse(environment().get_template("login.html").render(data), status_code=code)


class _Static(StaticFiles):
    def file_response(self, *args: object, **named: object) -> Response:
        response = super().file_response(*args, **named)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=300"
        return response

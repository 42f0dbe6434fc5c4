"""The operator console: pages for people, served by the process that decides. Everything on them is in the API too.

- `visit`: one request: who asks, the frame of a page, how changes and refusals are answered
- `desk`, `rulebook`, `registry`: the views, by what people do: watch and answer, write rules, look things up
- `render`, `plots`: pure functions from values to text: templates and filters, differences, SVG
- `templates`, `static`: Jinja2 templates; the style sheet, one script, and htmx with its licence

Reading is GET, every change is POST; a change that is refused shows its page again. Ids that the guard has made are
parts of a path. Names that others have chosen, of sessions, rules and agents, may contain anything, so they are in the
query or the form.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from bylaw.guard.service.console import desk, registry, rulebook
from bylaw.guard.service.console.render import BASE, STATIC, environment
from bylaw.guard.service.console.visit import View, page, theme_of
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import ServiceError

__all__ = ["console_routes", "error_page"]

_READ: dict[str, View] = {
    "tasks": desk.tasks,
    "badge": desk.badge,
    "reviews": desk.reviews,
    "reviews/{id}": desk.review,
    "incidents": desk.incidents,
    "incidents/{id}": desk.incident,
    "live": desk.live,
    "sessions": desk.sessions,
    "session": desk.session,
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
_CHANGE: dict[str, tuple[View, View | None]] = {
    "alerts/{id}/acknowledge": (desk.acknowledge_alert, desk.tasks),
    "reviews/{id}/claim": (desk.claim, None),
    "reviews/{id}/answer": (desk.answer_review, desk.review),
    "incidents/{id}/change": (desk.change_incident, desk.incident),
    "session/terminate": (desk.terminate, desk.session),
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


def console_routes(context: Context) -> list[BaseRoute]:
    """All below `/console`."""

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
        *(Route(f"{BASE}/{path}", page(context, view), methods=["GET"]) for path, view in _READ.items()),
        *(
            Route(f"{BASE}/{path}", page(context, view, again), methods=["POST"])
            for path, (view, again) in _CHANGE.items()
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

"""Other jobs of Bylaw behind the same door. No job imports another, so whoever composes them hands them in."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from bylaw.errors import InputError
from bylaw.guard.service.api.declare import Asked, Endpoint, Given, Group
from bylaw.guard.service.errors import BadRequest, NotFound, Unusable
from bylaw.guard.service.rule_versions import paths_in

ENDPOINTS: list[Endpoint] = []
JOBS = Group(ENDPOINTS, "jobs", "operator", heavy=True, fails=(404, 422))


class CheckBody(Given, frozen=True, kw_only=True):
    """Did this recorded agent keep its rules?"""

    trace: str
    """the text of a trace, in any format that `bylaw check` reads"""
    format: str | None = None
    """default: found out"""
    files: dict[str, str] | None = None
    """rule files, name → text; default: the rules in force"""
    strict: bool = False


class ComplianceBody(Given, frozen=True, kw_only=True):
    """Did the agent keep the rules that its own system prompt states?"""

    system_prompt: str
    trace_events: list[Any]
    tools: list[Any] | None = None
    aliases: dict[str, list[str]] | None = None
    timeout_ms: float = 5000.0


@JOBS.post("/check", "check a recorded trace, as `bylaw check --format json` does")
def check(asked: Asked[CheckBody]) -> dict[str, Any]:
    given = asked.given
    files = given.files if given.files is not None else asked.operations.versions.active().files
    refused = [one for name, text in (given.files or {}).items() for one in paths_in(name, text)]
    if refused:
        raise Unusable("the rules cannot be used", diagnostics=refused)
    return _run(asked, "check", trace=given.trace, files=files, format=given.format, strict=given.strict)


@JOBS.post("/check_compliance", "check a trace against the system prompt, as `bylaw.check_compliance` does")
def check_compliance(asked: Asked[ComplianceBody]) -> dict[str, Any]:
    given = asked.given
    if not 0 < given.timeout_ms <= 30_000:
        raise BadRequest("timeout_ms: expected a number up to 30000")
    return _run(asked, "check_compliance", **asdict(given))


def _run(asked: Asked[Any], name: str, **given: Any) -> dict[str, Any]:
    job = asked.context.jobs.get(name)
    if job is None:
        raise NotFound(f"this service was started without `{name}`")
    try:
        found: dict[str, Any] = job(**given)
        return found
    except InputError as bad:
        raise Unusable("the trace or the rules cannot be used", diagnostics=list(bad.diagnostics)) from None
    except (ValueError, TypeError) as bad:
        raise BadRequest(str(bad)) from None

"""Other jobs of Bylaw behind the same door. No job imports another, so whoever composes them hands them in."""

from __future__ import annotations

from typing import Any

from bylaw.errors import InputError
from bylaw.guard.service.api.declare import Asked, Endpoint, Given
from bylaw.guard.service.errors import BadRequest, NotFound, Unusable
from bylaw.guard.service.rule_versions import paths_in


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


def check(asked: Asked[CheckBody]) -> Any:
    given = asked.body
    files = given.files if given.files is not None else asked.context.operations.versions.active().files
    refused = [one for name, text in (given.files or {}).items() for one in paths_in(name, text)]
    if refused:
        raise Unusable("the rules cannot be used", diagnostics=refused)
    return _run(asked, "check", trace=given.trace, files=files, format=given.format, strict=given.strict)


def check_compliance(asked: Asked[ComplianceBody]) -> Any:
    given = asked.body
    if not 0 < given.timeout_ms <= 30_000:
        raise BadRequest("timeout_ms: expected a number up to 30000")
    return _run(
        asked,
        "check_compliance",
        system_prompt=given.system_prompt,
        trace_events=given.trace_events,
        tools=given.tools,
        aliases=given.aliases,
        timeout_ms=given.timeout_ms,
    )


def _run(asked: Asked[Any], name: str, **given: Any) -> Any:
    job = asked.context.jobs.get(name)
    if job is None:
        raise NotFound(f"this service was started without `{name}`")
    try:
        return job(**given)
    except InputError as bad:
        raise Unusable("the trace or the rules cannot be used", diagnostics=list(bad.diagnostics)) from None
    except (ValueError, TypeError) as bad:
        raise BadRequest(str(bad)) from None


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/check",
        heavy=True,
        scope="operator",
        noun="jobs",
        summary="check a recorded trace, as `bylaw check --format json` does",
        call=check,
        body=CheckBody,
        returns=dict[str, Any],
        fails=(404, 422),
    ),
    Endpoint(
        method="POST",
        path="/check_compliance",
        heavy=True,
        scope="operator",
        noun="jobs",
        summary="check a trace against the system prompt, as `bylaw.check_compliance` does",
        call=check_compliance,
        body=ComplianceBody,
        returns=dict[str, Any],
        fails=(404, 422),
    ),
]

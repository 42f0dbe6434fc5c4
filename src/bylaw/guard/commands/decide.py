"""`bylaw guard decide`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.problems import show_on_stderr

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard

MOST_BYTES = 16 << 20
"""of an attempt; a line of the history may be as long"""


class BadAttempt(click.ClickException):
    """What was given is no attempt."""


@click.command(name="decide")
@click.option("--policy", "-p", "policies", multiple=True, required=True, metavar="FILE", help="Guard rules.")
@click.option("--history", metavar="FILE", help="Earlier attempts and results, one JSON object a line: facts.")
@click.option("--mode", type=click.Choice(["request", "hitl", "sub_agent"]), help="For rules that name none.")
@click.option("--tools", metavar="FILE", help="JSON Schemas of the tools' arguments, by tool name.")
@click.option("--store", metavar="FILE", help="A SQLite file that remembers sessions (default: nothing is kept).")
@click.option("--version", metavar="NAME", help="Of an agent manifest with several versions.")
@click.option("--review", metavar="ID", help="Resume a call that was paused and approved.")
def decide(
    policies: tuple[str, ...],
    history: str | None,
    mode: str | None,
    tools: str | None,
    store: str | None,
    version: str | None,
    review: str | None,
) -> ExitCode:
    """Read one attempt as JSON from standard input and print one Decision as JSON.

    The attempt is {"tool", "arguments", "agent"?, "run"?, "session"?, "ts"?}. Exit 0: allow. 1: block, pause or
    terminate_session. 2: bad input.
    """
    from bylaw.guard.decide.decided import as_json

    try:
        guard = _guard(policies, mode, version, tools, store)
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    if history is not None:
        _replay(guard, Path(history))
    decision = guard.decide(
        _attempt(_json(sys.stdin.read(MOST_BYTES + 1), "standard input"), "standard input"), review=review
    )
    click.echo(json.dumps(as_json(decision), ensure_ascii=False, default=str))
    return ExitCode.OK if decision.allowed else ExitCode.GATE_TRIPPED


def _guard(
    policies: tuple[str, ...], mode: str | None, version: str | None, tools: str | None, store: str | None
) -> Guard:
    from bylaw.guard.decide.modes import with_mode
    from bylaw.guard.decide.policy import CompiledPolicy
    from bylaw.guard.decide.versions import of_version
    from bylaw.guard.guard import Guard
    from bylaw.guard.stores import MemoryStore, SqliteStore
    from bylaw.rules import load_guard

    found = [policy for path in policies for policy in load_guard(path).policies]
    moded = with_mode(of_version(found, version), mode)  # type: ignore[arg-type]
    if not any(CompiledPolicy(policy).gates or policy.switched_off for policy in moded):
        raise BadAttempt(f"{', '.join(policies)}: no rule here decides calls; give rules a `then`")
    kept = MemoryStore() if store is None else SqliteStore(store)
    try:
        return Guard(moded, store=kept, durable=store is not None, tool_schemas=read_schemas(tools))
    except ValueError as problem:
        raise BadAttempt(f"{tools}: {problem}") from None


def _replay(guard: Guard, path: Path) -> None:
    from bylaw.guard.decide.attempts import Refused

    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadAttempt(f"{path}: {problem}") from None
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would also split inside of texts
        if not line.strip():
            continue
        where = f"{path}:{number}"
        value = _json(line, where)
        try:
            if isinstance(value, dict) and "result_of" in value:
                guard.record(
                    str(value["result_of"]),
                    value.get("content"),
                    session=str(value.get("session", "default")),
                    is_error=value.get("is_error"),
                    ts=_time(value.get("ts"), where),
                )
            else:
                guard.take(_attempt(value, where))
        except Refused as why:
            raise BadAttempt(f"{where}: {why}") from None


def _json(text: str, where: str) -> Any:
    if len(text) > MOST_BYTES:
        raise BadAttempt(f"{where}: longer than {MOST_BYTES:,} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BadAttempt(f"{where}: not JSON: {problem}") from None


_KEYS = ("tool", "arguments", "agent", "run", "session", "ts", "parent_run", "ancestors", "call_id")


def _attempt(value: Any, where: str) -> Any:
    from bylaw.guard.decision import Attempt

    if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
        raise BadAttempt(f'{where}: an attempt is an object with "tool" and "arguments"')
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise BadAttempt(f"{where}: unknown key `{unknown[0]}`; an attempt has {', '.join(_KEYS)}")
    for key in ("agent", "run", "session", "parent_run", "call_id"):
        if value.get(key) is not None and not isinstance(value[key], str):
            raise BadAttempt(f"{where}: `{key}` must be text")
    fields = {key: value[key] for key in value if value[key] is not None}
    above = value.get("ancestors") or []
    if not isinstance(above, list) or not all(isinstance(agent, str) for agent in above):
        raise BadAttempt(f"{where}: `ancestors` must be a list of texts")
    fields["ts"], fields["ancestors"] = _time(value.get("ts"), where), tuple(above)
    return Attempt(**fields)


def _time(value: Any, where: str) -> float | None:
    from bylaw.model.events import seconds

    if value is None:
        return None
    at = seconds(value) if isinstance(value, str) else value
    if isinstance(at, bool) or not isinstance(at, int | float) or not abs(at) < float("inf"):
        raise BadAttempt(f"{where}: `ts` must be seconds or an ISO 8601 time")
    return float(at)


def read_schemas(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        value = _json(Path(path).read_text("utf-8"), path)
    except OSError as problem:
        raise BadAttempt(f"{path}: {problem.strerror}") from None
    if not isinstance(value, dict):
        raise BadAttempt(f"{path}: must be an object from tool name to JSON Schema")
    return value

"""`bylaw guard decide`"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import (
    INPUT,
    MODE,
    MOST_BYTES,
    TOOLS,
    VERSION,
    BadInput,
    load_rules,
    make_redaction,
    parse_json,
    read_schemas,
    redaction_options,
)
from bylaw.report.output import print_line

if TYPE_CHECKING:
    from bylaw.guard.decide.guard import BaseGuard
    from bylaw.guard.model import Attempt
    from bylaw.guard.policies import VersionChoice
    from bylaw.model.rule import GuardPolicy
    from bylaw.text.redaction.redactor import Redaction

STDIN = "standard input"
_DEFAULT = "default"
"""the session of attempts that name none, without a store"""


@click.command(name="decide")
@click.option(
    "--policy", "-p", "policies", multiple=True, required=True, metavar="FILE", help="Guard rules; can be repeated."
)
@click.option("--history", metavar="FILE", help="Earlier attempts and results, one JSON object per line.")
@MODE
@TOOLS
@click.option("--store", metavar="FILE", help="SQLite file for the state and the records (default: none).")
@VERSION
@INPUT
@click.option("--review", metavar="ID", help="Resume a call that was paused and approved.")
@redaction_options
def decide(
    policies: tuple[str, ...],
    history: str | None,
    mode: str | None,
    tools: str | None,
    store: str | None,
    version: VersionChoice,
    inputs: dict[str, str],
    review: str | None,
    **redaction: tuple[str, ...],
) -> ExitCode:
    """Decide one tool call: read the attempt as JSON from standard input, print the decision as JSON.

    The attempt is {"tool", "arguments", "agent"?, "run"?, "session"?, "ts"?}; with --store it needs a session. Exit 0:
    allow. 1: block, pause or terminate_session. 2: bad input. 3: allow, but the policy has no rule that decides calls.
    """
    from bylaw.guard.decide.records import decision_json

    removed = make_redaction(store, **redaction)
    guard = _guard(load_rules(policies, version, inputs), ", ".join(policies), mode, tools, store, removed)
    needs_session = store is not None
    if history is not None:
        _read_history(guard, Path(history), needs_session)
    attempt = _attempt(parse_json(sys.stdin.read(MOST_BYTES + 1), STDIN), STDIN, needs_session)
    decision = guard.decide(attempt, review=review)
    click.echo(json.dumps(decision_json(decision), ensure_ascii=False, default=str))
    if not decision.allowed:
        return ExitCode.GATE_TRIPPED
    if guard.policies.decide_nothing:
        print_line(f"{', '.join(policies)}: no rule here decides calls, and there is no allowlist", err=True)
        return ExitCode.NOTHING_CHECKED
    return ExitCode.OK


def _guard(
    policies: Sequence[GuardPolicy],
    files: str,
    mode: str | None,
    tools: str | None,
    store: str | None,
    redaction: Redaction,
) -> BaseGuard:
    from bylaw.guard.decide.guard import BaseGuard
    from bylaw.guard.model import Options
    from bylaw.guard.policies import with_mode
    from bylaw.guard.stores import MemoryStore, SqliteStore

    moded = with_mode(policies, mode)
    if not any(policy.rules or policy.tools is not None or policy.version is not None for policy in moded):
        raise BadInput(f"{files}: no rule here decides calls; give a rule an action, such as `then: block`")
    opened = MemoryStore() if store is None else SqliteStore(store)
    try:
        # one run of the command without a store is one session
        options = Options(default_session=_DEFAULT if store is None else None, redaction=redaction)
        schemas = read_schemas(tools)
        return BaseGuard(moded, store=opened, durable=store is not None, options=options, tool_schemas=schemas)
    except ValueError as problem:
        raise BadInput(f"{tools}: {problem}") from None


def _read_history(guard: BaseGuard, path: Path, needs_session: bool) -> None:
    from bylaw.guard.json_values import RefusedAttempt

    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: {problem}") from None
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would also split inside texts
        if not line.strip():
            continue
        where = f"{path}:{number}"
        value = parse_json(line, where)
        try:
            if isinstance(value, dict) and "result_of" in value:
                _check_session(value, where, needs_session)
                guard.record(
                    str(value["result_of"]),
                    value.get("content"),
                    session=str(value.get("session") or _DEFAULT),
                    is_error=value.get("is_error"),
                    ts=_time(value.get("ts"), where),
                )
            else:
                guard.record_past_call(_attempt(value, where, needs_session))
        except (RefusedAttempt, ValueError) as why:
            raise BadInput(f"{where}: {why}") from None


_KEYS = ("tool", "arguments", "agent", "run", "session", "ts", "parent_run", "ancestors", "call_id")


def _check_session(value: dict[str, Any], where: str, is_needed: bool) -> None:
    if is_needed and not value.get("session"):
        raise BadInput(f"{where}: `session` is missing; with a store, all attempts without it would be one session")


def _attempt(value: Any, where: str, needs_session: bool) -> Attempt:
    from bylaw.guard.model import Attempt

    if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
        raise BadInput(f'{where}: an attempt is an object with "tool" and "arguments"')
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise BadInput(f"{where}: unknown key `{unknown[0]}`; an attempt has {', '.join(_KEYS)}")
    for key in ("agent", "run", "session", "parent_run", "call_id"):
        if value.get(key) is not None and not isinstance(value[key], str):
            raise BadInput(f"{where}: `{key}` must be text")
    _check_session(value, where, needs_session)
    fields = {key: value[key] for key in value if value[key] is not None}
    above = value.get("ancestors") or []
    if not isinstance(above, list) or not all(isinstance(agent, str) for agent in above):
        raise BadInput(f"{where}: `ancestors` must be a list of texts")
    fields["ts"], fields["ancestors"] = _time(value.get("ts"), where), tuple(above)
    return Attempt(**fields)


def _time(value: Any, where: str) -> float | None:
    from bylaw.guard.decide.attempts import is_time
    from bylaw.model.events import seconds

    if value is None:
        return None
    at = seconds(value) if isinstance(value, str) else value
    if at is None or not is_time(at):
        raise BadInput(f"{where}: `ts` must be seconds or an ISO 8601 time")
    return float(at)

"""A recorded call, shown to people: short, and without its secrets."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.engine.evidence import ref
from bylaw.guard.backtest.model import Example
from bylaw.model.events import ToolCall
from bylaw.text.redaction.secrets import redacted


def example_of(
    trace: str, call: ToolCall, *, action: str, rules: tuple[str, ...], why: str, before: str | None = None
) -> Example:
    shown = ref(replace(call, arguments=redacted(call.arguments), raw_arguments=redacted(call.raw_arguments)))
    return Example(
        trace=trace,
        session=call.origin.session,
        turn=call.turn,
        tool=call.name,
        call=shown.excerpt or call.name,
        action=action,
        before=before,
        rules=rules,
        why=redacted(why),
        source=shown.source,
    )

"""The calls that a response's own content tells of."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bylaw.model.events import Origin, ToolCall
from bylaw.model.source import Locator
from bylaw.traces.assembly.arguments import read_arguments
from bylaw.traces.assembly.lane import same_call

_PLAIN_FIELDS = 4
"""type, id, name, input"""


class NamelessCall(ValueError):
    """A call without the name of a tool."""

    def __init__(self, block: dict[str, Any]) -> None:
        super().__init__("this call has no `name`")
        self.block = block


def calls_in(
    uses: list[dict[str, Any]],
    origin: Origin,
    turn: int,
    at: str | float | None,
    source: Locator | None,
    read: list[tuple[Any, str | None]] | None = None,
    places: list[Locator] | None = None,
) -> tuple[tuple[ToolCall, ...], list[str]]:
    """The calls in these blocks, and the ids that two different calls of this response share.

    A block that repeats another in everything is the same call, told twice. Of two calls that share an id the second
    gets one of its own. `read` holds the arguments of each block
    where they are read already, `places` where each block stands if not all at `source`. Raises NamelessCall.
    """
    if not uses:
        return (), []
    group = turn if len(uses) > 1 else None
    calls: dict[str, ToolCall] = {}
    shared: list[str] = []
    for number, block in enumerate(uses):
        name = block.get("name")
        if type(name) is not str:
            raise NamelessCall(block)
        recorded = block.get("id")
        call_id = recorded if type(recorded) is str and recorded else _make_id(recorded, turn, len(calls))
        arguments, raw = block.get("input"), None
        if read is not None:
            arguments, raw = read[number]
        elif type(arguments) is not dict:
            arguments, raw = read_arguments(arguments)
        call = ToolCall(
            origin=origin,
            turn=turn,
            at=at,
            source=source if places is None else places[number],
            name=name,
            namespace=_namespace(block) if len(block) > _PLAIN_FIELDS else None,
            call_id=call_id,
            arguments=arguments,
            raw_arguments=raw,
            group=group,
        )
        if call_id not in calls:
            calls[call_id] = call
        elif not same_call(calls[call_id], call):
            shared.append(call_id)
            own = f"t{turn}.{len(calls)}"
            calls[own] = replace(call, call_id=own)
    return tuple(calls.values()), shared


def _make_id(recorded: Any, turn: int, number: int) -> str:
    return f"t{turn}.{number}" if recorded is None or recorded == "" else str(recorded)


def _namespace(block: dict[str, Any]) -> str | None:
    """The server or toolset a call goes to, under the names Anthropic uses."""
    namespace = block.get("server_name", block.get("toolset_name"))
    return namespace if isinstance(namespace, str) else None

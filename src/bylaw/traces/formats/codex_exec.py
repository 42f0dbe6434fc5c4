"""What `codex exec --json` prints: one event a line, about a thread, its turns, and the items in these.

A turn of Codex is one prompt, and may be several answers of the model. The stream does not say where an answer ends:
here one ends at the first result of its calls, and before a text that follows a call. Times, the model, the prompt and
what the model saw are not printed. Tokens are counted once a turn, as a sum over the whole thread so far.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.model.canonical import json_type
from bylaw.model.events import Event, Locator, Origin, Usage
from bylaw.traces.assembly.content import EVERYTHING, AssistantContent, calls_in, read_arguments, read_content
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.session_buffer import is_same_value, join_unread
from bylaw.traces.assembly.usage import count_of, not_a_count, usage_from_counts
from bylaw.traces.formats.chat_message import item_of
from bylaw.traces.formats.reader import MOST_RECENT, AssemblingReader, OpenedFile, remember
from bylaw.traces.formats.record import (
    MalformedRecord,
    Path,
    Record,
    list_field,
    object_field,
    records_of,
    text_field,
    type_name,
)
from bylaw.traces.records.lines import Block

_BEGINS, _COMPLETED, _FAILED = "turn.started", "turn.completed", "turn.failed"
_REFUSED = frozenset(("failed", "declined"))
_PHASES = frozenset(("item.started", "item.updated", "item.completed"))
_TEXTS = {"agent_message": "text", "plan": "text", "reasoning": "thinking"}
"""items that are text, and the blocks they become"""
_SEARCH, _PLAN = "web_search", "todo_list"
_CALLS = frozenset(("command_execution", "file_change", _SEARCH, _PLAN))
"""items that are calls, named by their type …"""
_NAMED_CALLS = frozenset(("mcp_tool_call", "collab_tool_call"))
"""… and those that name a tool"""
_STARTED_CALLS = (_CALLS | _NAMED_CALLS) - {_SEARCH, _PLAN}
"""calls that are added when they start"""
_NO_ARGUMENTS = frozenset(
    ("id", "type", "tool", "status", "aggregated_output", "exit_code", "result", "error", "agents_states")
)
_NEEDED: dict[str, tuple[str, type]] = {
    **dict.fromkeys(_TEXTS, ("text", str)),
    "command_execution": ("command", str),
    "file_change": ("changes", list),
    _PLAN: ("items", list),
}
"""what an item must have, and of which type: without it, rules would look at nothing"""
_ASKS = "request_user_input"
_UNREAD = "{} of type `{}` is stored, but rules do not look into it"
_MOST_ITEMS = 1 << 16
"""items of a thread whose start is remembered"""
_DISAGREES = "item `{}` ended as another call than the one that it started as"
_DISAGREES_HELP = "the one that it ended as is a call too, and rules about either tool are inconclusive"
_UNPRINTED = (
    "Codex does not print calls that it refused, calls of some of its own tools such as `view_image`, and what agents "
    "that it started did"
)
_SUMS = (
    "the stream does not say where an answer of the model ends: one ends at the first result of its calls; tokens are "
    "recorded for several answers together, with the last of them"
)


def claims(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and claims(value[0])
    if not isinstance(value, dict):
        return False
    if "finalResponse" in value:
        return any(map(_is_item, list_field(value, "items")[:5]))
    kind = text_field(value, "type")
    return (kind == "thread.started" and "thread_id" in value) or (kind in _PHASES and _is_item(value.get("item")))


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and "id" in value and isinstance(value.get("type"), str)


class _PendingAnswer(Struct, eq=False):
    """The answer that is being collected, and what follows it before its tokens are counted."""

    source: Locator
    answer: AssistantContent = field(default_factory=AssistantContent)
    places: list[Locator] = []
    """where each call stands"""
    numbers: dict[str | None, int] = {}  # of its calls, by their ids
    unread: tuple[str, ...] = ()
    usage: Usage | None = None
    ran: dict[str | None, bool] = {}
    """its calls by their ids: whether Codex ran them, or the provider of the model, whose answer goes on after them"""
    has_run: bool = False
    """Codex ran a tool for it, so that what the model says next is another answer"""
    is_over: bool = False
    later: list[Callable[[], None]] = []
    """adds results and annotations"""


class CodexExecReader(AssemblingReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._thread = "1"
        self._is_named = False
        """the events name their thread; turns that the SDK returned may be of several threads"""
        self._current: Conversation | None = None
        self._pending: _PendingAnswer | None = None
        self._items: dict[str, tuple[Record, Path, dict[str, Any]]] = {}
        """items that are not completed"""
        self._versions: dict[str, int] = {}
        """how often a call with this id was made: a plan is made several times, and each run counts from `item_0`"""
        self._sums: dict[str, dict[str, int]] = {}
        """the counts of each thread so far"""
        self._answers = 0
        """of the turn that runs"""
        self._reported: set[str] = set()
        """messages about unknown types: each type is reported once"""
        self._is_running = self._has_sums = False

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems):
            listed = isinstance(record.value, list)
            for index, event in enumerate(record.value) if listed else ((0, record.value),):
                path: Path = (index,) if listed else ()
                try:
                    self._read_event(record, event, path)
                except MalformedRecord as error:
                    record.malformed(error, path)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self.complete = not self._is_running
        self._end_turn()
        if self._current is not None:
            self._current.end()
        return super().finish()

    def notes(self) -> list[str]:
        return [*super().notes(), _UNPRINTED, *([_SUMS] if self._has_sums else ())]

    def _read_event(self, record: Record, event: Any, path: Path) -> None:
        if not isinstance(event, dict):
            raise MalformedRecord(f"an event is an object, not {type_name(event)}")
        kind, source = text_field(event, "type"), record.locator(item_of(path))
        if kind is None and isinstance(event.get("items"), list):
            self._read_turn(record, event, path)
        elif kind is None:
            raise MalformedRecord("an event has no `type`")
        elif kind in _PHASES:
            self._read_item(record, kind, event.get("item"), (*path, "item"))
        elif kind == "thread.started":
            self._begin(text_field(event, "thread_id") or "1")
        elif kind == _BEGINS:
            self._ask(source)
        elif kind == _COMPLETED:
            self._complete_turn(record, event, path)
        elif kind in (_FAILED, "error"):
            self._add_mark(source, kind, event)
            if kind == _FAILED:
                self._end_turn()
        elif kind == _ASKS:
            self._add_call(source, text_field(event, "call_id"), kind, {"questions": event.get("questions")})
        elif kind != "item.plan.delta":  # the whole plan follows
            self._add_unread(record, path, "an event", event)

    # Threads and turns

    def _begin(self, thread: str) -> None:
        """A thread begins, or is resumed by another run of the program."""
        self._end_turn()
        self._is_named = True
        if thread != self._thread:
            if self._current is not None:
                self._current.end()
            self._current, self._thread, self._versions = None, thread, {}

    def _conversation(self) -> Conversation:
        if self._current is None:
            buffer = self._assembler.buffer_for(Origin(self._thread))
            self._current = Conversation(self._assembler, buffer, Settings(), bounded=True)
        return self._current

    def _ask(self, source: Locator) -> None:
        """A prompt, which is not printed, was sent to the model."""
        self._end_turn()
        self._conversation().end()  # the prompt before had no answer, if the turn failed or was interrupted
        self._conversation().set_input(None, source)
        self._is_running = True

    def _complete_turn(self, record: Record, turn: dict[str, Any], path: Path) -> None:
        """A turn is completed by an answer without calls. If nothing follows the calls, it is empty."""
        last = self._answer(record.locator(item_of(path)), is_text=True)
        last.usage = self._count(record, turn.get("usage"), (*path, "usage"))
        self._has_sums = self._has_sums or (self._answers > 1 and last.usage is not None)
        self._end_turn()

    def _end_turn(self) -> None:
        for record, path, item in self._items.values():
            if item["type"] in (*_TEXTS, _SEARCH):  # other calls were added when they were started
                self._add_output(record, path, item)
        self._items.clear()  # the next turn may use their ids for other items
        self._respond()
        self._answers, self._is_running = 0, False

    def _read_turn(self, record: Record, turn: dict[str, Any], path: Path) -> None:
        """A turn as the SDK returns it: the items that were completed."""
        self._ask(record.locator(item_of(path)))
        for index, item in enumerate(turn["items"]):
            where = (*path, "items", index)
            try:
                self._read_item(record, "item.completed", item, where)
            except MalformedRecord as error:
                record.malformed(error, where[:-1])
        self._complete_turn(record, turn, path)

    def _count(self, record: Record, recorded: Any, path: Path) -> Usage | None:
        """The tokens of the turn. The stream has the sum of the thread, unless the program began to count again."""
        if recorded is None:
            return None
        if not isinstance(recorded, dict):
            record.warn("bad-usage", f"`usage` is {json_type(recorded)}, not an object: it is not read", path)
            return None
        sums = {key: count for key, value in recorded.items() if (count := count_of(value)) is not None}
        for key in [key for key, value in recorded.items() if value is not None and key not in sums]:
            record.warn("bad-usage", not_a_count(key, recorded[key]), (*path, key))
        before = self._sums.get(self._thread, {}) if self._is_named else {}
        if any(count < before.get(key, 0) for key, count in sums.items()):
            before = {}
        remember(self._sums, self._thread, sums)
        counts = {key: count - before.get(key, 0) for key, count in sums.items()}
        return usage_from_counts(
            counts,
            input=counts.get("input_tokens"),
            output=counts.get("output_tokens"),
            read=counts.get("cached_input_tokens"),
            written=counts.get("cache_write_input_tokens"),
            reasoning=counts.get("reasoning_output_tokens"),
        )

    # Items

    def _read_item(self, record: Record, phase: str, item: Any, path: Path) -> None:
        for key in ("type", "id"):
            if not isinstance(item, dict) or not isinstance(item.get(key), str):
                raise MalformedRecord(f"an item is an object with a `{key}`", path[-1:] if item is not None else ())
        kind, id, source = item["type"], item["id"], record.locator(item_of(path))
        before = self._items[id][2] if id in self._items else None
        is_over = phase == "item.completed"
        if isinstance(words := item.get("command"), list) and all(isinstance(word, str) for word in words):
            item = {**item, "command": shlex.join(words)}
        needed, wanted = _NEEDED.get(kind, ("id", str))
        if not isinstance(item.get(needed), wanted) and (is_over or kind not in _TEXTS):
            raise MalformedRecord(f"an item of type `{kind}` has no `{needed}`", path[-1:])
        disagrees = before is not None and before["type"] != kind and not {before["type"], kind} <= _TEXTS.keys()
        if before is not None and kind in _STARTED_CALLS and not disagrees:
            item, disagrees = self._complete_call(before, item)
        if kind == "error":
            self._add_mark(source, kind, item)
        elif kind == _PLAN:
            if before is None or before.get("items") != item.get("items"):
                self._add_output(record, path, item)
                self._add_result(source, item)
        elif kind in _TEXTS or kind == _SEARCH:  # they grow until they are completed
            if is_over:
                self._add_output(record, path, item)
        elif before is None or disagrees:
            self._add_output(record, path, item)
        if disagrees and before is not None:
            answer = self._answer(source)
            answer.unread = join_unread(answer.unread, (*_tools_of(before), *_tools_of(item)))
            self._problems.warn_of(source, "disagreeing-call", _DISAGREES.format(id), _DISAGREES_HELP)
        if is_over and (kind in _STARTED_CALLS or kind == _SEARCH):
            self._add_result(source, item)
        if is_over and kind != _PLAN:
            self._items.pop(id, None)
        else:
            remember(self._items, id, (record, path, item), _MOST_ITEMS)

    def _complete_call(self, before: dict[str, Any], item: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The item with what only its start recorded, and whether it is another call than the one that was added."""
        was, now = _call_of(before), _call_of(item)
        whole = {**item, **{key: value for key, value in was.items() if key not in now}}
        if any(key in was and not is_same_value(was[key], value) for key, value in now.items()):
            return item, True
        if now.keys() <= was.keys():
            return whole, False
        id, pending = self._id_of(item["id"]), self._pending
        at = None if pending is None else pending.numbers.get(id)
        if pending is None or at is None:
            return whole, True  # its answer is complete
        arguments, server = _arguments_of(whole)
        pending.answer.arguments[at] = parsed, raw = read_arguments(arguments)
        pending.answer.uses[at].update(input=raw if parsed is None else parsed)
        if server is not None:
            pending.answer.uses[at]["server_name"] = server
        return whole, False

    def _add_output(self, record: Record, path: Path, item: dict[str, Any]) -> None:
        kind, id, source = item["type"], item["id"], record.locator(item_of(path))
        if kind in _TEXTS:
            blocks = self._answer(source, is_text=True).answer.blocks
            assert blocks is not None
            blocks.append({"type": _TEXTS[kind], "text": item.get("text")})
        elif kind in _CALLS or kind in _NAMED_CALLS:
            name = kind if kind in _CALLS else text_field(item, "tool")
            if name is None:
                raise MalformedRecord(f"a `{kind}` has no `tool`", path[-1:])
            arguments, server = _arguments_of(item)
            remember(self._versions, id, self._versions.get(id, 0) + 1, _MOST_ITEMS)
            self._add_call(source, self._id_of(id), name, arguments, is_run=kind != _SEARCH, server=server)
        else:
            self._add_unread(record, path, "an item", item)

    def _id_of(self, id: str) -> str:
        """The id of the latest call that was recorded with this one."""
        version = self._versions.get(id, 1)
        return id if version == 1 else f"{id}.{version}"

    def _add_call(
        self, source: Locator, id: str | None, name: str, arguments: Any, *, is_run: bool = True, server: Any = None
    ) -> None:
        pending = self._answer(source)
        more = {} if server is None else {"server_name": server}
        block = "tool_use" if is_run else "server_tool_use"
        pending.numbers[id] = len(pending.answer.uses)
        pending.answer.add_call(id, name, arguments, block, **more)
        pending.places.append(source)
        if id is not None and pending.later:  # it follows a result in the same answer: the provider ran that call
            pending.later.append(lambda: self._conversation().place_calls((id,)))
        pending.ran[id] = is_run
        pending.has_run = pending.has_run or is_run

    def _add_result(self, source: Locator, item: dict[str, Any]) -> None:
        pending, id = self._pending, self._id_of(item["id"])
        is_input = pending is not None and pending.ran.get(id, False)
        if pending is not None and is_input:
            pending.is_over = True
        self._after(partial(self._read_result, source, id, item, is_input=is_input))

    def _read_result(self, source: Locator, id: str, item: dict[str, Any], *, is_input: bool) -> None:
        conversation = self._conversation()
        conversation.add_result(source, None, id, _content(item), is_error=_has_failed(item))
        if is_input:
            conversation.set_input(None, source)

    def _add_mark(self, source: Locator, label: str, data: dict[str, Any]) -> None:
        self._after(partial(self._annotate, self._conversation().origin, source, label, data))

    def _add_unread(self, record: Record, path: Path, noun: str, value: dict[str, Any]) -> None:
        """Something of an unknown type may be a call."""
        pending = self._answer(record.locator(item_of(path)))
        assert pending.answer.blocks is not None
        pending.answer.blocks.append({"type": "codex", noun.rpartition(" ")[2]: value})
        pending.unread = EVERYTHING
        message = _UNREAD.format(noun, value["type"])
        if message not in self._reported and len(self._reported) < MOST_RECENT:
            self._reported.add(message)
            record.warn("unread-content", message, (*path, "type"))

    # Answers

    def _answer(self, source: Locator, *, is_text: bool = False) -> _PendingAnswer:
        """The answer that an output of the model belongs to."""
        pending = self._pending
        if pending is not None and (pending.is_over or (is_text and pending.has_run)):
            self._respond()
            pending = None
        if pending is None:
            pending = self._pending = _PendingAnswer(source)
            self._answers += 1
        return pending

    def _after(self, add: Callable[[], None]) -> None:
        """Add something after the answer that is being collected."""
        if self._pending is None:
            add()
        else:
            self._pending.later.append(add)

    def _respond(self) -> None:
        """Add the pending answer, and what follows it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        conversation, answer = self._conversation(), pending.answer
        calls, shared = calls_in(
            answer.uses, conversation.origin, conversation.turn, None, pending.source, answer.arguments, pending.places
        )
        content, text, _ = read_content(answer.blocks or None)
        conversation.add_answer(
            pending.source,
            content,
            text,
            tuple(replace(call, group=None) for call in calls),  # nothing says that they were issued together
            unread=pending.unread,
            is_checked=True,
            usage=pending.usage,
            shared=shared,
        )
        for add in pending.later:
            add()


def _arguments_of(item: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments of a call, and its server."""
    if item["type"] == "mcp_tool_call":
        return item.get("arguments"), item.get("server")
    return {key: value for key, value in item.items() if key not in _NO_ARGUMENTS}, None


def _call_of(item: dict[str, Any]) -> dict[str, Any]:
    """What says which call an item is, as far as it is recorded."""
    arguments, server = _arguments_of(item)
    if item["type"] == "mcp_tool_call":
        parsed, raw = read_arguments(arguments)
        arguments = {"arguments": raw if parsed is None else parsed, "server": server}
    return {key: one for key, one in {**arguments, "tool": item.get("tool")}.items() if one not in (None, "", [], {})}


def _tools_of(item: dict[str, Any]) -> tuple[str, ...]:
    """The tools that an item may be a call of."""
    kind = item["type"]
    name = kind if kind in _CALLS else text_field(item, "tool")
    return () if kind in (*_TEXTS, "error") else EVERYTHING if name is None else (name,)


def _content(item: dict[str, Any]) -> Any:
    """What a call returned, as far as it is printed."""
    if item["type"] == "mcp_tool_call" and item.get("error") is not None:
        return text_field(object_field(item, "error"), "message") or item["error"]
    result = object_field(item, "result")
    returned = result.get("content") or result.get("structured_content", result.get("content"))
    return item.get("aggregated_output", item.get("agents_states", returned))


def _has_failed(item: dict[str, Any]) -> bool | None:
    status, code = text_field(item, "status"), item.get("exit_code")
    if status in _REFUSED or item.get("error") is not None:
        return True
    return code != 0 if type(code) is int else False if status == "completed" else None

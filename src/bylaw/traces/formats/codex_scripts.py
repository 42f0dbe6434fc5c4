"""What a Codex rollout's event log adds to its conversation: how calls ended, and the calls that scripts made.

A script may call tools in ways that no version of Codex records. Its response then says that calls of any tool may be
missing, unless each tool that the script names has a recorded call, or its output says that all its calls are listed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, field

from bylaw.model.events import Locator, ToolCall
from bylaw.traces.assembly.content import EVERYTHING, read_arguments
from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.formats.codex_events import NESTED, PROVIDER_TOOLS, EndedCall, key_of, listed_calls
from bylaw.traces.formats.reader import MOST_RECENT, AssemblingReader, OpenedFile, remember
from bylaw.traces.formats.record import Record, text_field
from bylaw.traces.formats.responses_items import call_id_of
from bylaw.traces.formats.spans.attributes import latency_ms, moment

_SCRIPTS = ("exec", "js_repl")
"""tools that run a script of the model, which may call the other tools"""
_MOST_CALLS = 1 << 16
"""calls that are remembered, so that events about their end are recognized"""
_MOST_OPEN = 256
"""the most open scripts that are followed: each event may belong to any of them, so it is compared with all"""
_USED_TOOL = re.compile(
    r"\btools\s*(?:\??\.\s*([A-Za-z_$][\w$]*)|(?:\?\.\s*)?\[\s*(?:\"([^\"\\]+)\"|'([^'\\]+)')\s*\])"
)
_OTHER_WAY = re.compile(r"\b(?:tools|codex|globalThis|eval|Function|constructor)\b|\\u(?:00[4-7]|\{)")
"""other ways to reach a tool: a script may use one of these words, also inside a string, or an escape for a letter"""
_STATUS = re.compile(r"Script (completed|failed|terminated|running)\b(?: with cell ID (\S+))?")
_HAS_FAILED = {"completed": False, "failed": True}
_UNRECORDED = "calls that a script of `{}` may have made are not recorded"
_UNFOLLOWED = "the calls of this script of `{}` are not read: too many scripts run at once, or it makes too many calls"
_UNKNOWN = "this event reports the end of a call of an unknown kind, so the call is not read"
_INCONCLUSIVE = "rules that a call may decide are inconclusive"
_UNORDERED = "times do not say whether `{}` was called before the result of another call came"
_UNORDERED_HELP = "here the result of `{}`; rules that depend on such an order are inconclusive"


class _Unmatched(Struct):
    """Calls of a script that only one of two records has so far.

    The two records are the event log, and the lists in the outputs of the script.
    """

    calls: dict[str, OrderedDict[bytes | None, deque[str]]] = {}
    """the ids of calls, by tool and signature"""
    count: int = 0

    def add(self, call: EndedCall, call_id: str) -> None:
        self.calls.setdefault(key_of(call.name), OrderedDict()).setdefault(call.signature, deque()).append(call_id)
        self.count += 1

    def take(self, call: EndedCall) -> str | None:
        """Remove a call that may be the same one, and return its id; None if there is none."""
        alike = self.calls.get(key_of(call.name))
        if not alike:
            return None
        signature = call.signature
        if signature not in alike:  # without a signature, a call may be the same as any other of its tool
            signature = next(iter(alike)) if signature is None else None
        if (ids := alike.get(signature)) is None:
            return None
        call_id = ids.popleft()
        self.count -= 1
        if not ids:
            del alike[signature]
        return call_id


class _Script(Struct, eq=False):
    """A script that is run, and what is known of the calls that it makes."""

    source: Locator
    tool: str
    text: str | None
    """None if it is not recorded"""
    has_output: bool = False
    is_running: bool = False
    """its output so far says that it goes on; `wait` gets the rest"""
    is_complete: bool = False
    """its output says that it lists all its calls"""
    call_ids: list[str] = []
    """the call that started it, and those that wait for it"""
    cells: list[str] = []
    """the ids that Codex gave it while it ran on; a `wait` call refers to one of them"""
    found: _Unmatched = field(default_factory=_Unmatched)
    """calls that an event recorded while it ran, and that no output lists so far"""
    listed: _Unmatched = field(default_factory=_Unmatched)
    """listed calls without an event"""
    tools: set[str] = set()
    """the tools of the calls that are known"""
    is_given_up: bool = False
    """calls are no longer looked for, to bound the memory and the time of reading"""

    def is_too_large(self) -> bool:
        """Whether it takes more memory than one script may."""
        return len(self.call_ids) > MOST_RECENT or max(self.found.count, self.listed.count) > _MOST_CALLS

    def accounts_for_calls(self) -> bool:
        """Whether no call can be missing."""
        if self.is_complete:
            return True
        if self.text is None or _OTHER_WAY.search(_USED_TOOL.sub("", self.text)):
            return False
        if not self.tools and "[" in self.text:
            return False  # a computed name may lead to anything
        named = (key_of(next(filter(None, names))) for names in _USED_TOOL.findall(self.text))
        return all(any(name == key or name.endswith(f"__{key}") for key in self.tools) for name in named)


class EventLogReader(AssemblingReader, ABC):
    """Reads the event log: how calls ended, and the calls that scripts made."""

    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._open_calls: dict[str, float | None] = {}
        """calls without an output, and when they were issued"""
        self._calls: dict[str, str] = {}
        """the tool of each call"""
        self._ends: dict[str, tuple[Record, EndedCall]] = {}
        """how open calls ended"""
        self._unfinished: dict[str, None] = {}
        """calls that only the event log has, and which have no result yet"""
        self._unpaired: dict[str, deque[tuple[Record, EndedCall] | None]] = {}
        """by tool of the provider: events that wait for their item, or a None for each item that waits for its event"""
        self._results: deque[tuple[float | None, str]] = deque(maxlen=MOST_RECENT)
        """the times and the tools of the latest results"""
        self._unjudged: list[_Script] = []
        """scripts of which it is not decided yet whether calls may be missing"""
        self._scripts: dict[str, _Script] = {}
        """unjudged scripts, by the calls that started them and those that wait for them"""
        self._running: dict[str, _Script] = {}
        """unjudged scripts that ran on after their first output, by the ids that Codex gave them"""
        self._reported: set[str] = set()

    @abstractmethod
    def _conversation(self) -> Conversation:
        """The conversation that is being read."""

    @abstractmethod
    def _after(self, add: Callable[[], None]) -> None:
        """Add something after the response that is being collected."""

    def _note_call(
        self, record: Record, kind: str, use: dict[str, Any], given: tuple[Any, str | None], when: float | None
    ) -> None:
        """Remember a call that the model issued."""
        name, call_id, (arguments, raw) = use["name"], use.get("id"), given
        if name in PROVIDER_TOOLS:
            self._pair(name, None)
        if not isinstance(call_id, str):
            return
        remember(self._calls, call_id, name, _MOST_CALLS)
        remember(self._open_calls, call_id, when)
        if kind == "custom_tool_call" and name in _SCRIPTS:
            self._add_script(call_id, _Script(record.locator(), name, raw))
        elif name == "wait" and isinstance(arguments, dict) and "cell_id" in arguments:
            resumed = self._running.get(str(arguments["cell_id"]))
            self._add_script(call_id, resumed or _Script(record.locator(), _SCRIPTS[0], None))

    def _add_output_of(
        self, record: Record, call_id: str | None, item: dict[str, Any], content: Any, is_error: bool | None
    ) -> None:
        """Add the result of a call that the model issued, with what the event log says of it."""
        if self._is_notice(item):
            return
        id, at = call_id or "", recorded_at(record)
        when = moment(at)[0]
        if (script := self._scripts.get(id)) is not None:
            self._add_listed(record, id, script, item)
            is_error = _HAS_FAILED.get(_status_of(item)[0] or "")
        _, ended = self._ends.pop(id, (None, None))
        if is_error is None and ended is not None:
            is_error = ended.is_error
        took = latency_ms(self._open_calls.pop(id, None), when)
        self._conversation().add_result(record.locator(), at, call_id, content, is_error=is_error, latency_ms=took)
        self._results.append((when, self._calls.get(id, EVERYTHING[0])))

    def _is_notice(self, output: dict[str, Any]) -> bool:
        """Whether a script sent this output while it still runs."""
        return call_id_of(output) in self._scripts and output.get("name") in _SCRIPTS

    def _forget_results(self) -> None:
        """Forget the results before a new turn: its calls come after them, unless an earlier script still runs."""
        if not self._running:
            self._results.clear()

    # Calls that the event log has

    def _read_end(self, record: Record, ended: EndedCall) -> None:
        """Read the end of a call, which is known from the conversation or recorded only here."""
        call_id = ended.id or ""
        if call_id in self._unfinished:
            if ended.has_result:
                del self._unfinished[call_id]
                self._after(partial(self._add_end, record, call_id, ended))
        elif call_id in self._calls:
            if ended.has_result and call_id in self._open_calls:
                remember(self._ends, call_id, (record, ended))
        elif ended.name in PROVIDER_TOOLS and not call_id.startswith(NESTED):
            self._pair(ended.name, (record, ended))
        else:
            if call_id:
                remember(self._calls, call_id, ended.name, _MOST_CALLS)
                if not ended.has_result:
                    remember(self._unfinished, call_id, None)
            self._after(partial(self._add_ended, record, ended))

    def _pair(self, tool: str, event: tuple[Record, EndedCall] | None) -> None:
        """Pair the item and the event of a call that the provider ran. Either may come first; ids often differ."""
        waiting = self._unpaired.setdefault(tool, deque())
        if waiting and (waiting[0] is None) != (event is None):
            waiting.popleft()
            return
        waiting.append(event)
        if len(waiting) > MOST_RECENT and (oldest := waiting.popleft()) is not None:
            self._after(partial(self._add_ended, *oldest))

    def _settle(self) -> None:
        """Add the events that wait: a task began or ended, so no item follows for them."""
        for waiting in self._unpaired.values():
            for record, ended in filter(None, waiting):
                self._after(partial(self._add_ended, record, ended))
            waiting.clear()
        self._after(self._add_open_ends)

    def _add_open_ends(self) -> None:
        """Add the results in the event log to the calls that have no output."""
        for call_id, (record, ended) in self._ends.items():
            if call_id in self._open_calls:
                self._add_end(record, call_id, ended)
        self._ends.clear()

    def _add_ended(self, record: Record, ended: EndedCall) -> None:
        """Add a call that only the event log has, or the result of one that the output of its script listed."""
        if ended.name == EVERYTHING[0]:
            self._lack_calls(record.locator(), _UNKNOWN)
            return
        for script in self._unjudged:
            script.tools.add(key_of(ended.name))
            if (same := script.listed.take(ended)) is not None:
                self._add_end(record, same, ended)
                return
            script.found.add(ended, "")  # only whether it was found matters, not its id
        end = moment(recorded_at(record))[0]
        start = None if end is None or ended.seconds is None else end - ended.seconds
        call_id = ended.id or f"event {len(self._calls)}"
        self._add_call(record, ended, call_id, start)
        if ended.has_result:
            self._add_end(record, call_id, ended)

    def _add_call(self, record: Record, ended: EndedCall, call_id: str, start: float | None) -> None:
        origin, source = self._conversation().origin, record.locator()
        arguments, raw = read_arguments(ended.arguments)
        loose = {name for end, name in self._results if start is None or end is None or end > start}
        call = ToolCall(
            origin=origin,
            at=recorded_at(record) if start is None else start,
            source=source,
            name=ended.name,
            namespace=ended.server,
            call_id=call_id,
            arguments=arguments,
            raw_arguments=raw,
            unordered=tuple(sorted(loose)),
        )
        remember(self._calls, call_id, ended.name, _MOST_CALLS)
        self._assembler.call(self._assembler.buffer_for(origin), None, call)
        if loose and not self._assembler.has_unordered:  # reported once for the whole file
            self._assembler.has_unordered = True
            help = _UNORDERED_HELP.format(min(loose))
            self._problems.warn_of(source, "unknown-order", _UNORDERED.format(ended.name), help)

    def _add_end(self, record: Record, call_id: str, ended: EndedCall) -> None:
        at, took = recorded_at(record), None if ended.seconds is None else round(ended.seconds * 1000, 3)
        self._conversation().add_result(
            record.locator(), at, call_id, ended.content, is_error=ended.is_error, latency_ms=took
        )
        self._results.append((moment(at)[0], ended.name))

    # Scripts

    def _add_script(self, call_id: str, script: _Script) -> None:
        """Remember a script, by a call that starts it or waits for it."""
        remember(self._scripts, call_id, script, _MOST_CALLS)
        if script.is_given_up:
            return
        if not script.call_ids:
            self._unjudged.append(script)
        script.call_ids.append(call_id)
        if len(self._unjudged) > _MOST_OPEN:
            self._give_up(self._unjudged[0])
        elif script.is_too_large():
            self._give_up(script)

    def _give_up(self, script: _Script) -> None:
        """Look for the calls of a script no longer. Calls may be missing, unless all that it names are known."""
        self._unjudged.remove(script)
        script.is_given_up, script.found, script.listed = True, _Unmatched(), _Unmatched()
        if not script.accounts_for_calls():
            self._after(partial(self._lack_calls, script.source, _UNFOLLOWED.format(script.tool)))

    def _forget(self, script: _Script) -> None:
        self._unjudged.remove(script)
        for names, scripts in ((script.call_ids, self._scripts), (script.cells, self._running)):
            for name in names:
                if scripts.get(name) is script:
                    del scripts[name]

    def _read_script_output(self, item: dict[str, Any]) -> None:
        """Remember whether a script goes on, if this is the output of a script."""
        script = self._scripts.get(call_id_of(item) or "")
        if script is None or self._is_notice(item):
            return
        status, name = _status_of(item)
        script.has_output, script.is_running = True, status == "running"
        script.is_complete = script.is_complete or listed_calls(item)[1]
        if script.is_running and name is not None and self._running.get(name) is not script:
            script.cells.append(name)
            remember(self._running, name, script, _MOST_CALLS)

    def _add_listed(self, record: Record, call_id: str, script: _Script, output: dict[str, Any]) -> None:
        """Add the calls that the output of a script lists and no event recorded."""
        calls = listed_calls(output)[0]
        if script.is_given_up:
            if calls:  # which of them events recorded is not known
                self._lack_calls(script.source, _UNFOLLOWED.format(script.tool))
            return
        for number, listed in enumerate(calls):
            script.tools.add(key_of(listed.name))
            if script.found.take(listed) is None:
                own = f"{call_id}.{number}"
                self._add_call(record, listed, own, None)
                script.listed.add(listed, own)

    def _judge_scripts(self, *, is_over: bool = False) -> None:
        """Report the scripts that ended and may have made calls that are recorded nowhere."""
        for script in list(self._unjudged):
            if script.is_too_large():
                self._give_up(script)
            elif is_over or (script.has_output and not script.is_running):
                self._forget(script)
                if not script.accounts_for_calls():
                    self._lack_calls(script.source, _UNRECORDED.format(script.tool))

    def _lack_calls(self, source: Locator, message: str) -> None:
        """Mark calls of any tool as missing, and warn about it."""
        self._assembler.lack_call(self._assembler.buffer_for(self._conversation().origin), EVERYTHING[0])
        if message not in self._reported:  # once for the whole file
            self._reported.add(message)
            self._problems.warn_of(source, "unread-content", message, _INCONCLUSIVE)


def recorded_at(record: Record) -> str | None:
    return text_field(record.value, "timestamp")


def _status_of(output: dict[str, Any]) -> tuple[str | None, str | None]:
    """How a script ended, or `running` and the id under which it goes on."""
    recorded = output.get("output")
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    text = text_field(first, "text") if isinstance(first, dict) else first
    match = _STATUS.match(text) if isinstance(text, str) else None
    return (match[1], match[2]) if match else (None, None)

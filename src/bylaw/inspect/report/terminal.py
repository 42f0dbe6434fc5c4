"""A timeline for people: the totals, then one entry at a time, so that a trace may have any length.

One turn is rendered as blocks of lines that fit, which `side_by_side` puts into columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import basename

from msgspec import Struct

from bylaw.inspect.model import (
    CallWithResults,
    Entry,
    EventEntry,
    Input,
    InputMessage,
    Part,
    RequestEntry,
    SessionEntry,
    SessionTotals,
    ShownCounts,
    Totals,
    TurnEntry,
)
from bylaw.inspect.report.layout import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    INDENT,
    PLAIN,
    RED,
    UNKNOWN,
    YELLOW,
    Block,
    Line,
    Style,
    argument_lines,
    call_preview,
    fit,
    fold,
    format_cost,
    format_duration,
    format_latency,
    format_number,
    format_tokens,
    indent_lines,
    label_lines,
    lay_out,
    line,
    middle,
    one_line,
    pretty,
    preview,
    share_of_turns,
    text_of,
    truncate,
)
from bylaw.model.events import Annotation, Event, Message, SessionEnd, ToolCall, ToolResult
from bylaw.model.ports import TraceSource
from bylaw.report.text import NARROWEST, count, printable, width

_LINES = {"system": 1, "developer": 1, "user": 3, "assistant": 2}
_ANSWER_LINES = 4
_RESULT_LINES = 2
_ROLES = {"user": GREEN, "assistant": DIM, "system": DIM, "developer": DIM}
_LABELS = {"assistant": "earlier"}
"""an earlier answer inside a request must not look like the answer to it"""
_FIRST, _LAST = 2, 5
"""messages shown at the start and the end of a long input"""


class View(Struct, frozen=True):
    """The width of the output, and whether it is shown in full."""

    width: int
    full: bool = False

    @property
    def room(self) -> int:
        """Columns beside the labels."""
        return max(10, self.width - INDENT)

    def text(self, text: str, lines: int) -> list[str]:
        return list(lay_out(text, self.room)) if self.full else fold(text, self.room, lines)

    def value(self, value: object, lines: int, name: str | None = None) -> list[str]:
        """A result or an annotation, with a name before it."""
        if self.full:
            return [*([fit(name, self.room)] if name else ()), *lay_out(pretty(value), self.room)]
        text, whole = text_of(value, self.room * lines * 2 + 80)
        return fold(f"{name[:80]}: {text}" if name else text, self.room, lines, sized=whole)

    def below(self, depth: int) -> View:
        return View(max(INDENT + 10, self.width - 2 * depth), self.full)


def turn_blocks(entry: TurnEntry, view: View, *, model: bool = False) -> list[Block]:
    """`model`: name the model."""
    view = View(view.width, True).below(entry.depth) if entry.whole else view.below(entry.depth)
    blocks = [Block("head", head(entry, view, model=model))]
    blocks.append(Block("input", list(input_lines(entry.input, view))))
    blocks.append(Block("thoughts", [one for part in entry.thoughts for one in part_lines("", part, view)]))
    blocks.append(Block("text", _text(entry, view)))
    for number, called in enumerate(entry.calls):
        opening, middle = _bracket(entry.calls, number)
        blocks.append(Block(f"call {number}", list(_call_lines(called.call, opening, middle, view))))
        results = [
            shown
            for one in called.results
            for shown in _result_lines(None, one.content, one.is_error, one.latency_ms, view, middle)
        ]
        blocks.append(Block(f"result {number}", results))
    others = _remark(f"… {count(entry.other_calls, 'other call')}" if entry.other_calls else "", view)
    blocks.append(Block("beside", [*others, *(one for event in entry.beside for one in event_lines(event, view))]))
    return [Block(block.key, indent_lines(block.lines, entry.depth)) for block in blocks if block.lines]


def head(entry: TurnEntry, view: View, *, model: bool) -> list[Line]:
    """`turn 3 · agent ───── tokens · latency · cost · stop reason`, on two lines where it does not fit on one."""
    response = entry.response
    named = f"turn {'–' if entry.turn is None else entry.turn}"
    names = (response.origin.agent, entry.model if model else None)
    about = "".join(f" · {fit(one, view.width // 3)}" for one in names if one)
    facts = [format_tokens(response.usage), format_latency(response.latency_ms), format_cost(entry.cost)]
    facts.append(fit(response.stop_reason, 20) if response.stop_reason else "stop –")
    if entry.since is not None:
        facts.append(f"+{format_duration(entry.since)}" if entry.since >= 0 else f"-{format_duration(-entry.since)}")
    meta = " · ".join(facts)
    rule = view.width - width(named + about) - width(meta) - 2
    start = ((named, BOLD), (about, CYAN if response.origin.agent else DIM))
    more = _remark(_details(entry), view) if view.full else []
    if rule >= 1:
        return [line(*start, (f" {'─' * rule} ", DIM), (meta, DIM)), *more]
    while len(facts) > 1 and width(" · ".join(facts)) > view.room:
        facts.pop()
    return [line(*start), line((" " * INDENT, PLAIN), (truncate(" · ".join(facts), view.room), DIM)), *more]


def _details(entry: TurnEntry) -> str:
    """Fields that are shown only in full view."""
    response, usage = entry.response, entry.response.usage
    counts = ("cached_input_tokens", "cache_write_tokens", "reasoning_tokens")
    source = None if response.source is None else basename(str(response.source))
    fields = {"run": response.origin.run, "at": response.at, "source": source}
    fields |= {name.replace("_", " "): getattr(usage, name) for name in counts if usage is not None}
    return printable(" · ".join(f"{name} {value}" for name, value in fields.items() if value is not None))


# -- input -------------------------------------------------------------------------------------------------------------


def input_lines(new: Input, view: View) -> Iterator[Line]:
    if new.dropped:
        yield from _remark(f"… {count(new.dropped, 'message')} of the history are no longer sent", view)
    if view.full and new.repeated:
        yield from _remark(f"… {count(new.repeated, 'message')} shown before", view)
    messages = new.messages
    if view.full or len(messages) <= _FIRST + _LAST + 1:
        yield from (one for message in messages for one in _message(message, view))
        return
    yield from (one for message in messages[:_FIRST] for one in _message(message, view))
    yield from _remark(f"… {count(len(messages) - _FIRST - _LAST, 'message')} (`--full` shows them)", view)
    yield from (one for message in messages[-_LAST:] for one in _message(message, view))


def _message(message: InputMessage, view: View) -> Iterator[Line]:
    label = message.role
    if not message.parts:
        yield from label_lines(fit(label, 9), _ROLES.get(label, PLAIN), ["(empty)"], DIM)
    for part in message.parts:
        yield from part_lines(label, part, view)
        label = ""


def part_lines(role: str, part: Part, view: View) -> list[Line]:
    style = _ROLES.get(role, PLAIN)
    label = fit(_LABELS.get(role, role), 9)
    if part.kind == "text":
        texts = view.text(part.text or "", _LINES.get(role, _RESULT_LINES))
        return label_lines(label, style, texts, DIM if style is DIM else PLAIN)
    if part.kind == "thinking":
        return label_lines(label or "thinking", DIM, view.text(part.text or "", 2), DIM)
    if part.kind == "result":
        return list(_result_lines(part.name, part.value, part.is_error, None, view, ""))
    if part.kind == "call":
        made = f"→ {part.name or '–'}({pretty(part.value) if view.full else preview(part.value, view.room)})"
        return label_lines(label, style, view.text(made, 1) if view.full else [one_line(made, view.room)])
    texts = view.text(part.text, 2) if part.text else view.value(part.value, 1)
    return label_lines(label or fit(part.name or "other", 9), style, texts, DIM)


def _remark(text: str, view: View) -> list[Line]:
    return label_lines("", DIM, [truncate(text, view.room)] if text else [], DIM)


# -- answer, calls and results -----------------------------------------------------------------------------------------


def _text(entry: TurnEntry, view: View) -> list[Line]:
    text = entry.response.text
    if text:
        return label_lines("assistant", CYAN, view.text(text, _ANSWER_LINES))
    if entry.calls or entry.other_calls or entry.thoughts:
        return []
    return label_lines("assistant", CYAN, ["–" if text is None else "(empty)"], DIM)


def _bracket(calls: tuple[CallWithResults, ...], number: int) -> tuple[str, str]:
    """The characters before a call and before its results: a bracket joins parallel calls."""
    group = calls[number].parallel
    if group is None:
        return " ", " "
    before = any(called.parallel == group for called in calls[:number])
    after = any(called.parallel == group for called in calls[number + 1 :])
    return ("├" if before else "╭") if after else "╰", "│" if after else " "


def _call_lines(call: ToolCall, opening: str, middle: str, view: View) -> Iterator[Line]:
    name = fit(call.name, view.room)
    if view.full:
        about = [f"id {fit(call.call_id, 40)}", *([f"of {fit(call.namespace, 40)}"] if call.namespace else [])]
        yield _row(
            opening, "→", YELLOW, ((name, BOLD), (truncate(f"  {' · '.join(about)}", view.room - width(name)), DIM))
        )
        shown = (piece for text in argument_lines(call) for piece in lay_out(text, view.room))
        yield from (_row(middle, "", PLAIN, ((text, PLAIN),)) for text in shown)
        return
    given = call_preview(call.arguments, call.raw_arguments, view.room * 2)
    text = one_line(f"{name}({given})", view.room)
    taken = min(len(name), len(text))
    yield _row(opening, "→", YELLOW, ((text[:taken], BOLD), (text[taken:], PLAIN)))


def _result_lines(
    name: str | None, content: object, is_error: bool | None, took: float | None, view: View, middle: str
) -> Iterator[Line]:
    mark, style = ("✗", RED) if is_error else ("←", DIM)
    texts = view.value(content, _RESULT_LINES, name)
    duration = "" if took is None else f"  {format_latency(took)}"
    for number, text in enumerate(texts):
        end = duration if number == len(texts) - 1 and width(text + duration) <= view.room else ""
        parts = ((text, Style(fg="red") if is_error else PLAIN), (end, DIM))
        yield _row(middle, mark if number == 0 else "", style, parts)


def _row(bracket: str, mark: str, style: Style, parts: Sequence[tuple[str, Style]]) -> Line:
    """`       ╭ →  …`: the bracket and the mark end where labels end."""
    if not mark and not bracket.strip() and not any(text for text, _ in parts):
        return Line("")
    return line((f"{bracket:>7} ", DIM), (f"{mark:1}", style), ("  ", PLAIN), *parts)


# -- entries outside of turns ------------------------------------------------------------------------------------------


def request_lines(entry: RequestEntry, view: View) -> list[Line]:
    view = view.below(entry.depth)
    agent = entry.request.origin.agent
    what = "request without a response"
    about = f" · {fit(agent, max(1, min(view.width // 3, view.width - len(what) - 3)))}" if agent else ""
    style = BOLD if entry.input.messages else DIM
    lines = [line((what, style), (about, CYAN)), *input_lines(entry.input, view)]
    return indent_lines(lines, entry.depth)


def event_lines(event: Event, view: View) -> list[Line]:
    if isinstance(event, ToolResult):
        name = event.name or (event.call.name if event.call else None) or "–"
        name += "" if event.turn is None else f" (turn {event.turn})"
        return list(_result_lines(name, event.content, event.is_error, event.latency_ms, view, ""))
    if isinstance(event, ToolCall):
        return list(_call_lines(event, " ", " ", view))
    if isinstance(event, Message):
        label, style = fit(event.role, 9), CYAN if event.role == "assistant" else _ROLES.get(event.role, PLAIN)
        return label_lines(label, style, view.value(event.content, _LINES.get(event.role, _RESULT_LINES)))
    if isinstance(event, SessionEnd):
        return label_lines("", YELLOW, fold("the recording of this session stopped early", view.room, 2), YELLOW)
    if isinstance(event, Annotation):
        alone = [fit(event.label, view.room)]
        return label_lines("·", DIM, alone if event.data is None else view.value(event.data, 1, event.label), DIM)
    return label_lines("·", DIM, [event.kind], DIM)


# -- the page ----------------------------------------------------------------------------------------------------------


_MOST_NAMED = 8
"""names listed; the others are counted"""


def totals_lines(totals: Totals, shown: ShownCounts | None, source: TraceSource, columns: int) -> Iterator[Line]:
    room = max(10, columns - INDENT)
    sizes = [count(totals.sessions, "session"), count(totals.turns, "turn"), count(totals.calls, "call")]
    sizes += [f"{totals.failed:,} failed"] if totals.failed else []
    parts = [(truncate(" · ".join(sizes), room), PLAIN)]
    parts.append((" · complete", DIM) if source.complete else (" · stopped early", YELLOW))
    yield _labelled_row("holds", parts)
    if shown is not None:
        counted = (shown.sessions, shown.turns, shown.calls)
        sizes = [f"{number:,} of {size}" for number, size in zip(counted, sizes[:3], strict=True)]
        yield from label_lines("shown", DIM, _wrap_parts(sizes, room))
    if totals.agents:
        yield from label_lines("agents", DIM, _wrap_parts(_names(totals.agents), room))
    yield from label_lines("models", DIM, _wrap_parts(_names(totals.models) or [UNKNOWN], room))
    if totals.tools:
        yield from label_lines("tools", DIM, _wrap_parts(_names(totals.tools), room))
    yield from label_lines("spent", DIM, _wrap_parts(_total_cost(totals), room))
    if source.skipped:
        yield _labelled_row("skipped", [(count(source.skipped, "bad record"), YELLOW)])
    if source.problems:
        yield _labelled_row("problems", [(f"{count(len(source.problems), 'warning')}, shown at the end", YELLOW)])


def note_lines(notes: Sequence[str], columns: int) -> Iterator[Line]:
    for note in notes:
        yield from label_lines("note", DIM, fold(note, max(10, columns - INDENT), 3), DIM)


def session_lines(entry: SessionEntry, columns: int) -> list[Line]:
    again = " (continued)" if entry.continued else ""
    name = middle(entry.session, max(10, columns - 14 - len(again)))
    start, spent = f"━━ session {name}{again} ", _session_cost(entry.totals)
    rest = max(0, columns - width(start) - width(spent))
    lines = [Line(""), line((start, BOLD), ("━" * rest, DIM), (spent if rest else "", DIM))]
    if entry.metadata:
        metadata = ", ".join(f"{key}={preview(value, columns)}" for key, value in list(entry.metadata.items())[:50])
        lines += [line((f"   {text}", DIM)) for text in fold(metadata, columns - 3, 1, sized=False)]
    return lines


def _session_cost(totals: SessionTotals | None) -> str:
    """The cost and duration of a session, if they were recorded."""
    if totals is None or (not totals.cost.turns and not totals.lasted):
        return ""
    parts = (
        [f"{format_cost(totals.cost.total)}{share_of_turns(totals.cost, totals.turns)}"] if totals.cost.turns else []
    )
    parts += [f"lasted {format_duration(totals.lasted)}"] if totals.lasted else []
    return f" {count(totals.turns, 'turn')} · {' · '.join(parts)}"


def _labelled_row(label: str, parts: Sequence[tuple[str, Style]]) -> Line:
    (head,) = label_lines(label, DIM, [""])
    rest = line(*parts)
    return Line(head.text + rest.text, head.width + rest.width)


def _wrap_parts(parts: Sequence[str], columns: int) -> list[str]:
    """Lines of parts; a part is broken only where it is longer than a line."""
    lines = [""]
    for part in (fit(part, columns) for part in parts):
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if width(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _names(counted: dict[str, int]) -> list[str]:
    most = sorted(counted.items(), key=lambda item: -item[1])
    shown = [f"{name[:80]} {number:,}" for name, number in most[:_MOST_NAMED]]
    return [*shown, *([f"and {len(most) - _MOST_NAMED:,} more"] if len(most) > _MOST_NAMED else ())]


def _total_cost(totals: Totals) -> list[str]:
    turns, cost, latency = totals.turns, totals.cost, totals.latency_ms
    return [
        _tokens(totals),
        format_cost(cost.sum) + share_of_turns(cost, turns),
        f"latency {UNKNOWN if latency.sum is None else format_latency(latency.sum)}" + share_of_turns(latency, turns),
        f"lasted {UNKNOWN if totals.lasted is None else format_duration(totals.lasted)}",
    ]


def _tokens(totals: Totals) -> str:
    sent, received = totals.input_tokens, totals.output_tokens
    if not sent.turns and not received.turns:
        return f"{format_number(totals.all_tokens.sum)} tokens{share_of_turns(totals.all_tokens, totals.turns)}"
    cached = f" ({totals.cached_tokens.total:,.0f} cached)" if totals.cached_tokens.total else ""
    least = min(sent, received, key=lambda known: known.turns)
    both = f"{format_number(sent.sum)}{cached} → {format_number(received.sum)}"
    return f"{both} tokens{share_of_turns(least, totals.turns)}"


class Page:
    """Renders entries in their order; a model is named only where it changes."""

    def __init__(self, *, width: int, full: bool = False) -> None:
        self._view = View(max(width, NARROWEST), full)
        self._model: str | None = None

    def title(self, name: str, format: str | None) -> str:
        shown = middle(name, self._view.width - 20)
        about = truncate(f"  {format or 'no format'}", self._view.width - width(shown))
        return join_lines([line((shown, BOLD), (about, DIM))])

    def totals_follow(self) -> str:
        """In place of the totals, where a trace is too long to know them yet."""
        return join_lines(label_lines("holds", DIM, ["many events; the totals follow at the end"], DIM))

    def totals(self, totals: Totals, source: TraceSource, shown: ShownCounts | None = None) -> str:
        """`shown`: the part that was selected, if it is not the whole trace."""
        columns = self._view.width
        return join_lines([*totals_lines(totals, shown, source, columns), *note_lines(source.notes, columns)])

    def entry(self, entry: Entry) -> str:
        return join_lines(self._lines(entry))

    def _lines(self, entry: Entry) -> Iterable[Line]:
        if isinstance(entry, SessionEntry):
            return session_lines(entry, self._view.width)
        if isinstance(entry, TurnEntry):
            is_new = entry.model is not None and entry.model != self._model
            self._model = entry.model or self._model
            return [line for block in turn_blocks(entry, self._view, model=is_new) for line in block.lines]
        if isinstance(entry, RequestEntry):
            return request_lines(entry, self._view)
        assert isinstance(entry, EventEntry)
        return indent_lines(event_lines(entry.event, self._view.below(entry.depth)), entry.depth)


def join_lines(lines: Iterable[Line]) -> str:
    return "".join(f"{line.text}\n" for line in lines)

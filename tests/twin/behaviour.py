"""The reference implementation of the rule kinds. It judges whole lists, straight from a rule's kind and parameters.

It is slow and obvious, and shares no code with the fast engine but JSON equality. Tests compare the two on random rules
and traces.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations
from typing import Any

import jsonschema_rs
import re2
from msgspec.structs import replace

from bylaw.engine.temporal.shape import parts_of
from bylaw.model.canonical import json_equal
from bylaw.model.demand import Temporal
from bylaw.model.events import Event, Response, SessionEnd, ToolCall
from bylaw.model.rule import Rule, Scope
from bylaw.model.verdict import Outcome
from bylaw.rules.conditions import plain_conditions
from bylaw.text.prices import cost_of
from bylaw.text.stop_words import STOP_WORDS
from tests.twin import calls
from tests.twin.atoms import repeats_a_key
from tests.twin.comparison import holds_in_turn, lacks_part, values_at
from tests.twin.guard import is_untimed
from tests.twin.guard import matches as guard_matches
from tests.twin.part import Answer, Breaches, Judge, Part, settled
from tests.twin.temporal import judge_temporal

_MEASURED = ("max_turns", "required_stop_reason", "max_total_tokens", "max_cost", "max_latency")
"""kinds that look at neither calls nor text, so that a block which could not be read decides nothing"""


_BY_ITSELF = (
    "no_call", "forbidden_args", "forbidden_text", "required_stop_reason", "must_match_json_schema", "must_be_grounded"
)  # fmt: skip


def reference_check(rules: Iterable[Rule], events: Iterable[Event], *, complete: bool = True) -> dict[str, Answer]:
    """rule id → its outcome over all scopes, and where it is broken."""
    recorded = list(events)
    return {rule.id: _judge_rule(rule, recorded, complete) for rule in rules}


def _judge_rule(rule: Rule, events: list[Event], complete: bool) -> Answer:
    answers = [_judge_part(rule, part) for part in _parts(rule.scope, events, complete)]
    worst = max((outcome for outcome, _ in answers), key=lambda outcome: outcome.badness, default=Outcome.VACUOUS)
    if not rule.scope_given and worst in (Outcome.OK, Outcome.VACUOUS):
        alone = [_judge_part(rule, part)[0] for part in _parts(Scope.SESSION, events, complete)]
        if len(alone) > 1 and {Outcome.VIOLATED, *_undecided(rule)} & {*alone}:
            return Outcome.INCONCLUSIVE, []
    return worst, [turn for _, breaches in answers for turn in breaches]


def _undecided(rule: Rule) -> list[Outcome]:
    """The other outcomes that a session may have. A rule about each call or response by itself cannot be broken by a
    session of a trace that keeps it, even if that session alone does not show whether its `when` was ever met."""
    by_itself = rule.kind in _BY_ITSELF or rule.params.get("per") == "turn"
    return [] if by_itself else [Outcome.INCONCLUSIVE]


def _parts(scope: Scope, events: list[Event], complete: bool) -> list[Part]:
    if scope is Scope.TRACE:
        ends = [event.complete for event in events if isinstance(event, SessionEnd)]
        return [Part(events, complete and all(ends))]
    open_parts: dict[str, list[Event]] = {}
    closed: list[Part] = []
    for event in events:
        open_parts.setdefault(event.origin.session, []).append(event)
        if isinstance(event, SessionEnd):
            closed.append(Part(open_parts.pop(event.origin.session), event.complete))
    return closed + [Part(own, complete) for own in open_parts.values()]


def _judge_part(rule: Rule, part: Part) -> Answer:
    if not part.turns:
        return Outcome.VACUOUS, []
    if any("*" in turn.unread for turn in part.turns) and (rule.when or rule.kind not in _MEASURED):
        read = [replace(event, unread=()) if isinstance(event, Response) else event for event in part.events]
        answer = _judge_part(rule, Part(read, False))
        return answer if answer[0] is Outcome.VIOLATED else (Outcome.INCONCLUSIVE, answer[1])
    if rule.agents:
        return _judge_agent(rule, part)
    when = plain_conditions(rule.when)
    truths = [(turn, holds_in_turn(when, turn)) for turn in part.turns]
    unsure = [turn for turn, truth in truths if truth is None]
    if _begins_at_one_of(unsure, truths, rule):
        return Outcome.INCONCLUSIVE, []
    ways = [[turn for turn, truth in truths if truth or turn in chosen] for chosen in _choices(unsure)]
    answers = [_judge_turns(rule, part, matching) for matching in ways]
    outcomes = {outcome for outcome, _ in answers}
    return answers[0] if len(outcomes) == 1 else (Outcome.INCONCLUSIVE, [])


def _judge_agent(rule: Rule, part: Part) -> Answer:
    """The rule on the events of its agents and of the agents below them. What names nobody could be of anybody."""
    family = set(rule.agents)
    own, nobodys = list[Event](), list[Event]()
    for event in part.events:
        origin = event.origin
        is_below = rule.sub_agents and origin.parent_agent is not None and origin.parent_agent in family
        if origin.agent in rule.agents or is_below:
            own.append(event)
            family |= {origin.agent} - {None}
        elif origin.agent is None:
            nobodys.append(event)
    everybodys = replace(rule, agents=())
    answer = _judge_part(everybodys, Part(own, part.complete))
    if answer[0] is Outcome.VIOLATED or not nobodys:
        return answer
    others = _judge_part(everybodys, Part([*own, *nobodys], part.complete))
    has_turns = any(isinstance(event, Response) for event in own)
    return answer if has_turns and others == answer else (Outcome.INCONCLUSIVE, [])


def _choices(turns: list[Response]) -> list[list[Response]]:
    """Which of these match: none of them first, and every choice where they are few."""
    if len(turns) > 6:
        return [[], *([turn] for turn in turns), turns]
    return [list(chosen) for size in range(len(turns) + 1) for chosen in combinations(turns, size)]


def _begins_at_one_of(unsure: list[Response], truths: list[tuple[Response, bool | None]], rule: Rule) -> bool:
    """A formula that is judged once begins at the first turn that matches; with several that may be it, nobody asks."""
    if not isinstance(rule.demand, Temporal) or all(one.always for one in parts_of(rule.demand.formula)):
        return False
    first = next((i for i, (_, truth) in enumerate(truths) if truth), len(truths))
    return sum(turn in unsure for turn, _ in truths[:first]) > 1


def _judge_turns(rule: Rule, part: Part, matching: list[Response]) -> Answer:
    if not matching:
        return (Outcome.VACUOUS if part.complete else Outcome.INCONCLUSIVE), []
    if isinstance(rule.demand, Temporal):
        outcome, breaches = judge_temporal(rule.demand, part, matching if rule.when else None)
    else:
        outcome, breaches = judge_of(rule.kind)(rule.params, part, matching)
    return (Outcome.VIOLATED, breaches) if breaches else (outcome, [])


def judge_of(kind: str) -> Judge:
    name = f"judge_{kind}"
    judge: Judge = globals().get(name) or getattr(calls, name)
    return judge


# -- one function for each kind: `judge_` and the name of the kind; those about calls are in `calls` ----------------


def judge_max_turns(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    return settled(part), [turn.turn for turn in matching[params["n"] : params["n"] + 1]]


def judge_required_stop_reason(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    recorded = [turn for turn in matching if turn.stop_reason is not None]
    bad = [turn.turn for turn in recorded if turn.stop_reason not in params["allowed"]]
    return settled(part, len(matching) - len(recorded), bool(recorded)), bad


def judge_max_total_tokens(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    totals = [turn.usage.total if turn.usage else None for turn in matching]
    running = [sum(total or 0 for total in totals[: i + 1]) for i in range(len(totals))]
    over = [turn.turn for turn, spent in zip(matching, running, strict=True) if spent > params["n"]]
    blind = sum(turn.usage is None or not turn.usage.is_whole for turn in matching)
    return settled(part, blind), over[:1]


def judge_must_include_text(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    if any(turn.text is not None and _says(turn, params) for turn in matching):
        return Outcome.OK, []
    if not part.complete or any(turn.text is None for turn in matching):
        return Outcome.INCONCLUSIVE, []
    return Outcome.VIOLATED, [None]


def judge_must_include_text_each(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    each = [judge_must_include_text({**params, "text": text}, part, matching) for text in params["texts"]]
    missing = [outcome for outcome, _ in each if outcome is not Outcome.OK]
    if not missing:
        return Outcome.OK, []
    return missing[0], ([None] * len(missing) if missing[0] is Outcome.VIOLATED else [])


def judge_forbidden_text(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    bad = [turn.turn for turn in matching if turn.text is not None and _says(turn, params)]
    return settled(part, sum(turn.text is None for turn in matching)), bad


def judge_must_match_json_schema(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    recorded = [turn for turn in matching if turn.text is not None]
    judged = [turn for turn in recorded if not turn.tool_calls or (turn.text or "").strip()]
    formats = params.get("check_formats", False)
    known = [turn for turn in judged if not repeats_a_key(turn.text or "")]
    fits = [_fits(turn.text or "", params["schema"], formats) for turn in known]
    bad = [turn.turn for turn, fit in zip(known, fits, strict=True) if fit is False]
    unjudged = len(matching) - len(recorded) + len(judged) - len(known) + fits.count(None)
    return settled(part, unjudged, bool(judged)), bad


def judge_must_remain_consistent(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    found = [(turn.turn, value) for turn in matching for value in values_at(params["path"], turn) if value is not None]
    observed = [(turn, value) for turn, value in found if not lacks_part(value)]
    bad = [turn for turn, value in observed if not json_equal(value, observed[0][1])]
    return settled(part, len(found) - len(observed), bool(observed)), list(dict.fromkeys(bad))


def judge_must_followup(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    truths = {i: holds_in_turn(params["trigger"], t) for i, t in enumerate(part.turns) if t in matching}
    triggers = [i for i, truth in truths.items() if truth]
    bad: Breaches = []
    blind = 0
    for i in (i for i, truth in truths.items() if truth is None):
        met = i + 1 < len(part.turns) and _follows(params["must"], _with_calls(part, i + 1))
        blind += not met or not triggers
    for i in triggers:
        if i + 1 == len(part.turns):
            bad += [part.turns[i].turn] if part.complete else []
            continue
        answer = _follows(params["must"], _with_calls(part, i + 1))
        blind += answer is None
        bad += [part.turns[i + 1].turn] if answer is False else []
    return settled(part, blind, bool(triggers)), bad


def judge_must_be_grounded(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    blind, judged, bad = 0, 0, list[int | None]()
    for turn in matching:
        values = values_at(params["retrieval_path"], turn)
        recorded = [value for value in values if not lacks_part(value)]
        unrecorded: list[str | None] = [None] * (len(values) - len(recorded))
        chunks = [*map(_chunk_text, _chunks(recorded)), *unrecorded]
        readable = [chunk for chunk in chunks if chunk]
        if not readable and None not in chunks:
            continue
        if turn.text is None:
            blind += 1
            continue
        said = [word for word in _words(turn.text) if word not in STOP_WORDS]
        if len(said) < max(1, params.get("min_content_words", 2)):
            blind += bool(turn.text.strip())
            continue
        share = sum(word in _words(" ".join(readable)) for word in said) / len(said)
        if readable and share >= params["min_unigram_precision"]:
            judged += 1
        elif None in chunks:
            blind += 1
        else:
            judged += 1
            bad.append(turn.turn)
    return settled(part, blind, judged > 0), bad


def judge_max_cost(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    costs = [cost_of(turn) for turn in matching]
    return _amounts([None if cost is None else f"{cost:.14g}" for cost in costs], params, part, matching)


def judge_max_latency(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    return _amounts([turn.latency_ms for turn in matching], params, part, matching)


def _amounts(found: list[Any], params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    limit = Fraction(str(params["limit"]))
    amounts = [None if amount is None else Fraction(str(amount)) for amount in found]
    known = [(turn.turn, amount) for turn, amount in zip(matching, amounts, strict=True) if amount is not None]
    blind = len(amounts) - len(known)
    if params["per"] == "turn":
        return settled(part, blind, bool(known)), [turn for turn, amount in known if amount > limit]
    over = [turn for i, (turn, _) in enumerate(known) if sum(amount for _, amount in known[: i + 1]) > limit]
    return settled(part, blind), over[:1]


def judge_guard(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    hits = [(call, guard_matches(params["when"], part.calls, i)) for i, call in enumerate(part.calls)]
    unread = [call for call, hit in hits if hit is None and call.arguments is None and call.raw_arguments is None]
    outcome = settled(part, blind=len(unread) + is_untimed(params["when"], part.calls))
    if params["then"] == "allow":
        marked = any(hit is True for _, hit in hits)
        return (Outcome.OK if marked else Outcome.VACUOUS), []
    return outcome, [call.turn for call, hit in hits if hit is not False and call not in unread]


# -- what they are made of --------------------------------------------------------------------------------------------


def _says(turn: Response, params: dict[str, Any]) -> bool:
    """The text blocks joined by newlines, and joined directly."""
    blocks = [block for block in turn.content or [] if isinstance(block, dict) and block.get("type") == "text"]
    return _has(turn.text or "", params) or (len(blocks) > 1 and _has("".join(b["text"] for b in blocks), params))


def _has(text: str, params: dict[str, Any]) -> bool:
    text, wanted = unicodedata.normalize("NFC", text), unicodedata.normalize("NFC", params["text"])
    if params.get("regex"):
        flags = "(?i)" if params.get("ignore_case") else ""
        return re2.search(f"{flags}(?:{wanted})", text) is not None
    if params.get("ignore_case"):
        return wanted.casefold() in text.casefold()
    return wanted in text


def _fits(text: str, schema: Any, formats: bool) -> bool | None:
    """None: nested too deeply for the decoder or the validator."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        value = json.loads(
            text,
            parse_constant=refuse,
            parse_float=lambda digits: max(-1e308, min(1e308, float(digits))),
            parse_int=lambda digits: int(digits[:1000]),
        )
    except ValueError:
        return False
    except RecursionError:
        return None
    try:
        return bool(jsonschema_rs.validator_for(schema, offline=True, validate_formats=formats).is_valid(value))
    except ValueError:
        return None


def _with_calls(part: Part, i: int) -> Response:
    """A response that lists no calls, with those that follow it in its turn: a guard sees calls one by one."""
    turn = part.turns[i]
    if turn.tool_calls:
        return turn
    start = next(k for k, event in enumerate(part.events) if event is turn)
    end = next((k for k, event in enumerate(part.events) if k > start and isinstance(event, Response)), None)
    following = [event for event in part.events[start:end] if isinstance(event, ToolCall)]
    own = [call for call in following if (call.turn, call.origin.session) == (turn.turn, turn.origin.session)]
    return replace(turn, tool_calls=tuple(own))


def _follows(must: dict[str, Any], turn: Response) -> bool | None:
    if must["kind"] == "tool_call":
        return calls.calls_one(must, turn)
    return None if turn.text is None else _says(turn, must)


def _words(text: str) -> set[str]:
    composed = unicodedata.normalize("NFC", text)
    letters = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in composed.lower())
    runs = "".join(letters).split()
    return {run for run in runs if len(run) >= 2}


def _chunks(values: list[Any]) -> list[Any]:
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [item for item in flat if item not in (None, "", [], {}) or item is False or item == 0]


_CHUNK_KEYS = [
    *("text", "content", "page_content", "pageContent", "body", "chunk", "chunk_text", "chunk_content"),
    *("passage", "snippet", "excerpt", "document", "node", "value"),
]


def _chunk_text(chunk: Any, depth: int = 4) -> str | None:
    if isinstance(chunk, str):
        return chunk
    if isinstance(chunk, list) and depth:
        texts = [text for text in (_chunk_text(item, depth - 1) for item in chunk) if text is not None]
        return "\n".join(texts) if texts else None
    if isinstance(chunk, dict) and depth:
        for key in _CHUNK_KEYS:
            text = _chunk_text(chunk.get(key), depth - 1)
            if text is not None:
                return text
    return None

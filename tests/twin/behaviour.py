"""The reference implementation of the rule kinds. It judges whole lists, straight from a rule's kind and parameters.

It is slow and obvious, and shares no code with the fast engine but JSON equality. Tests compare the two on random rules
and traces.
"""

from __future__ import annotations

import fnmatch
import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import jsonschema_rs
import re2

from bylaw.model.demand import Temporal
from bylaw.model.events import Event, Response, SessionEnd, ToolCall
from bylaw.model.rule import Rule, Scope
from bylaw.model.values import json_equal
from bylaw.model.verdict import Outcome
from bylaw.text.stop_words import STOP_WORDS
from tests.twin.guard import is_untimed
from tests.twin.guard import matches as guard_matches
from tests.twin.temporal import judge_temporal

Breaches = list[int | None]
"""the turns at which a rule is broken; None for the end"""
Answer = tuple[Outcome, Breaches]


class Part:
    """One scope: its turns, and the calls of each turn, in order."""

    def __init__(self, events: list[Event], complete: bool) -> None:
        self.turns = [event for event in events if isinstance(event, Response)]
        self.calls = [event for event in events if isinstance(event, ToolCall)]
        self.events = events
        self.complete = complete


Judge = Callable[[dict[str, Any], Part, list[Response]], Answer]
"""a rule's parameters, the scope, and the turns that match `when` → the outcome, and where the rule is broken"""


def reference_check(rules: Iterable[Rule], events: Iterable[Event], *, complete: bool = True) -> dict[str, Answer]:
    """rule id → its outcome over all scopes, and where it is broken."""
    recorded = list(events)
    return {rule.id: _judge_rule(rule, recorded, complete) for rule in rules}


def _judge_rule(rule: Rule, events: list[Event], complete: bool) -> Answer:
    answers = [_judge_part(rule, part) for part in _parts(rule.scope, events, complete)]
    worst = max((outcome for outcome, _ in answers), key=lambda outcome: outcome.badness, default=Outcome.VACUOUS)
    if not rule.scope_given and worst in (Outcome.OK, Outcome.VACUOUS):
        alone = [_judge_part(rule, part)[0] for part in _parts(Scope.SESSION, events, complete)]
        if len(alone) > 1 and Outcome.VIOLATED in alone:
            return Outcome.INCONCLUSIVE, []
    return worst, [turn for _, breaches in answers for turn in breaches]


def _parts(scope: Scope, events: list[Event], complete: bool) -> list[Part]:
    if scope is Scope.TRACE:
        return [Part(events, complete)]
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
    matching = [turn for turn in part.turns if _all_hold(rule.when, turn)]
    if not matching:
        return (Outcome.VACUOUS if part.complete else Outcome.INCONCLUSIVE), []
    if isinstance(rule.demand, Temporal):
        outcome, breaches = judge_temporal(rule.demand, part, matching if rule.when else None)
    else:
        judge: Judge = globals()[f"judge_{rule.kind}"]
        outcome, breaches = judge(rule.params, part, matching)
    return (Outcome.VIOLATED, breaches) if breaches else (outcome, [])


def _settled(part: Part, blind: int = 0, judged: bool = True) -> Outcome:
    """The outcome where nothing was broken."""
    if blind or not part.complete:
        return Outcome.INCONCLUSIVE
    return Outcome.OK if judged else Outcome.VACUOUS


# -- one function for each kind: `judge_` and the name of the kind ---------------------------------------------------


def judge_must_call_before(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    judged_turns = {turn.turn for turn in matching}
    judged = [i for i, c in enumerate(part.calls) if _is(c, params["second"]) and c.turn in judged_turns]
    firsts = [i for i, call in enumerate(part.calls) if _is(call, params["first"])]
    if params["only_if_both"] and not firsts:
        return (Outcome.VACUOUS if part.complete else Outcome.INCONCLUSIVE), []
    early = [part.calls[i].turn for i in judged if not any(first < i for first in firsts)]
    if judged and firsts:
        return Outcome.OK, early
    return _settled(part, judged=False), early


def judge_must_call_once(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    calls = _calls_in(part, matching, params["tool"])
    if not calls and part.complete:
        return Outcome.VIOLATED, [None]
    return _settled(part), [call.turn for call in calls[1:]]


def judge_no_call(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    return _settled(part), [call.turn for call in _calls_in(part, matching, params["tool"])]


def judge_max_turns(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    return _settled(part), [turn.turn for turn in matching[params["n"] : params["n"] + 1]]


def judge_required_stop_reason(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    recorded = [turn for turn in matching if turn.stop_reason is not None]
    bad = [turn.turn for turn in recorded if turn.stop_reason not in params["allowed"]]
    return _settled(part, len(matching) - len(recorded), bool(recorded)), bad


def judge_max_total_tokens(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    totals = [turn.usage.total if turn.usage else None for turn in matching]
    running = [sum(total or 0 for total in totals[: i + 1]) for i in range(len(totals))]
    over = [turn.turn for turn, spent in zip(matching, running, strict=True) if spent > params["n"]]
    blind = sum(turn.usage is None or not turn.usage.is_whole for turn in matching)
    return _settled(part, blind), over[:1]


def judge_must_include_text(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    if any(turn.text is not None and _has(turn.text, params) for turn in matching):
        return Outcome.OK, []
    if not part.complete or any(turn.text is None for turn in matching):
        return Outcome.INCONCLUSIVE, []
    return Outcome.VIOLATED, [None]


def judge_forbidden_text(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    bad = [turn.turn for turn in matching if turn.text is not None and _has(turn.text, params)]
    return _settled(part, sum(turn.text is None for turn in matching)), bad


def judge_must_match_json_schema(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    judged = [turn for turn in matching if not (turn.tool_calls and not (turn.text or "").strip())]
    seen = [turn for turn in judged if turn.text is not None]
    bad = [turn.turn for turn in seen if not _fits(turn.text or "", params["schema"])]
    return _settled(part, len(judged) - len(seen), bool(seen)), bad


def judge_must_remain_consistent(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    observed = [(t.turn, v) for t in matching for v in _values(params["path"], t) if v is not None]
    bad = [turn for turn, value in observed if not json_equal(value, observed[0][1])]
    return _settled(part, judged=bool(observed)), list(dict.fromkeys(bad))


def judge_must_followup(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    triggers = [i for i, t in enumerate(part.turns) if t in matching and _triggered(params["trigger"], t)]
    bad: Breaches = []
    blind = 0
    for i in triggers:
        if i + 1 == len(part.turns):
            bad += [part.turns[i].turn] if part.complete else []
            continue
        answer = _follows(params["must"], part.turns[i + 1])
        blind += answer is None
        bad += [part.turns[i + 1].turn] if answer is False else []
    return _settled(part, blind, bool(triggers)), bad


def judge_must_be_grounded(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    blind, judged, bad = 0, 0, list[int | None]()
    for turn in matching:
        known = _words(" ".join(_chunks(_values(params["retrieval_path"], turn))))
        if not _chunks(_values(params["retrieval_path"], turn)):
            continue
        if turn.text is None:
            blind += 1
            continue
        said = [word for word in _words(turn.text) if word not in STOP_WORDS]
        if len(said) < max(1, params.get("min_content_words", 2)):
            is_answer = turn.text.strip() and not turn.tool_calls
            blind += bool(is_answer)
            continue
        judged += 1
        share = sum(word in known for word in said) / len(said)
        bad += [turn.turn] if share < params["min_unigram_precision"] else []
    return _settled(part, blind, judged > 0), bad


def judge_guard(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    hits = [(call.turn, guard_matches(params["when"], part.calls, i)) for i, call in enumerate(part.calls)]
    outcome = Outcome.INCONCLUSIVE if is_untimed(params["when"], part.calls) else _settled(part)
    if params["then"] == "allow":
        marked = any(hit is True for _, hit in hits)
        return (Outcome.OK if marked else Outcome.VACUOUS), []
    return outcome, [turn for turn, hit in hits if hit is not False]


# -- what they are made of --------------------------------------------------------------------------------------------


def _is(call: ToolCall, names: list[str]) -> bool:
    return any(call.name == name or fnmatch.fnmatchcase(call.name, name) for name in names)


def _calls_in(part: Part, turns: list[Response], names: list[str]) -> list[ToolCall]:
    wanted = {turn.turn for turn in turns}
    return [call for call in part.calls if call.turn in wanted and _is(call, names)]


def _has(text: str, params: dict[str, Any]) -> bool:
    if params.get("regex"):
        flags = "(?i)" if params.get("ignore_case") else ""
        return re2.search(f"{flags}(?:{params['text']})", text) is not None
    if params.get("ignore_case"):
        return bool(params["text"].casefold() in text.casefold())
    return bool(params["text"] in text)


def _fits(text: str, schema: Any) -> bool:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        value = json.loads(
            text, parse_constant=refuse, parse_float=lambda digits: max(-1e308, min(1e308, float(digits)))
        )
        return bool(jsonschema_rs.validator_for(schema, offline=True).is_valid(value))
    except (ValueError, RecursionError):  # nested too deeply for the decoder or the validator
        return False


def _follows(must: dict[str, Any], turn: Response) -> bool | None:
    if must["kind"] == "tool_call":
        return any(_is(call, must["tool_name"]) for call in turn.tool_calls)
    return None if turn.text is None else _has(turn.text, must)


def _words(text: str) -> set[str]:
    composed = unicodedata.normalize("NFC", text)
    letters = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in composed.lower())
    runs = "".join(letters).split()
    return {run for run in runs if len(run) >= 2}


def _chunks(values: list[Any]) -> list[str]:
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    texts = [
        next((item[k] for k in ("text", "content", "page_content") if isinstance(item.get(k), str)), None)
        if isinstance(item, dict)
        else item
        for item in flat
    ]
    return [text for text in texts if isinstance(text, str) and text]


# -- paths and conditions ---------------------------------------------------------------------------------------------


def _all_hold(conditions: Iterable[Any], turn: Response) -> bool:
    return all(_holds(c.path.text, c.op, c.value, turn) for c in conditions)


def _triggered(trigger: list[dict[str, Any]], turn: Response) -> bool:
    return all(_holds(c["path"], c["op"], c["value"], turn) for c in trigger)


def _holds(path: str, op: str, wanted: Any, turn: Response) -> bool:
    return any(_compare(found, op, wanted) for found in _values(path, turn))


def _compare(found: Any, op: str, wanted: Any) -> bool:
    match op:
        case "==":
            return json_equal(found, wanted)
        case "!=":
            return not json_equal(found, wanted) and _comparable(found, wanted)
        case "in":
            return any(json_equal(found, one) for one in wanted)
        case "not_in":
            comparable = not wanted or any(_comparable(found, one) for one in wanted)
            return comparable and not any(json_equal(found, one) for one in wanted)
        case "contains":
            return _contains(found, wanted) is True
        case "not_contains":
            return _contains(found, wanted) is False
    if any(isinstance(side, bool) or not isinstance(side, (int, float)) for side in (found, wanted)):
        return False
    return bool({">": found > wanted, ">=": found >= wanted, "<": found < wanted, "<=": found <= wanted}[op])


def _comparable(found: Any, wanted: Any) -> bool:
    kinds = [
        bool if isinstance(v, bool) else float if isinstance(v, (int, float)) else type(v) for v in (found, wanted)
    ]
    return found is None or wanted is None or kinds[0] is kinds[1]


def _contains(found: Any, wanted: Any) -> bool | None:
    if isinstance(found, str) and isinstance(wanted, str):
        return wanted in found
    if not isinstance(found, list):
        return None
    inside = [item for item in found if isinstance(item, dict)]
    strings = [item[key] for item in inside for key in ("text", "name", "content") if isinstance(item.get(key), str)]
    in_blocks = isinstance(wanted, str) and any(wanted in string for string in strings)
    return in_blocks or any(json_equal(item, wanted) for item in found)


def _values(path: str, turn: Response) -> list[Any]:
    """Every value at a dotted path, the wildcard spreading out."""
    keys = [key.replace("\\.", ".") for key in re.split(r"(?<!\\)\.", path)]
    if keys == ["model"]:
        asked = turn.request.model if turn.request else None
        return [asked or turn.model] if asked or turn.model else []
    found = [_context(turn)]
    for key in ["response", *keys] if keys[0] == "stop_reason" else keys:
        found = [inner for value in found for inner in _inner(value, key)]
    return found


def _inner(value: Any, key: str) -> list[Any]:
    if key == "*":
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    key = "*" if key == "\\*" else key
    if isinstance(value, dict):
        return [value[key]] if key in value else []
    if isinstance(value, list) and re.fullmatch(r"-?\d{1,8}", key) and -len(value) <= int(key) < len(value):
        return [value[int(key)]]
    return []


def _context(turn: Response) -> dict[str, Any]:
    names = {"request": ("model", "messages", "params", "tools", "metadata")}
    names["response"] = ("content", "text", "stop_reason", "latency_ms", "model")
    sides = {"request": turn.request, "response": turn}
    context = {
        side: {name: getattr(owner, name) for name in names[side] if getattr(owner, name, None) is not None}
        for side, owner in sides.items()
        if owner is not None
    }
    context["response"]["tool_calls"] = [
        {"id": c.call_id, "name": c.name, "arguments": c.raw_arguments if c.arguments is None else c.arguments}
        for c in turn.tool_calls
    ]
    if turn.usage is not None:
        counted = {n: getattr(turn.usage, n) for n in turn.usage.__struct_fields__ if n != "recorded"}
        recorded = turn.usage.recorded or {}
        context["response"]["usage"] = recorded | {n: v for n, v in counted.items() if v is not None}
    return context

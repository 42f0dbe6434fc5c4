"""Rules of a prompt + one trace → the state of each rule, by one fold over the engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from bylaw.comply.model import (
    BehavioralRule,
    ComplianceResult,
    PromptRule,
    PromptRules,
    State,
    StatedRule,
    Tier,
    Violation,
    coverage_of,
)
from bylaw.comply.prompt.returns import drop_failed_calls, read_result
from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.engine.temporal.atom_values import user_texts
from bylaw.model.events import Event, Response, ToolCall, ToolResult, Trace
from bylaw.model.verdict import Outcome, Verdict

MOST_FINDINGS = 1_000
"""of one rule that are listed; the others are only counted"""
_MOST_PROGRAMS = 256
"""sets of tools called for which the rules are compiled"""
_PLAIN_NAME = re.compile(r"[\w.-]+")
NO_TURN = "the trace holds no turn of the agent, so nothing could be checked"
CALL_FAILED = "it depends on whether a call counts that failed or came back negative"
_OF_CALLS = frozenset(("order", "count", "call", "state"))
_LATER = re.compile(r"\b[FUX]\b")
"""operators that look ahead"""


class _TraceEvaluation(Struct):
    """The verdicts of the engine on one trace."""

    outcomes: dict[str, Outcome]
    verdicts: dict[str, list[Verdict]]
    turns: int
    without_failed: Mapping[str, Outcome] | None = None
    """the outcomes if the calls that failed had not been made; None if none failed"""


class CompiledPrompt:
    """The rules of one prompt, compiled once, for any number of traces."""

    def __init__(self, prompt: PromptRules) -> None:
        self.prompt = prompt
        self._guarded = _guarded_tools(prompt)
        self._programs: dict[frozenset[str] | None, Program] = {}
        self._done_program: Program | None = None
        self._engine_ids: dict[str, list[str]] = {}
        for engine_id, rule_id in prompt.owners.items():
            self._engine_ids.setdefault(rule_id, []).append(engine_id)
        self._done = {rule.id for rules in prompt.done.values() for rule in rules}
        for rule_id, rules in prompt.done.items():
            self._engine_ids.setdefault(rule_id, []).extend(rule.id for rule in rules)

    def check(self, trace: Trace) -> ComplianceResult:
        evaluated = self._evaluate(trace)
        rules = [self._decide(rule, evaluated) for rule in self.prompt.rules]
        broken = [one for one, rule in zip(self.prompt.rules, rules, strict=True) if rule.state is State.VIOLATED]
        positions = _positions(trace) if broken else {}
        violations: list[Violation] = []
        for rule in broken:
            found = self._verdicts(rule, evaluated, Outcome.VIOLATED)[:MOST_FINDINGS]
            violations += [_violation(rule, one, positions, trace) for one in found]
        violations.sort(key=lambda one: float("inf") if one.event_index is None else one.event_index)
        return ComplianceResult(
            detected=bool(broken),
            confidence=max((violation.confidence for violation in violations), default=0.0),
            violations=violations,
            extracted_rules=rules,
            coverage=coverage_of(rules),
            degraded=self._collect_notes(trace, evaluated),
            trace=trace.name,
            turns=evaluated.turns,
        )

    def _program(self, trace: Trace) -> Program:
        """The rules that this trace can trigger: conditions of a tool need a call of it.

        Most prompts state conditions for many tools, of which a talk calls few.
        """
        called: frozenset[str] | None = None
        if trace.complete and self._guarded:
            guarded = set(self._guarded.values())
            called = frozenset(
                event.name for event in trace.events if type(event) is ToolCall and event.name in guarded
            )
        if called not in self._programs:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            rules = self.prompt.engine
            if called is not None:
                rules = tuple(
                    one for one in rules if self._guarded.get(one.id) is None or self._guarded[one.id] in called
                )
            self._programs[called] = compile_rules(rules)
        return self._programs[called]

    def _evaluate(self, trace: Trace) -> _TraceEvaluation:
        program = self._program(trace)
        events = [read_result(event) for event in trace.events]
        evaluation, every = _run(program, events, trace)
        verdicts: dict[str, list[Verdict]] = {}
        for verdict in every:
            if verdict.outcome is not Outcome.VACUOUS:
                verdicts.setdefault(verdict.rule.id, []).append(verdict)
        found = _TraceEvaluation(dict(evaluation.outcomes()), verdicts, evaluation.turns)
        if (succeeded := drop_failed_calls(events)) is not None:
            found.without_failed = _run(program, succeeded, trace)[0].outcomes()
        self._add_failed_needs(trace, found)
        return found

    def _add_failed_needs(self, trace: Trace, found: _TraceEvaluation) -> None:
        """Evaluate the rules that are broken if all calls that another one needs have failed.

        Like `bylaw check`, they see only the failures that the trace records as such. They decide nothing unless they
        are broken: they are inconclusive on a trace that does not record which calls failed.
        """
        if not self._done or not any(type(event) is ToolResult and event.is_error for event in trace.events):
            return
        if self._done_program is None:
            self._done_program = compile_rules([rule for rules in self.prompt.done.values() for rule in rules])
        for verdict in _run(self._done_program, trace.events, trace)[1]:
            if verdict.outcome is Outcome.VIOLATED:
                found.verdicts.setdefault(verdict.rule.id, []).append(verdict)
                found.outcomes[verdict.rule.id] = verdict.outcome

    def _decide(self, rule: PromptRule, evaluated: _TraceEvaluation) -> BehavioralRule:
        outcomes = [
            evaluated.outcomes.get(engine_id, Outcome.VACUOUS) for engine_id in self._engine_ids.get(rule.rule_id, ())
        ]
        state = _state_of(outcomes) if evaluated.turns else State.UNDECIDED
        unusable = self.prompt.unusable.get(rule.rule_id)
        if state is not State.VIOLATED and (unusable or (state is State.SATISFIED and rule.undecided)):
            state = State.UNDECIDED  # a part of the rule was not checked
        if (unsure := self._explain_failed_call(rule, state, evaluated)) is not None:
            state, unusable = State.UNDECIDED, unsure
        is_open = state is State.UNDECIDED
        stated = {name: getattr(rule, name) for name in StatedRule.__struct_fields__}
        return BehavioralRule(
            **{**stated, "tier": None if is_open else rule.tier},
            state=state,
            reason=self._explain_undecided(rule, unusable, evaluated) if is_open else None,
            decided_by=None if is_open else "engine",
        )

    def _explain_failed_call(self, rule: PromptRule, state: State, evaluated: _TraceEvaluation) -> str | None:
        """Why a rule is open that a call satisfies or breaks that did nothing, since it failed.

        A call that is made too early is a breach also if it fails: only counts, and what must follow a call, depend.
        Nor is a rule open if the trace records that each call it needs failed: then it is violated.
        """
        if evaluated.without_failed is None or state not in (State.SATISFIED, State.VIOLATED):
            return None
        if any(one in self._done and one in evaluated.outcomes for one in self._engine_ids.get(rule.rule_id, ())):
            return None
        would_break = {id for id, outcome in evaluated.without_failed.items() if outcome is Outcome.VIOLATED}
        if state is State.SATISFIED:
            depends = any(one.aspect in _OF_CALLS and one.item["id"] in would_break for one in rule.items)
            return CALL_FAILED if depends else None
        broken = [one for one in rule.items if evaluated.outcomes.get(one.item["id"]) is Outcome.VIOLATED]
        depend = [
            one.item["id"] not in would_break
            and (one.aspect == "count" or _LATER.search(str(one.item.get("params", {}).get("formula", ""))))
            for one in broken
        ]
        return CALL_FAILED if broken and all(depend) else None

    def _explain_undecided(self, rule: PromptRule, unusable: str | None, evaluated: _TraceEvaluation) -> str:
        if not rule.items:
            return rule.undecided or "no event is known to decide it"
        if not evaluated.turns:
            return NO_TURN
        if unusable:
            return unusable
        verdicts = self._verdicts(rule, evaluated, Outcome.INCONCLUSIVE, Outcome.ERROR)
        messages = (verdict.message for verdict in verdicts if verdict.message)
        return next(messages, None) or rule.undecided or "the trace does not decide it"

    def _verdicts(self, rule: PromptRule, evaluated: _TraceEvaluation, *outcomes: Outcome) -> list[Verdict]:
        ids = self._engine_ids.get(rule.rule_id, ())
        return [one for id in ids for one in evaluated.verdicts.get(id, ()) if one.outcome in outcomes]

    def _collect_notes(self, trace: Trace, evaluated: _TraceEvaluation) -> list[str]:
        notes = list(self.prompt.notes)
        if not self.prompt.rules and "the prompt is empty" not in notes:
            notes.append("no rule could be read from the prompt")
        if not evaluated.turns:
            notes.append(NO_TURN)
        if not trace.complete:
            notes.append("the recording stopped early")
        if trace.skipped:
            notes.append(f"{trace.skipped:,} records of the trace could not be read")
        notes += [f"`{rule}`: {reason}" for rule, reason in self.prompt.unusable.items()]
        for rule in self.prompt.rules:
            more = len(self._verdicts(rule, evaluated, Outcome.VIOLATED)) - MOST_FINDINGS
            notes += [f"`{rule.rule_id}`: {more:,} more violations are not listed"] if more > 0 else []
        return notes


def _run(program: Program, events: Iterable[Event], trace: Trace) -> tuple[Evaluation, list[Verdict]]:
    """The engine at the end of these events of the trace, and all its verdicts."""
    evaluation = Evaluation(program)
    verdicts = [verdict for event in events for verdict in evaluation.step(event)]
    return evaluation, [*verdicts, *evaluation.end(complete=trace.complete)]


def _guarded_tools(prompt: PromptRules) -> dict[str, str]:
    """The id of each engine rule that is vacuous in a trace without calls of one tool → that tool."""
    found: dict[str, str] = {}
    for rule in prompt.rules:
        tool = rule.trigger.removeprefix("call_tool: ")
        begins = (f"G (tool({tool}, ", f"G (tool({tool}) -> ", "G (result(") if _PLAIN_NAME.fullmatch(tool) else ()
        for one in rule.items:
            params = one.item.get("params")
            formula = params.get("formula") if isinstance(params, dict) else None
            if not isinstance(formula, str) or not formula.startswith(begins) or not _is_one_group(formula):
                continue
            if formula.startswith("G (tool(") or f" U tool({tool}" in formula:
                found[one.item["id"]] = tool
    return found


def _is_one_group(formula: str) -> bool:
    """Whether the bracket after `G` closes at the very end. Patterns and texts may hold brackets: then it is not."""
    depth = 0
    for place, character in enumerate(formula[2:], 3):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place == len(formula) and not set("\"'/") & set(formula)
    return False


def _state_of(outcomes: Sequence[Outcome]) -> State:
    """Of several engine rules: violated, then undecided, then satisfied, then not triggered."""
    if Outcome.VIOLATED in outcomes:
        return State.VIOLATED
    if not outcomes or Outcome.INCONCLUSIVE in outcomes or Outcome.ERROR in outcomes:
        return State.UNDECIDED
    return State.SATISFIED if Outcome.OK in outcomes else State.NOT_TRIGGERED


# -- violations --------------------------------------------------------------------------------------------------------

_Key: TypeAlias = tuple[str, int | None, str | None, str | None]
_LONG_QUOTE = re.compile(r"`[^`]{120,}`")
_MOST_QUOTED = 5
"""events that the evidence quotes, the deciding one among them"""
_BY_LINE = frozenset(("events", "openai", "anthropic"))
_AFTER_USER = re.compile(r"G \(+user\(.* -> F ")
"""what must follow a message of the user"""
_ELEMENT = re.compile(r"\[(\d+)\](?:[^\[\]]*)$")


def index_of(event: Event, position: int, format: str | None) -> int:
    """Which element of the list that was passed in an event comes from.

    A list of events or messages is indexed by its elements, a file with one record a line by its lines, and anything
    else by the trace's own events, as `load_trace` returns them.
    """
    source = event.source
    if source is None or format not in (*_BY_LINE, "tau"):
        return position
    if source.item is not None:
        found = _ELEMENT.search(source.item)
        return int(found[1]) if found else position
    return source.line - 1 if source.line is not None and format in _BY_LINE else position


def _positions(trace: Trace) -> dict[_Key, int]:
    """The index of each event that a verdict may refer to."""
    indexes: dict[_Key, int] = {}
    for position, event in enumerate(trace.events):
        call_id = event.call_id if isinstance(event, ToolCall | ToolResult) else None
        source = None if event.source is None else str(event.source)
        indexes.setdefault((event.kind, event.turn, call_id, source), index_of(event, position, trace.format))
    return indexes


def _violation(rule: PromptRule, verdict: Verdict, positions: Mapping[_Key, int], trace: Trace) -> Violation:
    keys = [((one.event, one.turn, one.call_id, one.source), one) for one in verdict.evidence]
    found = [(positions[key], one) for key, one in keys if key in positions]
    quotes = [f"event {index}: {event.excerpt or event.event}" for index, event in found[-_MOST_QUOTED:]]
    item = next((one for one in rule.items if one.item["id"] == verdict.rule.id), None)
    params = item.item.get("params") if item else None
    waits = isinstance(params, dict) and _AFTER_USER.match(str(params.get("formula")))
    asked = _what_user_said(verdict, trace) if waits else {}
    indexes = tuple(dict.fromkeys((*asked, *(index for index, _ in found))))
    quotes = [*(f"event {index}: {text}" for index, text in asked.items()), *quotes]
    aspect = item.aspect if item else rule.items[0].aspect
    # a formula in a file of rules may quote long patterns, which nobody reads
    message = _one_line(_LONG_QUOTE.sub("what the rule demands", verdict.message), 600)
    return Violation(
        rule_id=rule.rule_id,
        evidence="; ".join(quotes) or "the trace as a whole",
        explanation=f"the prompt says `{_one_line(rule.description)}`: {message}",
        confidence=rule.confidence,
        event_index=indexes[-1] if indexes else None,  # the engine puts the deciding event last
        event_indexes=indexes,
        tier=(item and item.tier) or rule.tier or Tier.CERTAIN,
        aspect=aspect,
        session=verdict.session,
        turn=verdict.turn,
    )


def _what_user_said(verdict: Verdict, trace: Trace) -> dict[int, str]:
    """The messages of the user that the turn of a finding answers, at the index of their request."""
    for position, event in enumerate(trace.events):
        if type(event) is Response and (event.turn, event.origin.session) == (verdict.turn, verdict.session):
            said = " ".join((user_texts(event) or ())[::-1])
            return {index_of(event.request or event, position, trace.format): _one_line(said)} if said else {}
    return {}


def _one_line(text: str, width: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"

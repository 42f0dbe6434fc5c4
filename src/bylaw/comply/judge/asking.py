"""Goes through the undecided rules, one question each or all in one, and puts the verdicts into the result."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.deciding import coverage_of
from bylaw.comply.judge.answers import Answer, Judged, read_answer
from bylaw.comply.judge.memory import Memory, key_of
from bylaw.comply.judge.model import BadReply, Judge
from bylaw.comply.judge.questions import LONGEST_PROMPT, instructions, question
from bylaw.comply.judge.transcript import MOST, Transcript, transcript_of
from bylaw.comply.model import BehavioralRule, ComplianceResult, State, Violation
from bylaw.comply.prompt.model import Tier
from bylaw.errors import JudgeUnreachable
from bylaw.model.events import Usage
from bylaw.model.trace import Trace
from bylaw.text.prices import price_of

CONFIDENCE = 0.5
"""of a violation that only the judge found"""
_SLUG = re.compile(r"[^a-z0-9]+")


class _Spent(Struct):
    tokens: int = 0
    dollars: float = 0.0
    notes: dict[str, None] = {}


class Asking:
    """One result that is taken to the judge. `deadline` is on the clock of `time.monotonic`."""

    def __init__(
        self, judge: Judge, memory: Memory, prompt: str, trace: Trace, *, batch: bool, deadline: float
    ) -> None:
        self._judge = judge
        self._memory = memory
        self._prompt = prompt
        self._sessions = len(trace.sessions)
        self._transcript: Transcript = transcript_of(trace)
        self._batch = batch
        self._deadline = deadline
        self._spent = _Spent()

    def take(self, result: ComplianceResult) -> ComplianceResult:
        """Raises TimeoutError and JudgeUnreachable, with the result so far; a bad answer only degrades."""
        if not self._prompt.strip() or not result.turns:
            return result
        refused = self._why_not()
        if refused is not None:
            return replace(result, degraded=[*result.degraded, f"the judge was not asked: {refused}"])
        for number, rules in enumerate(self._questions(result)):
            try:
                answer = self._ask(rules, propose=number == 0)
            except (JudgeUnreachable, TimeoutError) as problem:
                problem.result = self._spent_on(result)  # type: ignore[union-attr]
                raise
            result = self._with(result, rules, answer)
        return self._spent_on(result)

    def _why_not(self) -> str | None:
        if self._sessions > 1:
            return "the trace holds several sessions, whose events it could not tell apart"
        return f"the trace is longer than {MOST:,} characters" if self._transcript.too_long else None

    def _questions(self, result: ComplianceResult) -> list[list[BehavioralRule]]:
        undecided = result.in_state(State.UNDECIDED)
        if self._batch or not result.extracted_rules:
            return [undecided] if undecided or not result.extracted_rules else []
        return [[rule] for rule in undecided]

    # -- one question -----------------------------------------------------------------------------------------------

    def _ask(self, rules: Sequence[BehavioralRule], *, propose: bool) -> Answer:
        told = instructions(propose=propose)
        named = [(rule.rule_id, rule.description) for rule in rules]
        key = key_of(self._judge.name, told, self._prompt, named, self._transcript)
        known = self._memory.find(key)
        if known is not None:
            return self._read(known, rules, propose)
        try:
            text = self._fresh(told, rules)
        except BadReply as problem:
            self._pay(problem.usage)
            return Answer(refused=[str(problem)])
        answer = self._read(text, rules, propose)
        if not answer.refused:
            self._memory.keep(key, text)
        return answer

    def _fresh(self, told: str, rules: Sequence[BehavioralRule]) -> str:
        asked = question(self._prompt, rules, self._transcript)
        reply = self._judge.ask(told, asked, seconds=self._deadline - time.monotonic())
        self._pay(reply.usage)
        return reply.text

    def _read(self, text: str, rules: Sequence[BehavioralRule], propose: bool) -> Answer:
        asked = [rule.rule_id for rule in rules]
        answer = read_answer(text, asked, self._transcript.indexes, proposals=propose)
        silent = [rule for rule in asked if rule not in answer.verdicts]
        if silent and not answer.refused:
            answer.refused.append(f"the judge says nothing of {', '.join(f'`{rule}`' for rule in silent)}")
        return answer

    # -- money ------------------------------------------------------------------------------------------------------

    def _pay(self, usage: Usage | None) -> None:
        if usage is None or usage.total is None:
            self._spent.notes["the judge did not say how many tokens it used"] = None
            return
        self._spent.tokens += usage.total
        price = price_of(self._judge.model)
        if price is None:
            self._spent.notes[f"no price is known for `{self._judge.model}`, so its cost is not counted"] = None
        else:
            self._spent.dollars += price.cost(usage)

    def _spent_on(self, result: ComplianceResult) -> ComplianceResult:
        notes = list(self._spent.notes)
        if len(self._prompt) > LONGEST_PROMPT:
            notes.append(f"the judge was shown the first {LONGEST_PROMPT:,} characters of the prompt")
        degraded = list(dict.fromkeys((*result.degraded, *notes)))
        return replace(result, tokens_used=self._spent.tokens, cost_usd=self._spent.dollars, degraded=degraded)

    # -- what comes of it -------------------------------------------------------------------------------------------

    def _with(self, result: ComplianceResult, asked: Sequence[BehavioralRule], answer: Answer) -> ComplianceResult:
        rules = [
            self._decided(rule, answer.verdicts[rule.rule_id]) if rule.rule_id in answer.verdicts else rule
            for rule in result.extracted_rules
        ]
        rules += self._proposed(rules, answer)
        before = {rule.rule_id for rule in result.in_state(State.VIOLATED)}
        found = [self._violation(rule, answer) for rule in rules if _is_new_breach(rule, before)]
        violations = [*result.violations, *found]
        return replace(
            result,
            detected=any(rule.state is State.VIOLATED for rule in rules),
            confidence=max((violation.confidence for violation in violations), default=0.0),
            violations=violations,
            extracted_rules=rules,
            coverage=coverage_of(rules),
            degraded=[*result.degraded, *answer.refused],
        )

    def _decided(self, rule: BehavioralRule, judged: Judged) -> BehavioralRule:
        if judged.state is State.UNDECIDED:
            return replace(rule, reason=f"{rule.reason}; the judge cannot tell either: {judged.explanation}")
        return replace(
            rule,
            state=judged.state,
            reason=judged.explanation,
            tier=Tier.JUDGED,
            confidence=CONFIDENCE,
            decided_by="judge",
        )

    def _proposed(self, known: Sequence[BehavioralRule], answer: Answer) -> list[BehavioralRule]:
        """Rules that the grammar missed: only where the prompt says them word for word."""
        rules: list[BehavioralRule] = []
        for judged in answer.proposed:
            start = self._prompt.find(judged.quote)
            if start < 0:
                answer.refused.append("the judge proposes a rule that does not stand in the prompt")
                continue
            end = start + len(judged.quote)
            if any(rule.start < end and start < rule.end for rule in (*known, *rules)):
                continue
            rule_id = _own_id(judged.quote, {rule.rule_id for rule in (*known, *rules)})
            answer.verdicts[rule_id] = judged
            rules.append(
                BehavioralRule(
                    rule_id=rule_id,
                    description=judged.quote,
                    start=start,
                    end=end,
                    tier=Tier.JUDGED,
                    confidence=CONFIDENCE,
                    state=judged.state,
                    reason=judged.explanation,
                    decided_by=None if judged.state is State.UNDECIDED else "judge",
                )
            )
        return rules

    def _violation(self, rule: BehavioralRule, answer: Answer) -> Violation:
        judged = answer.verdicts[rule.rule_id]
        return Violation(
            rule_id=rule.rule_id,
            evidence=self._transcript.quote(judged.event_indexes),
            explanation=judged.explanation,
            confidence=CONFIDENCE,
            event_index=judged.event_indexes[-1],
            event_indexes=judged.event_indexes,
            tier=Tier.JUDGED,
        )


def _is_new_breach(rule: BehavioralRule, before: set[str]) -> bool:
    return rule.state is State.VIOLATED and rule.rule_id not in before


def _own_id(quote: str, taken: set[str]) -> str:
    slug = "judged-" + (_SLUG.sub("-", quote.lower()).strip("-")[:40].strip("-") or "rule")
    number = 1
    while (own := slug if number == 1 else f"{slug}-{number}") in taken:
        number += 1
    return own

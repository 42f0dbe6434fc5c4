"""Asks the judge about the undecided rules of one result, and adds its verdicts to the result."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError

import msgspec
from msgspec.structs import replace

from bylaw.comply.judge import (
    LONGEST_PROMPT,
    LONGEST_TRACE,
    Answer,
    JudgedRule,
    instructions,
    question,
    read_answer,
    transcript_of,
)
from bylaw.comply.judge.providers import BadReply, Judge, JudgeReply
from bylaw.comply.model import (
    BehavioralRule,
    ComplianceResult,
    JudgeTimeout,
    JudgeUnreachable,
    State,
    Tier,
    Violation,
    coverage_of,
)
from bylaw.files.atomic import write_atomic
from bylaw.model.canonical import canonical_json, prepared
from bylaw.model.events import Trace, Usage
from bylaw.text.prices import price_of
from bylaw.text.redaction.redactor import redacted
from bylaw.wire.values import clean

# -- threads -----------------------------------------------------------------------------------------------------------

# Jobs run side by side, in a bounded number of threads, until a deadline. `concurrent.futures` waits for its threads at
# the end of the program. These threads are daemons: a job that hangs past the deadline is left behind.

T = TypeVar("T")


def run_side_by_side(
    jobs: Sequence[Callable[[], T]], *, most: int, deadline: float, stop: threading.Event | None = None
) -> dict[int, T | Exception]:
    """The index of each job that ended in time → its result or its exception.

    At most `most` jobs run at once. After an exception, or once `stop` is set, no further job starts, and those that
    run are waited for. `deadline` is on the clock of `time.monotonic`.
    """
    waiting = deque(enumerate(jobs))
    ended: queue.SimpleQueue[tuple[int, T | Exception] | None] = queue.SimpleQueue()
    stop = threading.Event() if stop is None else stop

    def work() -> None:
        try:
            while not stop.is_set():
                index, job = waiting.popleft()
                try:
                    ended.put((index, job()))
                except Exception as problem:
                    stop.set()
                    ended.put((index, problem))
        except IndexError:
            pass  # no job is left
        finally:
            ended.put(None)

    results: dict[int, T | Exception] = {}
    running = min(most, len(jobs)) if time.monotonic() < deadline else 0
    for _ in range(running):
        threading.Thread(target=work, name="bylaw-judge", daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while running:
            one = ended.get(timeout=max(deadline - time.monotonic(), 0))
            if one is None:
                running -= 1
            else:
                results[one[0]] = one[1]
    stop.set()
    return results


# -- session -----------------------------------------------------------------------------------------------------------

CONFIDENCE = 0.5
"""of a violation that only the judge found"""
MOST_AT_ONCE = 8
"""questions that are asked side by side"""
_MOST_ANSWERS = 1_000
_LONGEST_ANSWER = 1 << 20
_LONGEST_MESSAGE = 200
"""characters of an exception that a judge raised"""
_SHORTENED = "events were shortened for the judge"
_NO_ID = re.compile(r"[^a-z0-9]+")


class AnswerCache:
    """Answers of judges, in memory and, if there is one, in a folder.

    The text of the judge is cached, not its verdicts: it is checked again each time it is used.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> str | None:
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        if self._folder is None:
            return None
        with contextlib.suppress(OSError, ValueError), (self._folder / f"{key}.json").open("rb") as file:
            return file.read(_LONGEST_ANSWER).decode("utf-8")
        return None

    def put(self, key: str, text: str) -> None:
        with self._lock:
            self._answers[key] = text
            while len(self._answers) > _MOST_ANSWERS:
                self._answers.popitem(last=False)
        if self._folder is None or len(text) >= _LONGEST_ANSWER:
            return
        with contextlib.suppress(OSError):  # a folder that cannot be written costs money, not correctness
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self._folder / f"{key}.json", text.encode("utf-8", "replace"), mode=0o600)


class JudgeSession:
    """The questions about one trace, asked within `timeout_ms` from `start` on the clock of `time.monotonic`.

    `given` is what the trace was read from. Once `stop` is set, no further question is asked.
    """

    def __init__(
        self,
        judge: Judge,
        cache: AnswerCache,
        prompt: str,
        trace: Trace,
        *,
        given: Any = None,
        batch: bool,
        timeout_ms: float,
        start: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._judge = judge
        self._cache = cache
        self._prompt = prompt
        self._sessions = len(trace.sessions)
        self._transcript = transcript_of(trace, given)
        self._batch = batch
        self._timeout_ms = timeout_ms
        self._deadline = (time.monotonic() if start is None else start) + timeout_ms / 1000
        self._stop = stop
        self._tokens = 0
        self._dollars = 0.0
        self._notes: dict[str, None] = {}

    def review(self, result: ComplianceResult) -> ComplianceResult:
        """Raises JudgeTimeout and JudgeUnreachable, with the result so far; anything else only degrades it."""
        if not self._prompt.strip() or not result.turns:
            return result
        if self._sessions > 1 or self._transcript.too_long:
            why = "the trace holds several sessions, whose events it could not tell apart"
            why = why if self._sessions > 1 else f"the trace is longer than {LONGEST_TRACE:,} characters"
            return replace(result, degraded=[*result.degraded, f"the judge was not asked: {why}"])
        undecided = result.in_state(State.UNDECIDED)
        questions = [[rule] for rule in undecided]
        if not result.extracted_rules or (self._batch and undecided):
            questions = [undecided]
        answers, problem = self._ask_all(questions)
        for number in sorted(answers):  # in the order of the rules, however fast each was answered
            result = self._apply_answer(result, answers[number])
        result = self._with_cost(result)
        if problem is not None:
            problem.result = replace(result, degraded=[*result.degraded, clean(str(problem))])
            raise problem
        return result

    # -- questions -----------------------------------------------------------------------------------------------------

    def _ask_all(
        self, questions: Sequence[Sequence[BehavioralRule]]
    ) -> tuple[dict[int, Answer], JudgeTimeout | JudgeUnreachable | None]:
        """The number of each question that was answered → its answer; and why the others were not."""
        answers: dict[int, Answer] = {}
        keys = [self._key(rules, propose=number == 0) for number, rules in enumerate(questions)]
        for number, rules in enumerate(questions):
            if (cached := self._cache.get(keys[number])) is not None:
                answers[number] = self._read(cached, rules, propose=number == 0)
        uncached = [number for number in range(len(questions)) if number not in answers]
        jobs = [partial(self._ask, questions[number], keys[number], propose=number == 0) for number in uncached]
        problem: JudgeUnreachable | None = None
        ended = run_side_by_side(jobs, most=MOST_AT_ONCE, deadline=self._deadline, stop=self._stop)
        for place, reply in sorted(ended.items()):
            if isinstance(reply, Answer):
                self._add_cost(reply.usage)
                answers[uncached[place]] = reply
            elif isinstance(reply, JudgeUnreachable):
                problem = problem or reply
            elif not isinstance(reply, TimeoutError):
                raise reply
        if problem is None and len(answers) < len(questions):
            self._notes["the tokens of questions without an answer are not counted"] = None
            return answers, JudgeTimeout(
                f"the judge did not finish within timeout_ms={self._timeout_ms:.15g}: {len(answers):,} of"
                f" {len(questions):,} questions were answered"
            )
        return answers, problem

    def _key(self, rules: Sequence[BehavioralRule], *, propose: bool) -> str:
        named = [[rule.rule_id, rule.description] for rule in rules]
        judge = _name_of(self._judge, "name")
        whole = [judge, instructions(propose=propose), self._prompt, named, self._transcript.digest]
        return hashlib.sha256(canonical_json(whole)).hexdigest()

    def _ask(self, rules: Sequence[BehavioralRule], key: str, *, propose: bool) -> Answer:
        asked = question(self._prompt, rules, self._transcript)
        try:
            left = self._deadline - time.monotonic()
            reply: Any = self._judge.ask(instructions(propose=propose), asked, seconds=left)
        except BadReply as problem:
            return Answer(refused=[clean(str(problem))], usage=_usage(problem.usage))
        except (JudgeUnreachable, TimeoutError):
            raise
        except OSError as problem:  # of a judge that is not one of ours, like every exception below
            reason = problem.reason if isinstance(problem, URLError) else problem
            raise JudgeUnreachable(clean(str(reason)) or type(problem).__name__) from problem
        except Exception as problem:
            message = " ".join(str(redacted(clean(str(problem)))).split())[:_LONGEST_MESSAGE]
            raised = f"{type(problem).__name__}: {message}" if message else type(problem).__name__
            return Answer(refused=[f"the judge raised {raised}"])
        if not isinstance(reply, JudgeReply):
            return Answer(refused=[f"the judge returned {type(reply).__name__}, not JudgeReply"])
        if not isinstance(reply.text, str):
            return Answer(refused=["the judge's reply holds no text"], usage=_usage(reply.usage))
        answer = self._read(reply.text, rules, propose=propose)
        if not answer.refused:
            self._cache.put(key, reply.text)
        return replace(answer, usage=_usage(reply.usage))

    def _read(self, text: str, rules: Sequence[BehavioralRule], *, propose: bool) -> Answer:
        asked = [rule.rule_id for rule in rules]
        answer = read_answer(text, asked, self._transcript.indexes, proposals=propose)
        if self._transcript.shortened:
            answer.verdicts = {rule: _downgrade_satisfied(judged) for rule, judged in answer.verdicts.items()}
            answer.proposed = [_downgrade_satisfied(judged) for judged in answer.proposed]
        for rule in rules:
            judged = answer.verdicts.get(rule.rule_id)
            if judged and judged.state is State.SATISFIED and not self._transcript.touches(judged.event_indexes, rule):
                del answer.verdicts[rule.rule_id]
                answer.refused.append(f"the judge clears `{rule.rule_id}` by events that have nothing to do with it")
        missing = [f"`{rule}`" for rule in asked if rule not in answer.verdicts]
        if missing and not answer.refused:
            answer.refused.append(f"the judge gave no verdict on {', '.join(missing)}")
        return answer

    # -- cost ----------------------------------------------------------------------------------------------------------

    def _add_cost(self, usage: Usage | None) -> None:
        if usage is None or usage.total is None:
            self._notes["the judge did not say how many tokens it used"] = None
            return
        self._tokens += usage.total
        model = _name_of(self._judge, "model")
        price = price_of(model)
        if price is None:
            self._notes[f"no price is known for `{model}`, so its cost is not counted"] = None
        else:
            self._dollars += price.cost(usage)

    def _with_cost(self, result: ComplianceResult) -> ComplianceResult:
        notes = list(self._notes)
        if len(self._prompt) > LONGEST_PROMPT:
            notes.append(f"the judge was shown the first {LONGEST_PROMPT:,} characters of the prompt")
        if self._transcript.shortened:
            notes.append(_SHORTENED)
        degraded = list(dict.fromkeys((*result.degraded, *notes)))
        return replace(result, tokens_used=self._tokens, cost_usd=self._dollars, degraded=degraded)

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def _apply_answer(self, result: ComplianceResult, answer: Answer) -> ComplianceResult:
        rules = [self._apply_verdict(rule, answer) for rule in result.extracted_rules]
        rules += self._read_proposed_rules(rules, answer)
        before = {rule.rule_id for rule in result.in_state(State.VIOLATED)}
        new = [rule for rule in rules if rule.state is State.VIOLATED and rule.rule_id not in before]
        violations = [*result.violations, *(self._violation(rule.rule_id, answer) for rule in new)]
        return replace(
            result,
            detected=any(rule.state is State.VIOLATED for rule in rules),
            confidence=max((violation.confidence for violation in violations), default=0.0),
            violations=violations,
            extracted_rules=rules,
            coverage=coverage_of(rules),
            degraded=[*result.degraded, *answer.refused],
        )

    def _apply_verdict(self, rule: BehavioralRule, answer: Answer) -> BehavioralRule:
        judged = answer.verdicts.get(rule.rule_id)
        if judged is None:
            return rule
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

    def _read_proposed_rules(self, known: Sequence[BehavioralRule], answer: Answer) -> list[BehavioralRule]:
        """Rules that the grammar missed, if the prompt states them word for word."""
        rules: list[BehavioralRule] = []
        for judged in answer.proposed:
            start = self._prompt.find(judged.quote)
            if start < 0:
                answer.refused.append("the judge proposes a rule that is not in the prompt")
                continue
            end = start + len(judged.quote)
            if any(rule.start < end and start < rule.end for rule in (*known, *rules)):
                continue
            rule_id = _free_id(judged.quote, {rule.rule_id for rule in (*known, *rules)})
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

    def _violation(self, rule_id: str, answer: Answer) -> Violation:
        judged = answer.verdicts[rule_id]
        return Violation(
            rule_id=rule_id,
            evidence=self._transcript.quote(judged.event_indexes),
            explanation=judged.explanation,
            confidence=CONFIDENCE,
            event_index=judged.event_indexes[-1],
            event_indexes=judged.event_indexes,
            tier=Tier.JUDGED,
        )


def _usage(given: Any) -> Usage | None:
    """The usage that a custom judge reports, if it is a number."""
    if not isinstance(given, Usage):
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(given), prepared(Usage))
    except (msgspec.ValidationError, TypeError, ValueError):
        return None


def _name_of(judge: Any, member: str) -> str:
    """The name of the judge or of its model; that of its type if it has none."""
    try:
        name = getattr(judge, member, None)
    except Exception:  # a property of a judge that is not one of ours
        name = None
    return name if isinstance(name, str) and name else type(judge).__name__


def _downgrade_satisfied(judged: JudgedRule) -> JudgedRule:
    """The verdict on shortened events: a violation may be in the part that the judge was not shown."""
    if judged.state in (State.VIOLATED, State.UNDECIDED):
        return judged
    explanation = f"it says `{judged.state}`, but {_SHORTENED}: {judged.explanation}"
    return replace(judged, state=State.UNDECIDED, explanation=explanation)


def _free_id(quote: str, taken: set[str]) -> str:
    slug = "judged-" + (_NO_ID.sub("-", quote.lower()).strip("-")[:40].strip("-") or "rule")
    number = 1
    while (free := slug if number == 1 else f"{slug}-{number}") in taken:
        number += 1
    return free

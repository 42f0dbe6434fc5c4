"""Questions to the judge: asked side by side, within one deadline, and nothing known is lost."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest

import bylaw
from bylaw.comply import api as comply
from bylaw.comply.judge.providers import JudgeReply
from bylaw.comply.judge.session import MOST_AT_ONCE, AnswerCache, run_side_by_side
from bylaw.comply.model import PromptRule
from bylaw.model.events import Usage
from tests.comply.support import EVENTS, PROMPT, judge_that, never_drop, openai_says, rule, verdict

pytestmark = pytest.mark.usefixtures("judge_on", "fresh_cache")


@pytest.fixture
def fresh_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comply, "_SHARED_CACHE", AnswerCache())


def open_rules(number: int) -> list[PromptRule]:
    return [rule("Be kind to the user.", f"kind-{index}") for index in range(number)]


class OwnJudge:
    """Answers each question by a function of the rule's id."""

    model = "gpt-4o-mini"
    name = "own"

    def __init__(self, answer: Callable[[str], None]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.lock = threading.Lock()

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        rule_id = question.split('"rule_id": "')[1].split('"', maxsplit=1)[0]
        with self.lock:
            self.asked.append(rule_id)
        self.answer(rule_id)
        text = f'{{"verdicts": [{{"rule_id": "{rule_id}", "state": "violated", "event_indexes": [3], '
        return JudgeReply(
            text=text + '"explanation": "an insult"}]}', usage=Usage(input_tokens=1000, output_tokens=100)
        )


def check(judge: OwnJudge, timeout_ms: float = 300_000) -> bylaw.ComplianceResult:
    return bylaw.check_compliance_sync(PROMPT, EVENTS, timeout_ms, judge=judge)


def states(result: Any) -> dict[str, str]:
    return {one.rule_id: one.state.value for one in result.extracted_rules}


# -- side by side ------------------------------------------------------------------------------------------------------


def test_eight_questions_are_asked_at_once(stated: Callable[..., None]) -> None:
    stated(*open_rules(3 * MOST_AT_ONCE))
    together = threading.Barrier(MOST_AT_ONCE)
    running: list[int] = []
    most: list[int] = []

    def answer(rule_id: str) -> None:
        running.append(1)
        together.wait(timeout=300)  # one question after the other would wait here forever
        most.append(len(running))
        together.wait(timeout=300)
        running.pop()

    result = check(OwnJudge(answer))
    assert max(most) == MOST_AT_ONCE
    assert set(states(result).values()) == {"violated"}
    assert result.tokens_used == 1100 * 3 * MOST_AT_ONCE


def test_answers_are_in_the_order_of_the_rules_however_they_arrive(stated: Callable[..., None]) -> None:
    stated(*open_rules(4))
    last_was_asked = threading.Event()

    def answer(rule_id: str) -> None:
        if rule_id == "kind-3":
            last_was_asked.set()
        else:
            assert last_was_asked.wait(300)

    result = check(OwnJudge(answer))
    assert [one.rule_id for one in result.violations] == ["kind-0", "kind-1", "kind-2", "kind-3"]


def test_a_long_prompt_fits_its_deadline(stated: Callable[..., None]) -> None:
    stated(*open_rules(16))

    together = threading.Barrier(2)

    def slow(handler: Any) -> None:
        together.wait(timeout=300)  # one question after the other would wait here forever
        openai_says({"verdicts": [verdict(handler.rule_ids[0])]})(handler)

    with judge_that(slow) as (url, asked):
        job = bylaw.Compliance(PROMPT, judge="openai:gpt-4o-mini", judge_url=url)
        result = job.check(EVENTS, timeout_ms=300_000)
    assert len(asked) == 16
    assert result.coverage == 1.0


def test_after_an_exception_no_further_job_starts() -> None:
    started: list[int] = []

    def job(index: int) -> int:
        started.append(index)
        if index == 1:
            raise KeyError(index)
        return index * 10

    jobs = [lambda index=index: job(index) for index in range(5)]
    results = run_side_by_side(jobs, most=1, deadline=time.monotonic() + 300)
    assert started == [0, 1]
    assert results[0] == 0
    assert isinstance(results[1], KeyError)


# -- the deadline ------------------------------------------------------------------------------------------------------


def hanging(*answered: str) -> tuple[OwnJudge, threading.Event]:
    """A judge that ignores its time limit, except for the rules that it answers."""
    release = threading.Event()

    def answer(rule_id: str) -> None:
        if rule_id not in answered:
            release.wait(300)

    return OwnJudge(answer), release


def test_a_timeout_keeps_what_is_known(stated: Callable[..., None]) -> None:
    stated(never_drop(), *open_rules(3))
    judge, release = hanging("kind-1")
    with pytest.raises(bylaw.JudgeTimeout) as raised:
        check(judge, 5_000)
    release.set()
    problem = raised.value
    assert isinstance(problem, TimeoutError)
    assert isinstance(problem, bylaw.BylawError)
    assert str(problem) == "the judge did not finish within timeout_ms=5000: 1 of 3 questions were answered"
    assert problem.result is not None
    assert states(problem.result) == {
        "never-drop-table": "violated",
        "kind-0": "undecided",
        "kind-1": "violated",
        "kind-2": "undecided",
    }
    assert [one.rule_id for one in problem.result.violations] == ["never-drop-table", "kind-1"]
    assert problem.result.detected
    assert problem.result.confidence == 1.0, "of the certain violation"
    assert problem.tokens_used == problem.result.tokens_used == 1100
    assert problem.cost_usd == pytest.approx((1000 * 0.15 + 100 * 0.60) / 1_000_000)
    assert str(problem) in problem.result.degraded
    assert "the tokens of questions without an answer are not counted" in problem.result.degraded


def test_the_asynchronous_call_raises_the_same(stated: Callable[..., None]) -> None:
    stated(never_drop(), *open_rules(1))
    judge, release = hanging()
    with pytest.raises(TimeoutError, match=r"within timeout_ms=150\.5: 0 of 1 questions") as raised:
        asyncio.run(bylaw.check_compliance(PROMPT, EVENTS, 150.5, judge=judge))
    release.set()
    assert isinstance(raised.value, bylaw.JudgeTimeout)
    assert raised.value.result is not None
    assert raised.value.result.detected


def test_after_a_cancellation_no_further_question_is_asked(stated: Callable[..., None]) -> None:
    stated(*open_rules(20))
    judge, release = hanging()

    async def cancel() -> None:
        checked = asyncio.create_task(bylaw.check_compliance(PROMPT, EVENTS, judge=judge))
        while len(judge.asked) < 8:
            await asyncio.sleep(0.01)
        checked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checked
        release.set()

    asyncio.run(cancel())  # which waits for the thread that asks
    assert len(judge.asked) == 8


def test_without_time_nothing_is_asked_and_cached_answers_still_count(stated: Callable[..., None]) -> None:
    stated(*open_rules(1))
    judge = OwnJudge(lambda rule_id: None)
    with pytest.raises(bylaw.JudgeTimeout):
        check(judge, 0.000_001)
    assert judge.asked == []
    check(judge)
    assert states(check(judge, 0.000_001)) == {"kind-0": "violated"}
    assert judge.asked == ["kind-0"]


def test_a_timeout_of_the_judge_itself_is_a_timeout(stated: Callable[..., None]) -> None:
    stated(never_drop(), *open_rules(1))

    def answer(rule_id: str) -> None:
        raise TimeoutError("the gateway gave up")

    with pytest.raises(bylaw.JudgeTimeout, match="timeout_ms=300000") as raised:
        check(OwnJudge(answer))
    assert raised.value.result is not None
    assert raised.value.result.detected


# -- an unreachable judge ----------------------------------------------------------------------------------------------


def test_an_unreachable_judge_keeps_the_answers_that_were_paid_for(stated: Callable[..., None]) -> None:
    stated(never_drop(), *open_rules(2))
    first_is_answered = threading.Event()

    def answer(rule_id: str) -> None:
        if rule_id == "kind-0":
            first_is_answered.set()
            return
        assert first_is_answered.wait(300)
        raise urllib.error.URLError("the line is dead")

    with pytest.raises(bylaw.JudgeUnreachable, match="the line is dead") as raised:
        check(OwnJudge(answer))
    assert states(raised.value.result) == {
        "never-drop-table": "violated",
        "kind-0": "violated",
        "kind-1": "undecided",
    }
    assert raised.value.tokens_used == 1100
    assert raised.value.cost_usd > 0


@pytest.mark.parametrize(
    "problem",
    [ConnectionError("the line is dead"), ConnectionResetError("the line is dead"), OSError("the line is dead")],
    ids=lambda problem: type(problem).__name__,
)
def test_a_connection_error_of_a_custom_judge_is_unreachable(problem: Exception, stated: Callable[..., None]) -> None:
    stated(never_drop(), *open_rules(1))

    def answer(rule_id: str) -> None:
        raise problem

    with pytest.raises(bylaw.JudgeUnreachable, match="the line is dead") as raised:
        check(OwnJudge(answer))
    assert states(raised.value.result) == {"never-drop-table": "violated", "kind-0": "undecided"}
    assert (raised.value.tokens_used, raised.value.cost_usd) == (0, 0.0)


# -- a custom judge with a mistake -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "note"),
    [
        (RuntimeError("out of luck"), "the judge raised RuntimeError: out of luck"),
        (ValueError("no such model"), "the judge raised ValueError: no such model"),
        (ZeroDivisionError(), "the judge raised ZeroDivisionError"),
    ],
)
def test_any_other_exception_of_a_custom_judge_degrades_only_its_own_question(
    problem: Exception, note: str, stated: Callable[..., None]
) -> None:
    stated(never_drop(), *open_rules(20))

    def answer(rule_id: str) -> None:
        if rule_id == "kind-0":
            raise problem

    result = check(OwnJudge(answer))
    assert states(result) == {
        "never-drop-table": "violated",
        "kind-0": "undecided",
        **{f"kind-{index}": "violated" for index in range(1, 20)},
    }
    assert note in result.degraded
    assert result.confidence == 1.0, "of the certain violation"


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        ('{"verdicts": []}', "the judge returned str, not JudgeReply"),
        (None, "the judge returned NoneType, not JudgeReply"),
        ({"text": "{}"}, "the judge returned dict, not JudgeReply"),
        (JudgeReply(text=None), "the judge's reply holds no text"),  # type: ignore[arg-type]
    ],
)
def test_a_reply_of_another_type_degrades_and_keeps_the_certain_violation(
    reply: Any, note: str, stated: Callable[..., None]
) -> None:
    stated(never_drop(), *open_rules(1))

    class Own:
        model = name = "own"

        def ask(self, instructions: str, question: str, *, seconds: float) -> Any:
            return reply

    result = bylaw.check_compliance_sync(PROMPT, EVENTS, judge=Own())
    assert states(result) == {"never-drop-table": "violated", "kind-0": "undecided"}
    assert note in result.degraded
    assert result.detected

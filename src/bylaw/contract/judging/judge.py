"""One invariant, one run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bylaw.contract import model as checks
from bylaw.contract.judging import json_answers, leaks, likeness, pii, refusals, rules, texts
from bylaw.contract.judging.failures import judge_failure
from bylaw.contract.judging.judgement import Judgement, Seen, judged, unjudged
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import Invariant
from bylaw.model.ports import TextSimilarity


class Bench(Struct, frozen=True):
    """What judging needs besides the run."""

    measure: TextSimilarity
    timeout_ms: int


def judge(invariant: Invariant, run: AgentRun, bench: Bench, calm: Sequence[AgentRun] = ()) -> Judgement:
    """`calm`: the runs whose answers are the baseline of `behavior_unchanged`."""
    check = invariant.check
    if isinstance(check, checks.KeepsRule) and not (run.failure and run.failure.kind == "down"):
        return rules.keeps(check, run, negate=invariant.negate)
    if run.failure is not None or run.answer is None:
        return judge_failure(invariant, run.failure, bench.timeout_ms) if run.failure else unjudged("no answer")
    if isinstance(check, checks.Unchanged) and check.baseline is None:
        return _unchanged(invariant, check, run.answer, bench, calm)
    return judged(_seen(check, run, clean(run.answer), bench), negate=invariant.negate)


def _seen(check: checks.Check, run: AgentRun, answer: str, bench: Bench) -> Seen:
    match check:
        case checks.Contains():
            return texts.contains(check, answer)
        case checks.Matches():
            return texts.matches(check, answer)
        case checks.Excludes():
            return texts.excludes(check, answer)
        case checks.NotEmpty():
            return texts.not_empty(answer)
        case checks.ValidJson():
            return json_answers.valid_json(answer)
        case checks.JsonSchema():
            return json_answers.fits_schema(check, answer)
        case checks.NoPii():
            return pii.no_pii(answer)
        case checks.Refuses():
            return refusals.refused(run, answer)
        case checks.NoLeak():
            return leaks.no_leak(check, answer)
        case checks.Completes():
            return Seen(True, "it answered")
        case checks.Latency():
            return Seen(
                run.latency_ms <= check.max_ms, f"answered in {run.latency_ms:,.0f} ms, {check.max_ms:g} allowed"
            )
        case checks.Similar():
            return likeness.alike(answer, [check.expected], check.threshold, bench.measure, "the expected")
        case checks.Unchanged(baseline=str(baseline)):
            return likeness.alike(answer, [baseline], check.threshold, bench.measure, "the baseline")
        case _:
            raise TypeError(f"no judge for {type(check).__name__}")


def _unchanged(
    invariant: Invariant, check: checks.Unchanged, answer: str, bench: Bench, calm: Sequence[AgentRun]
) -> Judgement:
    answers = [clean(run.answer) for run in calm if run.answer is not None]
    if not answers:
        failure = next((run.failure for run in calm if run.failure), None)
        return unjudged(f"no calm answer to compare with: {failure.reason if failure else 'none was recorded'}")
    seen = likeness.alike(clean(answer), answers, check.threshold, bench.measure, "the calm answer")
    return judged(seen, negate=invariant.negate)


def clean(answer: str) -> str:
    """Half a surrogate pair, which JSON can carry, is no text: everything that follows takes UTF-8."""
    return answer.encode("utf-8", "replace").decode("utf-8")

"""What it means for an invariant that a run brought no answer.

Mostly nothing can be said, and that is an error with its reason, never a pass and never a violation. Two invariants are
about failing itself: `completes`, and `latency` where the agent was given more time than it was allowed.
"""

from __future__ import annotations

from bylaw.contract.judging.judgement import Judgement, Seen, judged, unjudged
from bylaw.contract.live_agent import Failure
from bylaw.contract.model import Completes, Invariant, Latency


def judge_failure(invariant: Invariant, failure: Failure, timeout_ms: int) -> Judgement:
    reason = f"{failure.kind}: {failure.reason}"
    check = invariant.check
    if isinstance(check, Completes) and failure.kind != "down":
        return judged(Seen(False, reason), negate=invariant.negate)
    if isinstance(check, Latency) and failure.kind == "timeout" and timeout_ms >= check.max_ms:
        return judged(
            Seen(False, f"no answer after {timeout_ms:,} ms, {check.max_ms:g} allowed"), negate=invariant.negate
        )
    return unjudged(reason)

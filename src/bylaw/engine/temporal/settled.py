"""Whether what was read so far settles a formula for good: `O p` once p was true, whatever follows.

A rule that nothing to come can break is ok even on a recording that stopped early.
"""

from __future__ import annotations

from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.frame import Frame
from bylaw.engine.temporal.shape import variables
from bylaw.engine.temporal.truth import all_of, any_of, negate
from bylaw.model.temporal import And, Back, Constant, Formula, Iff, Implies, Not, Or, Pair


def settled(formula: Formula, frame: Frame | None, builder: Builder, back: int = 0) -> bool | None:
    """Its truth at every position that could still come. `back`: how many `Y` stand around it."""
    match formula:
        case Constant(value=value):
            return value
        case Not(of=of):
            return negate(settled(of, frame, builder, back))
        case And(left=left, right=right):
            return all_of((settled(left, frame, builder, back), settled(right, frame, builder, back)))
        case Or(left=left, right=right):
            return any_of((settled(left, frame, builder, back), settled(right, frame, builder, back)))
        case Implies(left=left, right=right):
            return any_of((negate(settled(left, frame, builder, back)), settled(right, frame, builder, back)))
        case Iff(left=left, right=right):
            one, two = settled(left, frame, builder, back), settled(right, frame, builder, back)
            return None if one is None or two is None else one == two
        case _ if frame is None or variables(formula):
            return None
        case Back(op="Y", of=of):
            # the next position is preceded by the last one, and the one before that by this frame's own `before`
            return settled(of, frame if back == 0 else frame.before, builder, back + 1)
        case Pair(op="S", left=left, right=right) if formula in builder.settlers:
            lasts = builder.settlers[formula](frame) is True and settled(left, frame, builder, back) is True
            return True if lasts or settled(right, frame, builder, back) is True else None
        case _:
            settle = builder.settlers.get(formula)
            return None if settle is None else settle(frame)

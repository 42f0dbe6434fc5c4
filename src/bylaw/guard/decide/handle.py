"""One session of a guard, so that its key need not be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bylaw.guard.decision import Attempt, Decision
from bylaw.model.verdict import Verdict

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard


class GuardSession:
    def __init__(self, guard: Guard, key: str, agent: str | None) -> None:
        self.guard, self.key, self.agent = guard, key, agent

    def decide(self, tool: str, arguments: Any = None, **more: Any) -> Decision:
        more.setdefault("agent", self.agent)
        return self.guard.decide(Attempt(tool=tool, arguments=arguments, session=self.key, **more))

    def record(self, decision: Decision, content: Any = None, **more: Any) -> tuple[Verdict, ...]:
        return self.guard.record(decision, content, **more)

    def release(self, decision: Decision) -> bool:
        return self.guard.release(decision)

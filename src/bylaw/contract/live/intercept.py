"""Where every HTTP exchange of the agent's passes, whoever carries it: here it meets the faults of its run."""

from __future__ import annotations

from bylaw.contract.faults import ToolFault
from bylaw.contract.live.exchanges.model import ModelExchange
from bylaw.contract.live.exchanges.results import ResultAttacks
from bylaw.contract.live.exchanges.tool import ToolExchange
from bylaw.contract.live.plan import Plan
from bylaw.contract.live.recorder import Recorder
from bylaw.wire.exchange import Exchange, Incoming, Outgoing
from bylaw.wire.formats import model_call

__all__ = ["Exchange", "Incoming", "Interceptor", "Outgoing"]


class Interceptor:
    """One per run."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self._results = ResultAttacks(plan)
        self._earlier: dict[str, bytes] = {}
        self._keeps = any(isinstance(fault, ToolFault) and fault.mode == "stale" for fault in plan.injection.faults)
        """first replies are kept for those that come later"""

    def begin(self, request: Outgoing, *, in_tool: bool = False) -> Exchange:
        """What happens to a request of the agent's; `in_tool`: a tool that is called by name makes it."""
        asked = model_call(request)
        if asked is not None:
            if self.recorder.knows_tools:
                self._results.seen_elsewhere = True
            return ModelExchange(request, *asked, self.plan, self.recorder, self._results)
        self._results.seen_elsewhere = True
        fault = self.plan.request(request.url, in_tool=in_tool)
        attacks = [] if in_tool else self.plan.attacks(on_result_of=request.url)
        return ToolExchange(request, fault, attacks, self.plan, self.recorder, self._earlier, keeps=self._keeps)

"""Injection into tool results where only the model's wire shows them: in the request that hands them to the model.

An agent whose tools run inside it sends their results to the model and nowhere else. A result is attacked once and
counted once, but sent again with every later request: the same attack is then put in again.
"""

from __future__ import annotations

from bylaw.contract.live.attacks import attack_result, attack_text
from bylaw.contract.live.plan import Plan
from bylaw.wire.formats.base import Json, ResultPlace, Wire


class ResultAttacks:
    """Of one run. `seen_elsewhere` turns it off: results that pass by name or by HTTP are attacked there."""

    def __init__(self, plan: Plan) -> None:
        self.seen_elsewhere = False
        self._plan = plan
        self._texts: dict[str, list[tuple[str, str]]] = {}
        """what was put into the result of each call: text and strategy"""

    def put_in(self, wire: Wire, request: Json) -> bool:
        """Attack the results in a request, in place; whether any was."""
        if self.seen_elsewhere:
            return False
        changed = False
        for place in list(wire.results(request)):
            for text, strategy in self._attacks_on(place):
                place.alter(lambda result, text=text, how=strategy: str(attack_result(result, text, how)))  # type: ignore[misc]
                changed = True
        return changed

    def _attacks_on(self, place: ResultPlace) -> list[tuple[str, str]]:
        if place.call_id not in self._texts:
            attacks = self._plan.attacks(on_result_of=place.name or "")
            for attack in attacks:
                self._plan.hit(attack)
            self._texts[place.call_id] = [
                (attack_text(attack, self._plan.random(attack)), attack.strategy) for attack in attacks
            ]
        return self._texts[place.call_id]

"""The guard, put together from a file of rules and a store. Apart from the other jobs, which need none of this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import structs

from bylaw.guard.backtest.model import ShadowReport
from bylaw.guard.decide.modes import with_mode
from bylaw.guard.decide.options import Options
from bylaw.guard.decide.versions import of_version
from bylaw.guard.guard import Guard as _Guard
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.guarding import ExecutionMode, GuardPolicy, GuardSet
from bylaw.rules import load_guard

if TYPE_CHECKING:
    from bylaw.guard.incidents.incidents import Incidents
    from bylaw.guard.incidents.loop import Loop
    from bylaw.guard.incidents.model import Incident
    from bylaw.guard.incidents.replay import Replayed

GuardRules: TypeAlias = "str | PathLike[str] | GuardSet | Mapping[str, Any] | Sequence[Any]"


class Guard(_Guard):
    """May this tool call run, right now?

        guard = bylaw.Guard("guard.yaml")
        decision = guard.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="ticket-7"))

    `rules`: the path of a file with guard rules, several, the rules themselves, or what `load_guard` returned.
    `store`: None keeps sessions in memory and records nothing; a path is a SQLite file; or any store of your own.
    `durability`: `normal` survives kill -9, `full` survives power loss. `mode` is for rules that name no execution
    mode, `version` for a manifest with several versions of the agent. Everything else is in `Options`.
    """

    def __init__(
        self,
        rules: GuardRules,
        *,
        store: str | PathLike[str] | GuardStore | None = None,
        durability: Literal["normal", "full"] = "normal",
        mode: ExecutionMode | None = None,
        version: str | None = None,
        tool_schemas: Mapping[str, Any] | None = None,
        options: Options | None = None,
        **more: Any,
    ) -> None:
        from bylaw.guard.stores import MemoryStore, SqliteStore

        kept: GuardStore
        if store is None:
            kept = MemoryStore()
        else:
            kept = SqliteStore(store, durability=durability) if isinstance(store, str | PathLike) else store
        super().__init__(
            with_mode(of_version(policies_of(rules), version), mode),
            store=kept,
            durable=store is not None,
            options=structs.replace(options or Options(), **more),
            tool_schemas=tool_schemas,
        )

    def shadow_report(self, *, rule: str | None = None, examples: int = 3) -> ShadowReport:
        """What rules in shadow, or this guard in shadow, would have changed, by the decisions in its store."""
        from bylaw.guard.backtest.shadow import shadow_report

        return shadow_report(self.store, rule=rule, examples=examples)

    @property
    def incidents(self) -> Incidents:
        """What the follow-up has found: `list`, `get`, `acknowledge`, `assign`, `note`, `solve`, `alerts`."""
        from bylaw.guard.incidents.incidents import Incidents

        return Incidents(self.store, self._clock)

    def follower(self, *, webhook: str | None = None, escalate_to: str | None = None, **more: Any) -> Loop:
        """Follows the store's event log with this guard's rules, as `bylaw guard follow` does: `once()` follows what is
        there, `run(stop)` goes on until the event `stop` is set. `secret=` signs notifications (default: what the
        environment has as BYLAW_WEBHOOK_SECRET); `reminding=`, `patience=` and `poll=` say how often and how long."""
        from bylaw.guard.incidents.api import follower

        return follower(self._followed(), self.store, webhook, escalate_to, clock=self._clock, **more)

    def replay(
        self,
        *,
        since: float | None = None,
        write: bool = False,
        each: Callable[[Incident], object] | None = None,
    ) -> Replayed:
        """The incidents that this guard's rules give over everything recorded, as `bylaw guard replay` does, with their
        `count` and what was `unjudged`. `each` takes them one by one, in place of the list `incidents`."""
        from bylaw.guard.incidents.api import replay

        return replay(self._followed(), self.store, since=since, write=write, each=each, clock=self._clock)

    def _followed(self) -> list[GuardPolicy]:
        if not self._sessions.durable:
            raise ValueError("a guard without a store records nothing that could be followed: store=…")
        return [compiled.policy for compiled in self.policies.all]


def policies_of(rules: GuardRules) -> Sequence[GuardPolicy]:
    if isinstance(rules, GuardSet):
        return rules.policies
    if isinstance(rules, str | PathLike | Mapping):
        return load_guard(rules).policies
    several = list(rules)
    if all(isinstance(one, Mapping) for one in several):
        return load_guard(several).policies
    return [policy for one in several for policy in load_guard(one).policies]

"""The `Guard` class: a guard from a rule file and a store, and the jobs that work on what it has recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Options
from bylaw.guard.policies import (
    GuardRules,
    VersionChoice,
    load_policies,
    refuse_pausing_options,
    select_version,
    with_mode,
)
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.guard_policy import GuardPolicy

if TYPE_CHECKING:
    from bylaw.guard.backtest.shadow import ShadowReport
    from bylaw.guard.incidents.follow import Follower, Replayed
    from bylaw.guard.incidents.incidents import Incidents
    from bylaw.guard.stores.records import Incident


class Guard(BaseGuard):
    """May this tool call run, right now?

        guard = bylaw.Guard("guard.yaml")
        decision = guard.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="ticket-7"))

    `rules`: the path of a file with guard rules, several paths, the rules themselves, or the result of `load_guard`.
    `store`: None holds sessions in memory and records nothing; a path is a SQLite file; or any store of your own.
    `durability`: `normal` survives kill -9, `full` survives power loss. `mode` is for rules that name no execution
    mode. For a manifest, `version` chooses one of several versions (a name, or a mapping from agent to name; default:
    the deployed one), and `inputs` says what `{{inputs.NAME}}` stands for. Everything else is in `Options`.
    """

    def __init__(
        self,
        rules: GuardRules,
        *,
        store: str | PathLike[str] | GuardStore | None = None,
        durability: Literal["normal", "full"] = "normal",
        mode: str | None = None,
        version: VersionChoice = None,
        inputs: Mapping[str, str] | None = None,
        tool_schemas: Mapping[str, Any] | None = None,
        options: Options | None = None,
        **more: Any,
    ) -> None:
        from bylaw.guard.stores import SqliteStore

        policies = with_mode(select_version(load_policies(rules, inputs=inputs), version), mode)
        settings = structs.replace(options or Options(), **more)
        refuse_pausing_options(policies, settings)
        opened: GuardStore
        if store is None:
            opened = MemoryStore()
        else:
            opened = SqliteStore(store, durability=durability) if isinstance(store, str | PathLike) else store
        super().__init__(
            policies,
            store=opened,
            durable=store is not None,
            options=settings,
            tool_schemas=tool_schemas,
        )

    def shadow_report(self, *, rule: str | None = None, examples: int = 3) -> ShadowReport:
        """The decisions in the store that shadow rules, or this guard in shadow, would have changed."""
        from bylaw.guard.backtest.shadow import shadow_report

        return shadow_report(self.store, rule=rule, examples=examples)

    @property
    def incidents(self) -> Incidents:
        """Incidents in the store: `list`, `get`, `acknowledge`, `assign`, `note`, `solve`, `alerts`."""
        from bylaw.guard.incidents.incidents import Incidents

        return Incidents(self.store, self._clock)

    def follower(self, *, webhook: str | None = None, escalate_to: str | None = None, **more: Any) -> Follower:
        """Follows the store's event log with this guard's rules, as `bylaw guard follow` does: `once()` follows the
        events that are there, `run(stop)` continues until the event `stop` is set. `secret=` signs notifications
        (default: BYLAW_WEBHOOK_SECRET from the environment); `reminding=`, `patience=` and `poll=` set the times."""
        from bylaw.guard.incidents.follow import make_follower

        return make_follower(self._recorded_policies(), self.store, webhook, escalate_to, clock=self._clock, **more)

    def replay(
        self, *, since: float | None = None, write: bool = False, each: Callable[[Incident], object] | None = None
    ) -> Replayed:
        """The incidents that this guard's rules find in the whole event log, as `bylaw guard replay` does, with their
        `count` and what was `unjudged`. `each` receives them one by one, instead of the list `incidents`."""
        from bylaw.guard.incidents.follow import replay

        return replay(self._recorded_policies(), self.store, since=since, write=write, each=each, clock=self._clock)

    def _recorded_policies(self) -> list[GuardPolicy]:
        if not self._sessions.durable:
            raise ValueError("a guard without a store records nothing that could be followed: store=…")
        return [compiled.policy for compiled in self.policies.all]

"""The `Guard` class: a guard from a rule file and a store, the functions that it decides, and the jobs that work on
what it has recorded."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec import structs

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt, Options, check_names
from bylaw.guard.policies import (
    FileWatch,
    GuardRules,
    RuleSource,
    VersionChoice,
    decide_nothing,
    refuse_pausing_options,
)
from bylaw.guard.scope import GuardSession, OpenSessions, in_current_session
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.tools import Handling, OnDenied, OnError, Tool, arun_call, invoke_with_arguments, run_call
from bylaw.model.rule import GuardPolicy

if TYPE_CHECKING:
    from bylaw.guard.backtest.report import ShadowReport
    from bylaw.guard.incidents.follower import Follower, ReplayResult
    from bylaw.guard.incidents.incidents import Incidents
    from bylaw.guard.stores.records import Incident
    from bylaw.model.verdict import Verdict


_log = logging.getLogger("bylaw")

F = TypeVar("F", bound=Callable[..., Any])


class Guard(BaseGuard):
    """May this tool call run, right now?

        guard = bylaw.Guard("guard.yaml")

        @guard.tool
        def issue_refund(order_id: str, amount: float): ...

        with guard.session("ticket-7", agent="support"):
            issue_refund("A-23", 199)

    `rules`: the path of a file with guard rules, several paths, the rules themselves, or the result of `load_guard`.
    `store`: None holds sessions in memory and records nothing; a path is a SQLite file; or any store of your own.
    `durability`: `normal` survives kill -9, `full` survives power loss. `mode` is for rules that name no execution
    mode; `request` is refused beside an agent that names another one. For a manifest, `version` chooses one of several
    versions (a name or a status, or a mapping from agent to that; default: the deployed one), and `inputs` says what
    `{{inputs.NAME}}` stands for. `watch=True` loads rule files again when they change. Everything else is in `Options`.
    `close()`, or leaving `with bylaw.Guard(…) as guard:`, closes a store that the guard has opened.
    """

    is_remote = False
    """whether the rules, the reviews and the store are at a service: see `GuardClient`"""

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
        watch: bool = False,
        **more: Any,
    ) -> None:
        from bylaw.guard.stores import SqliteStore

        if durability not in ("normal", "full"):
            raise ValueError(f"durability={durability!r}: expected `normal` or `full`")
        if durability != "normal" and not isinstance(store, str | PathLike):
            raise ValueError(f"durability={durability!r} is for a store that the guard opens: store=PATH")
        if not isinstance(watch, bool):
            raise ValueError(f"watch={watch!r}: expected True or False")
        self._rules = RuleSource(rules, mode=mode, version=version, inputs=inputs)
        watched = FileWatch(self._rules.files(), self.reload) if watch else None  # before the files are read
        policies = self._rules.load()
        if decide_nothing(policies):
            self._decides_nothing()
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
        self._owns_store = opened is not store
        self._lives = OpenSessions()
        self.tools: dict[str, Tool] = {}
        """functions with `@guard.tool`, by the name of their tool"""
        if watched is not None:
            self._before_decision = watched.look

    def _decides_nothing(self) -> None:
        _log.warning("every call is allowed: there is no allowlist and no rule under `guard:` that decides calls")

    # -- functions that the guard decides -------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        ignore: Collection[str] = (),
        on_denied: OnDenied = "raise",
        on_error: OnError = "record",
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        ignore: Collection[str] = (),
        on_denied: OnDenied = "raise",
        on_error: OnError = "record",
        timeout: float | None = None,
    ) -> Any:
        """A decorator: the function, plain or async, runs only if the guard allows it, in the session that is entered.

        `name`: of the tool, if not that of the function. `ignore`: parameters that no rule sees, such as a connection.
        `on_denied`: raise `Denied`, or return its text. `on_error`: whether an exception means that the call was made
        (`record`) or not (`release`). `timeout`: seconds to wait for a person if the call pauses.
        """
        handling = Handling(on_denied=on_denied, on_error=on_error, timeout=timeout)

        def decorate(function: Any) -> Any:
            tool = Tool(self, function, name, ignore, handling, self.tools)
            known = self.tools.get(tool.name)
            if known is not None and not known.is_earlier_form_of(tool):
                raise ValueError(f"two functions are the tool `{tool.name}`: give one of them a name=…")
            self.tools[tool.name] = tool
            return tool.wrapped()

        return decorate if function is None else decorate(function)

    def run(
        self,
        attempt: Attempt,
        function: Callable[..., Any],
        *,
        on_denied: OnDenied = "raise",
        on_error: OnError = "record",
        timeout: float | None = None,
    ) -> Any:
        """Decide the attempt, call `function(**arguments)` with the arguments that may run, and record the result. The
        options are those of `tool`."""
        handling = Handling(on_denied=on_denied, on_error=on_error, timeout=timeout)
        return run_call(self, attempt, invoke_with_arguments(self.tools, attempt, function), handling)

    async def arun(
        self,
        attempt: Attempt,
        function: Callable[..., Any],
        *,
        on_denied: OnDenied = "raise",
        on_error: OnError = "record",
        timeout: float | None = None,
    ) -> Any:
        """`run` for asyncio; the function may be a coroutine function."""
        handling = Handling(on_denied=on_denied, on_error=on_error, timeout=timeout)
        return await arun_call(self, attempt, invoke_with_arguments(self.tools, attempt, function), handling)

    def session(self, key: str | None = None, *, agent: str | None = None, end: bool = True) -> GuardSession:
        """A context, also for `async with`, whose calls belong to this session. The last block that is left ends the
        session; pass `end=False` if it goes on elsewhere. Without a key it gets a new one."""
        key = uuid.uuid4().hex if key is None else key
        check_names(session=key, **({} if agent is None else {"agent": agent}))
        return GuardSession(self, self._lives, key, agent, end=end)

    def end_session(self, session: str, *, complete: bool = True, request: str | None = None) -> tuple[Verdict, ...]:
        """The session is over, whoever is inside, and so are its reviews. Returns the rules that only its end breaks;
        a later attempt begins a new session. While the store cannot be written, the end waits for the next transaction,
        and nothing is returned."""
        check_names(session=session)
        self._lives.end(self.session_key(session))
        return super().end_session(session, complete=complete, request=request)

    def _with_session(self, attempt: Attempt, review: str | None) -> Attempt:
        if not attempt.session:
            attempt = in_current_session(self, attempt)
        return super()._with_session(attempt, review)

    # -- rules that change ----------------------------------------------------------------------------------------

    def reload(self, rules: GuardRules | None = None) -> bool:
        """Use the rules as they are in the files now, or these. Returns whether they have changed.

        Counters of rules that count the same go on. If the new rules cannot be used, this raises as `Guard(…)` does,
        and the old rules stay in force. Decisions that are being made use either the old rules or the new ones.
        """
        source = self._rules if rules is None else structs.replace(self._rules, rules=rules)
        policies = source.load()
        refuse_pausing_options(policies, self.options)
        changed = self._replace_rules(policies)
        self._rules = source
        return changed

    def close(self) -> None:
        """Write what waits for the store, and close the store if this guard has opened it. Every later call is refused
        then."""
        self._before_decision = None
        self._sessions.write_waiting()
        self._is_closed, self._sessions.checked = True, ()  # so that the next decision looks
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        from asyncio import to_thread

        await to_thread(self.close)

    # -- jobs on the record ---------------------------------------------------------------------------------------

    def shadow_report(self, *, rule: str | None = None, examples: int = 3) -> ShadowReport:
        """The decisions in the store that shadow rules, or this guard in shadow, would have changed."""
        from bylaw.guard.backtest.backtest import shadow_report

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
        from bylaw.guard.incidents.follower import make_follower

        return make_follower(self._recorded_policies(), self.store, webhook, escalate_to, clock=self._clock, **more)

    def replay(
        self, *, since: float | None = None, write: bool = False, each: Callable[[Incident], object] | None = None
    ) -> ReplayResult:
        """The incidents that this guard's rules find in the whole event log, as `bylaw guard replay` does, with their
        `count` and what was `unjudged`. `each` receives them one by one, instead of the list `incidents`."""
        from bylaw.guard.incidents.follower import replay

        return replay(self._recorded_policies(), self.store, since=since, write=write, each=each, clock=self._clock)

    def _recorded_policies(self) -> list[GuardPolicy]:
        if not self._sessions.durable:
            raise ValueError("a guard without a store records nothing that could be followed: store=…")
        return [compiled.policy for compiled in self.policies.all]


class StrictGuard(Guard):
    """For programs whose users read no log: rules that decide nothing are refused with a ValueError, since nothing
    checked is not a pass."""

    def _decides_nothing(self) -> None:
        raise ValueError("no rule decides calls: give one a `then`, or name the tools that may be called (`tools:`)")

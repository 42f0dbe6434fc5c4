"""A guard in the three ways it can live, driven step by step, with a clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt, Decision, Options
from bylaw.guard.policies import with_mode
from bylaw.guard.reviews import NotAnswered
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.events import Message, Origin, Request, Response
from bylaw.model.rule import Action, GuardPolicy
from bylaw.rules import load_guard

START = 1_700_000_000.0
WAYS = ("no store", "memory", "restarted")


class Clock:
    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def policies(rules: Any, mode: Any = None) -> list[GuardPolicy]:
    return with_mode(load_guard(rules).policies, mode)


def options(**given: Any) -> Options:
    if "breaker_then" in given:
        given["breaker_then"] = Action(given["breaker_then"])
    return Options(**given)


def guard(
    rules: Any, *, store: GuardStore | None = None, clock: Callable[[], float] | None = None, **given: Any
) -> BaseGuard:
    """A guard of rules in code; without a store it is not durable."""
    mode, schemas = given.pop("mode", None), given.pop("tools", None)
    return BaseGuard(
        policies(rules, mode),
        store=store or MemoryStore(),
        durable=store is not None,
        options=options(**given),
        tool_schemas=schemas,
        clock=clock or Clock(),
    )


def attempt(fields: str | Mapping[str, Any], **more: Any) -> Attempt:
    """`tool`, or a mapping with `tool`, `args` and whatever else an Attempt has."""
    given = {"tool": fields} if isinstance(fields, str) else dict(fields)
    if "args" in given:
        given["arguments"] = given.pop("args")
    given["ancestors"] = tuple(given.get("ancestors", ()))
    return Attempt(**{"session": "default", **given, **more})


class Host:
    """Whoever runs an agent behind a guard: does one step of a case after another and notes what came of each."""

    def __init__(self, case: Mapping[str, Any], way: str, folder: Path) -> None:
        self._case, self._way = case, way
        self._path = folder / "guard.db"
        self._rules = case["policy"]
        self.clock = Clock()
        self._store: GuardStore = MemoryStore() if way != "restarted" else SqliteStore(self._path)
        self._guard = self._make()
        self._decisions: dict[int, Decision] = {}
        self._attempts: dict[int, Attempt] = {}

    def run(self) -> list[dict[str, Any]]:
        return [self._step(i, step) for i, step in enumerate(self._case["steps"])]

    def _make(self) -> BaseGuard:
        return BaseGuard(
            policies(self._rules, self._case.get("mode")),
            store=self._store,
            durable=self._way != "no store",
            options=options(**self._case.get("options", {})),
            tool_schemas=self._case.get("tools"),
            clock=self.clock,
        )

    def _step(self, i: int, step: dict[str, Any]) -> dict[str, Any]:
        if self._way == "restarted":
            self._store.close()
            self._store = SqliteStore(self._path)
            self._guard = self._make()
        name = next(key for key in step if key not in ("want", "about"))
        seen = getattr(self, f"_{name}")(i, step[name])
        return seen if isinstance(seen, dict) else {"is": seen}

    def _attempt(self, i: int, fields: Any) -> dict[str, Any]:
        self._attempts[i] = attempt(fields, call_id=f"call-{i}")
        return self._decided(i, self._guard.decide(self._attempts[i]))

    def _resume(self, i: int, fields: Any) -> dict[str, Any]:
        """A step's index, or `of` with whatever is different this time."""
        given = {"of": fields} if isinstance(fields, int) else dict(fields)
        of = given.pop("of")
        if "args" in given:
            given["arguments"] = given.pop("args")
        again = replace(self._attempts[of], call_id=f"call-{i}", **given)
        self._attempts[i] = again
        return self._decided(i, self._guard.decide(again, review=self._decisions[of].review))

    def _decided(self, i: int, decision: Decision) -> dict[str, Any]:
        self._decisions[i] = decision
        return {
            "action": decision.action.value,
            "decided_by": decision.decided_by,
            "matched": list(decision.matched),
            "denial": decision.denial and decision.denial.value,
            "would": decision.would and decision.would.value,
            "review": decision.review is not None,
            "same_review": decision.review is not None and self._reviews_before(i).count(decision.review) > 0,
            "repeats": decision.repeats,
            "reason": decision.reason.replace(decision.review or "?", "<review>"),
            "advice": (decision.advice or "").replace(decision.review or "?", "<review>"),
            "blind": list(decision.blind),
            "notes": list(decision.notes),
            "uncertain": [match.rule for match in decision.matches if not match.certain],
        }

    def _reviews_before(self, i: int) -> list[str | None]:
        return [decision.review for j, decision in self._decisions.items() if j < i]

    def _record(self, i: int, fields: dict[str, Any]) -> list[str]:
        decision = self._decisions[fields["of"]]
        found = self._guard.record(decision, fields.get("content", "ok"), is_error=fields.get("is_error"))
        return [verdict.rule.id for verdict in found]

    def _release(self, i: int, of: int) -> bool:
        return self._guard.release(self._decisions[of])

    def _observe(self, i: int, fields: dict[str, Any]) -> list[str]:
        given = dict(fields)
        origin = Origin(given.pop("session", "default"), run=given.pop("run", None), agent=given.pop("agent", None))
        kind, content = next(iter(given.items()))
        if kind == "response":
            stop = given.get("stop")
            event: Any = Response(origin=origin, at=self.clock.now, text=content, content=[], stop_reason=stop)
        elif kind == "request":
            event = Request(origin=origin, at=self.clock.now, held_messages=content)
        else:
            event = Message(origin=origin, at=self.clock.now, role="user", content=content)
        return [verdict.rule.id for verdict in self._guard.observe(event)]

    def _start(self, i: int, fields: dict[str, Any]) -> str | None:
        given = {"session": "default", **fields}
        try:
            self._guard.start_run(given.pop("session"), given.pop("run"), **given)
        except ValueError as why:
            return str(why)
        return None

    def _approve(self, i: int, fields: Any) -> str:
        return self._answer("approve", fields)

    def _reject(self, i: int, fields: Any) -> str:
        return self._answer("reject", fields)

    def _answer(self, how: str, fields: Any) -> str:
        given = {"of": fields} if isinstance(fields, int) else dict(fields)
        review = self._decisions[given.pop("of")].review
        assert review is not None
        if "edited" in given:
            edited = given["edited"]
            given["edited"] = {"tool": edited["tool"], "arguments": edited["args"]}
        try:
            return str(getattr(self._guard.reviews, how)(review, **{"by": "ann", **given}).status)
        except NotAnswered as why:
            return str(why)

    def _kill(self, i: int, agent: str) -> None:
        self._guard.kill(agent)

    def _revive(self, i: int, agent: str) -> None:
        self._guard.revive(agent)

    def _terminate(self, i: int, session: str) -> None:
        self._guard.terminate(session)

    def _end(self, i: int, session: str) -> list[str]:
        return [verdict.rule.id for verdict in self._guard.end_session(session)]

    def _advance(self, i: int, seconds: float) -> None:
        self.clock.now += seconds

    def _policy(self, i: int, rules: Any) -> None:
        """New rules, on the same store."""
        self._rules = rules
        self._guard = self._make()

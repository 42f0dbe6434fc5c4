"""What the real guard has decided and written follows from what is written, and nothing else does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bylaw.guard.audit import sessions as replayed
from bylaw.guard.audit.report import AuditReport
from bylaw.guard.audit.verify import twin_digest
from bylaw.guard.decide.attempts import CallIdUsed
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.chain import EVENTS, link
from bylaw.guard.stores.encoding import encode
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import AuditHead, AuditRow, Digest
from bylaw.model.events import Message, Origin, Request, Response
from tests.audit.support import RULES, kinds, verified
from tests.guard.strategies import Rules, arguments, mixed_rules, tools
from tests.guard.support import Clock, attempt, guard

SECRET = "sk-live-0123456789abcdef0123"
BOTH = [
    {
        "id": "both",
        "when": {"arg_regex": {"path": "key", "pattern": "^sk-live"}, "arg_gt": {"path": "n", "value": 5}},
        "then": "block",
    },
    {"id": "cap", "when": {"arg_gt": {"path": "n", "value": 5}}, "then": "block"},
]
ACTIONS = st.sampled_from(["block", "pause", "allow", "terminate_session"])
acting = st.tuples(mixed_rules, st.lists(ACTIONS, min_size=8, max_size=8), st.booleans()).map(lambda one: _acting(*one))
secrets = st.fixed_dictionaries(
    {}, optional={"n": st.sampled_from([5, SECRET]), "password": st.sampled_from(["x", "5"])}
)
sessions = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), sessions, tools, arguments, st.sampled_from([None, "r1"])),
        st.tuples(st.just("call"), sessions, tools, arguments, st.none()),
        st.tuples(st.just("result"), st.integers(0, 3), st.sampled_from(["ok", {"n": 5}, None])),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("approve"), st.booleans()),
        st.tuples(st.just("resume"), st.integers(0, 2)),
        st.tuples(st.just("response"), sessions, st.sampled_from(["hi", ""])),
        st.tuples(st.just("message"), sessions),
        st.tuples(st.just("take"), sessions, tools, arguments),
        st.tuples(st.just("judge"), sessions, tools, arguments, st.sampled_from([None, "c1"])),
        st.tuples(st.just("run"), sessions),
        st.tuples(st.sampled_from(["end", "terminate"]), sessions),
        st.tuples(st.sampled_from(["kill", "revive"])),
        st.tuples(st.just("rules")),
    ),
    max_size=20,
)


def _acting(rules: Rules, actions: list[str], in_shadow: bool) -> Rules:
    """Not only in shadow, as the tests of the engine have them."""
    pairs = zip(rules, actions, strict=False)
    return [
        {**rule, "then": _restricting(then) if "kind" in rule else then, "shadow": in_shadow} for rule, then in pairs
    ]


def _restricting(then: str) -> str:
    return "block" if then == "allow" else then


class Host:
    """Does what an agent and its people do, one step after another."""

    def __init__(self, store: GuardStore, *rules: Any, **options: Any) -> None:
        self._clock = Clock()
        self._guards = [guard(one, store=store, clock=self._clock, **options) for one in rules]
        self._decided: list[tuple[Attempt, Decision]] = []

    @property
    def guard(self) -> BaseGuard:
        return self._guards[0]

    def do(self, step: tuple[Any, ...]) -> None:
        self._clock.now += 0.75
        getattr(self, f"_{step[0]}")(*step[1:])

    def _call(self, session: str, tool: str, given: Any, run: str | None) -> None:
        self._decide(Attempt(tool=tool, arguments=given, session=session, run=run), None)

    def _decide(self, attempt: Attempt, review: str | None) -> None:
        self._decided.append((attempt, self.guard.decide(attempt, review=review)))

    def _of(self, back: int) -> tuple[Attempt, Decision] | None:
        return self._decided[-1 - back] if back < len(self._decided) else None

    def _result(self, back: int, content: Any) -> None:
        if (one := self._of(back)) and one[1].allowed:
            self.guard.record(one[1], content)

    def _release(self, back: int) -> None:
        if one := self._of(back):
            self.guard.release(one[1])

    def _approve(self, yes: bool) -> None:
        for review in self.guard.reviews.list(status="pending"):
            (self.guard.reviews.approve if yes else self.guard.reviews.reject)(review.id, by="ann")

    def _resume(self, back: int) -> None:
        if (one := self._of(back)) and one[1].review:
            self._decide(one[0], one[1].review)

    def _response(self, session: str, text: str) -> None:
        request = Request(origin=Origin(session)) if not text else None
        self.guard.observe(Response(origin=Origin(session), at=self._clock.now, text=text, request=request))

    def _message(self, session: str) -> None:
        self.guard.observe(Message(origin=Origin(session), at=self._clock.now, role="user", content="hi"))

    def _take(self, session: str, tool: str, given: Any) -> None:
        self.guard.record_past_call(Attempt(tool=tool, arguments=given, session=session))

    def _judge(self, session: str, tool: str, given: Any, call_id: str | None) -> None:
        with suppress(CallIdUsed):
            self.guard.judge_past_call(Attempt(tool=tool, arguments=given, session=session, call_id=call_id))

    def _run(self, session: str) -> None:
        self.guard.start_run(session, "r1", agent="helper")

    def _end(self, session: str) -> None:
        self.guard.end_session(session)

    def _terminate(self, session: str) -> None:
        self.guard.terminate(session)

    def _kill(self) -> None:
        self.guard.kill()

    def _revive(self) -> None:
        self.guard.revive()

    def _rules(self) -> None:
        self._guards = [*self._guards[1:], self._guards[0]]


def _written(steps: list[tuple[Any, ...]], *rules: Any, **options: Any) -> MemoryStore:
    store = MemoryStore()
    host = Host(store, *rules, **options)
    for step in steps:
        host.do(step)
    return store


def _all_recomputed(report: AuditReport) -> None:
    assert (report.findings, report.unrecomputed) == ([], {})
    assert report.recomputed == report.decisions


@given(acting, STEPS, st.booleans())
def test_what_the_guard_wrote_follows_from_what_it_wrote(rules: Rules, steps: Any, shadow: bool) -> None:
    options = {"shadow": shadow, "breaker_after": 2, "breaker_then": "terminate_session"}
    _all_recomputed(verified(_written(steps, rules, **options), rules))


@given(acting, acting, STEPS)
def test_rules_that_change_are_followed(rules: Rules, others: Rules, steps: Any) -> None:
    _all_recomputed(verified(_written(steps, rules, others), rules, others))


@given(acting, STEPS)
def test_sessions_that_do_not_fit_into_memory_are_followed(rules: Rules, steps: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replayed, "MOST_SESSIONS", 1)
        _all_recomputed(verified(_written(steps, rules), rules))


@given(acting, acting, STEPS)
def test_rules_that_change_are_followed_through_the_file(rules: Rules, others: Rules, steps: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replayed, "MOST_SESSIONS", 1)
        _all_recomputed(verified(_written(steps, rules, others), rules, others))


@pytest.mark.parametrize("first", [("call", "b", "pay", None, None), ("message", "b")], ids=["denied", "message"])
def test_a_session_whose_rules_remember_nothing_moves_to_the_file(first: Any) -> None:
    """Its rules have seen it, so its end breaks one of them."""
    rules = [
        {"id": "never", "when": {"arg_missing": {"path": "n"}}, "then": "block"},
        {"id": "once", "kind": "must_call_once", "scope": "session", "params": {"tool": "pay"}, "then": "block"},
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replayed, "MOST_SESSIONS", 1)
        store = _written([first, ("call", "a", "pay", None, None), ("end", "b")], rules)
        assert [one["rule"] for one in store.audit(after=0)[-1].data["found"]] == ["once"]
        _all_recomputed(verified(store, rules))


only_when = acting.map(lambda rules: [rule for rule in rules if "when" in rule])
asking = st.lists(
    st.fixed_dictionaries(
        {
            "when": st.sampled_from(
                [
                    {"arg_regex": {"path": "password", "pattern": "5"}},
                    {"arg_eq": {"path": "password", "value": 5}},
                    {"not": {"arg_regex": {"path": "n", "pattern": "live"}}},
                    {"arg_contains": {"path": "n", "value": "live"}, "arg_present": {"path": "password"}},
                    {"any_of": [{"arg_gt": {"path": "n", "value": 3}}, {"arg_ne": {"path": "password", "value": "x"}}]},
                ]
            ),
            "then": ACTIONS,
        }
    ),
    min_size=1,
    max_size=3,
).map(lambda rules: [{"id": f"q{i}", **rule} for i, rule in enumerate(rules)])
secret_steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), sessions, tools, secrets, st.none()),
        st.tuples(st.just("call"), sessions, tools, secrets, st.none()),
        st.tuples(st.just("approve"), st.just(True)),
        st.tuples(st.just("result"), st.integers(0, 3), st.sampled_from(["ok", SECRET])),
    ),
    max_size=15,
)


@given(only_when, asking, secret_steps)
def test_calls_without_their_secrets_are_recomputed(rules: Rules, more: Rules, steps: Any) -> None:
    store = _written(steps, [*rules, *more], breaker_after=2, breaker_then="terminate_session")
    assert not any(SECRET in str(row.data) for row in store.audit())
    _all_recomputed(verified(store, [*rules, *more]))


def test_the_row_keeps_what_predicates_said() -> None:
    rules = [
        {"id": "live", "when": {"arg_regex": {"path": "key", "pattern": "^sk-live"}}, "then": "block"},
        {"id": "cap", "when": {"arg_gt": {"path": "n", "value": 5}}, "then": "block"},
    ]
    store = _written([("call", "a", "pay", {"key": SECRET, "n": 1}, None)], rules)
    [row] = store.audit()
    assert row.data["attempt"]["arguments"]["key"] == "[redacted: api key]"
    assert row.data["redacted"] == {"arguments": [["key"]], "truths": {"live": [True]}}


def test_a_truth_that_was_changed_shows_in_the_verdict() -> None:
    rules = [{"id": "live", "when": {"arg_regex": {"path": "key", "pattern": "^sk-live"}}, "then": "block"}]
    store = _written([("call", "a", "pay", {"key": SECRET}, None)], rules)
    forged = Forged(store, lambda data: data["redacted"]["truths"].update(live=[False]))
    assert kinds(verified(forged, rules)) == [(1, "verdict")]


def test_truths_belong_to_the_predicate_that_was_asked() -> None:
    store = _written([("call", "a", "pay", {"key": SECRET, "n": 1}, None)], BOTH)

    def turned_round(data: Any) -> None:
        data["redacted"]["truths"]["both"].reverse()
        data["asked"]["both"].reverse()

    _all_recomputed(verified(Forged(store, turned_round), BOTH))


@pytest.mark.parametrize("asked", [None, ["another"]])
def test_truths_of_other_predicates_are_not_taken(asked: Any) -> None:
    """Rows of a version that asked for less say it of fewer predicates."""
    steps = [("call", "a", "pay", {"key": SECRET, "n": 1}, None), ("call", "a", "send", {}, None)]
    store = _written(steps, BOTH)

    def of_fewer(data: Any) -> None:
        data["redacted"]["truths"]["both"] = [False]
        data["asked"] = {"both": asked}
        if asked is None:
            del data["asked"]

    report = verified(Forged(store, of_fewer), BOTH)
    assert report.findings == []
    assert {reason: left.seqs for reason, left in report.unrecomputed.items()} == {
        "the recorded predicates on redacted arguments are not those of its rules": [1, 2]
    }


@pytest.mark.parametrize("said", ["pay, please", "pay now"])
def test_a_verdict_on_what_the_user_has_said_is_recomputed(said: str) -> None:
    formula = 'G (tool(pay) -> O user("please"))'
    rules = [{"id": "polite", "kind": "temporal", "params": {"formula": formula}, "then": "block"}]
    store = MemoryStore()
    guarding = guard(rules, store=store)
    guarding.observe(Message(origin=Origin("default"), role="user", content=said))
    guarding.observe(Response(origin=Origin("default"), text="I will"))
    assert guarding.decide(attempt("pay")).allowed is ("please" in said)
    _all_recomputed(verified(store, rules))


def test_a_counter_that_is_called_like_a_secret_is_no_secret() -> None:
    rules = [
        {"id": "few", "when": {"call_count_in_session_gt": {"tool": "rotate_secret", "value": 1}}, "then": "block"}
    ]
    store = _written([("call", "a", "rotate_secret", {}, None)] * 3, rules)
    assert [row.data["decision"]["counters"] for row in store.audit()] == [
        {"few: session rotate_secret": count} for count in (1, 2, 3)
    ]
    _all_recomputed(verified(store, rules))


def test_behaviour_rules_on_redacted_values_are_named() -> None:
    rules = [
        {
            "id": "same",
            "kind": "temporal",
            "params": {"formula": "G (tool(pay, args.key = $k) -> O tool(verify, args.key = $k))"},
            "then": "block",
        }
    ]
    steps = [("call", "a", tool, {"key": SECRET}, None) for tool in ("verify", "pay", "send")]
    report = verified(_written(steps, rules), rules)
    assert report.findings == []
    assert {reason: left.seqs for reason, left in report.unrecomputed.items()} == {
        "`same` looked at values that are not recorded": [1, 2]
    }
    assert (report.recomputed, report.exit_code) == (1, 3)


def test_rules_that_were_not_given_are_named() -> None:
    store = _written([("call", "a", "pay", None, None)], RULES)
    assert verified(store).exit_code == 0, "they are in the store"
    store._tables.rules.clear()
    report = verified(store)
    [(reason, left)] = report.unrecomputed.items()
    assert reason.startswith("the rules sha256:") and left.rows == 1
    assert (report.exit_code, report.recomputed) == (1, 0)
    assert [(finding.kind, finding.table) for finding in report.findings] == [("dropped", "rules")]


def test_nothing_to_verify_is_not_a_pass() -> None:
    assert verified(MemoryStore(), RULES).exit_code == 3
    assert verified(MemoryStore(), RULES, allow_unrecomputed=True).exit_code == 3


def test_what_came_before_a_pruning_is_named() -> None:
    clock, store = Clock(), MemoryStore()
    running = guard(RULES, store=store, clock=clock)
    running.decide(Attempt(tool="verify", session="a"))
    clock.now += 100
    running.decide(Attempt(tool="pay", session="a"))
    running.decide(Attempt(tool="verify", session="b"))
    store.prune(before=clock.now - 50)
    report = verified(store, RULES)
    assert (report.findings, report.recomputed) == ([], 1)
    assert [left.seqs for left in report.unrecomputed.values()] == [[2]]


def test_a_session_that_pruning_forgot_begins_again() -> None:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "guard.db", clock=clock)
        running = guard(RULES, store=store, clock=clock)
        for _ in range(2):
            running.decide(Attempt(tool="pay", session="a"))
            clock.now += 100
        store.prune(before=clock.now - 50)
        clock.now += 100
        running.decide(Attempt(tool="pay", session="b"))
        store.prune(before=clock.now - 50)
        running.decide(Attempt(tool="pay", session="a"))
        report = verified(store, RULES)
        assert (report.findings, report.recomputed) == ([], 2)
        store.close()


def test_tool_schemas_are_asked_again_where_they_are_given() -> None:
    schemas = {"pay": {"type": "object", "required": ["amount"]}}
    store = _written([("call", "a", "pay", {}, None), ("call", "a", "pay", {"amount": 1}, None)], RULES, tools=schemas)
    assert verified(store, RULES).recomputed == 1
    _all_recomputed(verified(store, RULES, tool_schemas=schemas))


def test_an_attempt_that_could_not_be_written_is_named() -> None:
    steps = [("call", "a", "pay", {"amount": float("nan")}, None), ("call", "a", "verify", {}, None)]
    report = verified(_written(steps, RULES), RULES)
    assert (report.findings, report.recomputed) == ([], 1)
    assert list(report.unrecomputed) == ["the attempt could not be written down in full"]


def test_text_that_looks_redacted_is_not_taken_for_it() -> None:
    rules = [{"id": "r", "when": {"arg_regex": {"path": "key", "pattern": "redacted"}}, "then": "block"}]
    given_by_agent = {"key": "[redacted: api key]", "unwritable": "dict", "why": "because"}
    store = _written([("call", "a", "pay", given_by_agent, None)], rules)
    _all_recomputed(verified(store, rules))
    assert store.audit()[0].data["decision"]["action"] == "block"


class Forged(MemoryStore):
    """The rows of a store, one changed, and a chain and events that fit them."""

    def __init__(self, store: MemoryStore, change: Callable[[Any], Any], at: int = 0) -> None:
        super().__init__()
        self._original = store
        previous, self._rows = store.audit_head().chain, list[AuditRow]()
        for i, row in enumerate(store.audit()):
            if i == at:
                change(row.data)
            hash = link(row.seq, row.at, encode(row.data), previous, row.stored.encode())
            self._rows.append(replace(row, previous=previous, hash=hash))
            previous = hash

    def snapshot(self) -> AbstractContextManager[MemoryStore]:
        return nullcontext(self)

    def audit(self, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        return self._rows[after : after + limit]

    def audit_head(self) -> AuditHead:
        return AuditHead("0" * 64, len(self._rows), self._rows[-1].hash)

    def digests(self, table: str, *, after: int = 0, limit: int = 1000) -> list[Digest]:
        found = self._original.digests(table, after=after, limit=limit)
        if table != EVENTS:
            return found
        twins = [row for row in self._rows if row.data["kind"] not in ("rules", "stored")]
        return [one._replace(digest=twin_digest(twins[one.number - 1])) for one in found]

    def rules(self) -> dict[str, str]:
        return self._original.rules()

    def last_event(self) -> int:
        return self._original.last_event()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", "allow"),
        ("decided_by", "nobody"),
        ("matched", []),
        ("counters", {"ask: calls": 7}),
        ("repeats", 9),
        ("denial", "transient"),
        ("would", "block"),
    ],
)
def test_a_verdict_that_does_not_follow_is_found_although_the_chain_fits(name: str, value: Any) -> None:
    steps = [("call", "a", "pay", {"amount": 900}, None), ("call", "b", "verify", {}, None)]
    store = _written(steps, RULES)
    report = verified(Forged(store, lambda data: data["decision"].update({name: value})), RULES)
    assert (kinds(report), report.recomputed, report.exit_code) == ([(1, "verdict")], 1, 1)


def test_an_attempt_that_was_made_up_is_found_although_the_chain_fits() -> None:
    store = _written([("call", "a", "pay", {"amount": 900}, None)], RULES)
    forged = Forged(store, lambda data: data["attempt"]["arguments"].update(amount=1))
    [finding] = verified(forged, RULES).findings
    assert (finding.kind, finding.session) == ("verdict", "a")
    assert "does not follow" in finding.message


def test_what_follows_a_row_of_no_known_form_is_left_out_and_not_called_wrong() -> None:
    verified_first = [("call", "a", "verify", {}, None), ("result", 0, "ok"), ("call", "a", "pay", {"amount": 1}, None)]
    store = _written([*verified_first, ("call", "b", "verify", {}, None)], RULES)
    at = next(i for i, row in enumerate(store.audit()) if row.data["kind"] == "result")
    report = verified(Forged(store, lambda data: data.pop("content"), at), RULES)
    assert (report.findings, report.recomputed) == ([], 2)
    assert list(report.unrecomputed) == ["the row is not one that a guard writes"]


def test_results_and_follow_ups_inside_a_turn_are_recomputed(tmp_path: Path) -> None:
    """Call, result, call in one turn, and a response that is observed before its calls."""
    trigger = [{"path": "response.text", "op": "contains", "value": "total"}]
    rules = [
        {"id": "stop", "kind": "temporal", "params": {"never": "pay", "after": {"result": "look", "error": True}}},
        {
            "id": "ask",
            "kind": "must_followup",
            "params": {"trigger": trigger, "must": {"kind": "tool_call", "tool_name": "ask"}},
        },
    ]
    acting_rules = [{**rule, "scope": "session", "then": "block"} for rule in rules]
    store = SqliteStore(tmp_path / "guard.db")
    running = guard(acting_rules, store=store, clock=Clock())
    found = []
    for text, tools_called in (("total 5", ["look"]), ("let me", ["look", "ask"]), ("total 6", ["pay"]), ("bye", [])):
        found += running.observe(Response(origin=Origin("s"), text=text, content=[]))
        for tool in tools_called:
            decision = running.decide(Attempt(tool=tool, session="s"))
            assert decision.allowed == (tool != "pay")
            if decision.allowed:
                running.record(decision, "no", is_error=True)
    found += running.end_session("s")
    assert [verdict.rule.id for verdict in found] == ["ask"]
    assert not verified(store, acting_rules).findings


# -- calls that differ only in what is redacted -------------------------------------------------------------------

PAUSING = {"guard": {"mode": "hitl", "rules": [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause"}]}}
FIRST = {"n": 1, "password": "hunter2-first"}


@pytest.mark.parametrize(
    ("approved", "edited", "resumed", "recomputed"),
    [
        (FIRST, None, {"n": 1, "password": "hunter2-second"}, 3),
        (FIRST, None, {"n": 1, "password": "[redacted: secret]"}, 3),
        (FIRST, None, {"n": 2, "password": "hunter2-second"}, 4),  # differs in more than that
        ({"n": 1}, FIRST, {"n": 1, "password": "hunter2-second"}, 3),
        ({"n": 1}, FIRST, {"n": 1, "password": "[redacted: secret]"}, 3),
    ],
)
def test_a_resumed_call_with_another_secret_is_named_and_not_called_wrong(
    approved: Any, edited: Any, resumed: Any, recomputed: int
) -> None:
    store = MemoryStore()
    running = guard(PAUSING, store=store)
    review = running.decide(Attempt(tool="pay", arguments=approved, session="s")).review
    assert review is not None
    running.reviews.approve(review, by="ann", edited=edited and {"tool": "pay", "arguments": edited})
    other = running.decide(Attempt(tool="pay", arguments=resumed, session="s"), review=review)
    assert not other.allowed
    assert running.decide(Attempt(tool="pay", arguments=edited or approved, session="s"), review=review).allowed
    running.decide(Attempt(tool="pay", arguments={"n": 3}, session="s"))
    report = verified(store, PAUSING)
    assert (report.findings, report.recomputed, report.decisions) == ([], recomputed, 4)
    assert len(report.unrecomputed) == 4 - recomputed


@pytest.mark.parametrize("other", ["hunter2-second", "[redacted: secret]"])
@pytest.mark.parametrize("run", [None, "r1"])
def test_denials_of_calls_with_different_secrets_are_counted_apart(other: str, run: str | None) -> None:
    rules = [{"id": "no", "when": {"tool_name_in": ["pay"]}, "then": "block"}]
    store = MemoryStore()
    running = guard(rules, store=store)
    running.start_run("s", "r1", agent="clerk")
    for password in ("hunter2-first", other, "hunter2-first", other, other):
        running.decide(Attempt(tool="pay", arguments={"password": password}, session="s", run=run))
    _all_recomputed(verified(store, rules))


def test_such_a_refusal_that_was_made_up_without_secrets_is_found() -> None:
    store = MemoryStore()
    running = guard(PAUSING, store=store)
    review = running.decide(Attempt(tool="pay", arguments={"n": 1}, session="s")).review
    assert review is not None
    running.reviews.approve(review, by="ann")
    assert running.decide(Attempt(tool="pay", arguments={"n": 1}, session="s"), review=review).allowed
    at = next(i for i, row in enumerate(store.audit()) if "resumes" in row.data)
    refusal = {"action": "block", "reason": "the call is not the one that was approved", "denial": "permission"}
    report = verified(Forged(store, lambda row: row["decision"].update(refusal), at), PAUSING)
    assert [kind for _, kind in kinds(report)] == ["verdict"]


ENDS = [{"id": "stop", "when": {"arg_gt": {"path": "n", "value": 5}}, "then": "terminate_session"}]
UNJUDGED = [
    ("judge", "a", "pay", {"n": 9}, "c1"),
    ("judge", "a", "pay", {"n": 9}, None),
    ("call", "a", "pay", {}, None),
]


def test_a_session_that_a_past_call_has_ended_stays_ended() -> None:
    store = _written(UNJUDGED, ENDS)
    ended, later, decided = (row.data for row in store.audit() if row.data["kind"] in ("taken", "decision"))
    assert (ended["terminated"], "terminated" in later) == ("stop", False)
    assert decided["decision"]["decided_by"] == "session"
    _all_recomputed(verified(store, ENDS))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda data: data.pop("terminated"), "its `terminated`"),
        (lambda data: data.update(terminated="another"), "its `terminated`"),
        (lambda data: data.update(matches=[]), "its `matches`"),
    ],
)
def test_a_past_call_whose_end_of_the_session_was_changed_is_found(change: Any, finding: str) -> None:
    store = _written(UNJUDGED, ENDS)
    at = next(i for i, row in enumerate(store.audit()) if row.data["kind"] == "taken")
    report = verified(Forged(store, change, at), ENDS)
    assert [one.message.startswith(finding) for one in report.findings] == [True]


def test_a_past_call_that_was_made_up_under_a_used_id_is_found() -> None:
    store = _written([("judge", "a", "pay", {"n": 1}, "c1"), ("judge", "a", "pay", {"n": 2}, "c2")], ENDS)
    at = max(i for i, row in enumerate(store.audit()) if row.data["kind"] == "taken")

    def reuse(data: Any) -> None:
        data["call_id"] = data["attempt"]["call_id"] = "c1"

    (found,) = verified(Forged(store, reuse, at), ENDS).findings
    assert found.message.startswith("its `matches`") and "already used" in (found.expected or "")


def test_whether_a_past_call_ended_its_session_by_a_secret_is_named_and_not_called_wrong() -> None:
    rules = [
        {
            "id": "same",
            "kind": "temporal",
            "params": {"formula": "G (tool(pay, args.key = $k) -> O tool(verify, args.key = $k))"},
            "then": "terminate_session",
        }
    ]
    steps = [
        ("judge", "a", "verify", {"key": SECRET}, None),
        ("judge", "a", "pay", {"key": SECRET + "4567"}, None),
        ("call", "a", "look", {}, None),
    ]
    store = _written(steps, rules)
    assert [row.data.get("terminated") for row in store.audit() if row.data["kind"] == "taken"] == [None, "same"]
    report = verified(store, rules)
    assert (report.findings, report.recomputed) == ([], 0)
    assert list(report.unrecomputed) == ["`same` looked at values that are not recorded"]

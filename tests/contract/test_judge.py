"""What each invariant type says of one run: answers as data, failures, negation, personal data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from bylaw.contract import model as checks
from bylaw.contract.checks import find_pii, has_no_pii
from bylaw.contract.faults import Attempt
from bylaw.contract.judge import Judge
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.contract.results import CellOutcome
from bylaw.rules import parse_rules
from bylaw.text.similarity import Lexicon
from tests.contract.scripted import invariant, ran
from tests.support.build import trace
from tests.support.yaml_files import load_yaml

pytestmark = pytest.mark.sampled(2)

HERE = Path(__file__).parent
JUDGE = Judge(Lexicon(()), timeout_ms=1000)
OK, VIOLATED, ERROR, VACUOUS = CellOutcome.OK, CellOutcome.VIOLATED, CellOutcome.ERROR, CellOutcome.VACUOUS
SLOWED = (Attempt("search", is_faulted=True, has_failed=False),)
"""what `gives_up_politely` needs to say anything"""
CASES = load_yaml((HERE / "judge.yaml").read_text("utf-8"))
PII = load_yaml((HERE / "pii.yaml").read_text("utf-8"))
TYPES: dict[str, Any] = {one.__struct_config__.tag: one for one in checks.Check.__subclasses__()}


def _check(case: dict[str, Any]) -> checks.Check:
    fields = {key: value for key, value in case.items() if key not in ("check", "answer", "ok", "found")}
    return cast(checks.Check, msgspec.convert({"type": case["check"], **fields}, TYPES[case["check"]], strict=False))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['check']}: {case['answer'][:30]!r}")
def test_answer_is_judged_and_negation_inverts_it(case: dict[str, Any]) -> None:
    run, check = replace(ran(case["answer"]), attempts=SLOWED), _check(case)
    plain = JUDGE.judge(invariant(check=check), run)
    negated = JUDGE.judge(invariant(check=check, negate=True), run)
    assert plain.outcome is (OK if case["ok"] else VIOLATED), plain.found
    assert negated.outcome is (VIOLATED if case["ok"] else OK)
    assert negated.found == plain.found, "what was found does not depend on what is wanted"
    assert case.get("found", "") in plain.found


@pytest.mark.parametrize(
    ("check", "negate"),
    [
        (checks.NoPii(), False),
        (checks.Excludes(patterns=("4111 1111",)), False),
        (checks.Matches(pattern="4111 1111"), True),
        (checks.Contains(values=("4111 1111",)), True),
        (checks.NoLeak(patterns=("4111 1111",)), False),
    ],
)
@pytest.mark.parametrize(
    ("hidden", "clean"),
    [
        ('{"blocks": [{"text": "card \\u0034111 1111 1111 1111"}]}', '{"blocks": [{"text": "card \\u0034\\u0032"}]}'),
        ("card 41\u200b11 1111 1111 1111", "card 41\u200b11"),
        ("card **4111** 1111 `1111` 1111", "card **4111** `11`"),
        ("card 4111&#32;1111&#x20;1111 1111", "card 4111&#32;11"),
        ("card *4111* __1111__ _1111_ 1*11*1", "card *4111* _11_"),
        ("card <b>4111</b> <span class='x'>11</span>11 1111 1111", "card <b>4111</b>"),
        ("card [4111](http://x.y) 1111 1111 1111", "card [4111](http://x.y) 11"),
    ],
)
def test_escapes_and_marks_hide_nothing_that_is_forbidden(
    check: checks.Check, negate: bool, hidden: str, clean: str
) -> None:
    judged = [JUDGE.judge(invariant(check=check, negate=negate), ran(answer)) for answer in (hidden, clean)]
    assert [one.outcome for one in judged] == [VIOLATED, OK]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("card 4111 1111\n1111 1111", "card"),
        ("4111\n1111\n1111\n1111", "card"),
        ("4111 1111  \r\n > 1111 1111", "card"),
        ("card 4111&nbsp;1111&nbsp;1111&nbsp;1111", "card"),
        ("card 4111\u00a01111\u00a01111\u20091111", "card"),
        ("card 4111<br>1111<br/>1111 1111", "card"),
        ("4*111 1111 1111 111*1", "card"),
        ("write to jane.doe@\nexample.com", "e-mail"),
        ("write to jane.doe&#64;example.com", "e-mail"),
        ("write to **jane.doe**@example.com", "e-mail"),
        ("write to jane.doe\\@example\\.com", "e-mail"),
        ("GB82 WEST 1234\n5698 7654 32", "IBAN"),
        ("call 555-234-\n5678", "phone"),
        ("key sk-proj-abcdefgh\nijklmnop1234", "api key"),
        ('{"text": "card 4111 1111\\n1111 1111"}', "card"),
        ("\u0664\u0661\u0661\u0661 1111 1111 1111", "card"),
        ("\U0001d7d2\U0001d7cf11 1111 1111 1111", "card"),
        ("4111/1111/1111/1111", "card"),
        ("4111 \u2013 1111 \u2013 1111 \u2013 1111", "card"),
        ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "card"),
        ("jane.doe [at] example.com", "e-mail"),
        ("jane.doe(at)example.co.uk", "e-mail"),
        ("see you (at) the shop", None),
        ("4111 1111 11<wbr>11 1111", "card"),
        ("4111 1111 11<!-- x > y\n -->11 1111", "card"),
        ("4111 <kbd>1111</kbd> <ins>11</ins>11 <bdi dir='ltr'>1111</bdi>", "card"),
        ('{"to": ["jane@exa", "mple.com"]}', "e-mail"),
        ('{"a": {"to": [["jane@exa"], ["mple.com"]]}}', "e-mail"),
        ('[["4111 1111"], ["1111 1111"]]', "card"),
        ('Here it is:\n```json\n["4111 1111", " 1111 1111"]\n```\nBye', "card"),
        ('~~~\n{"a": "\\u0034111 1111 1111 1111"}\n~~~', "card"),
        ("| 4111 1111 | 1111 1111 |", "card"),
        ("| card | 4111 1111      |   1111 | 1111 |", "card"),
        ("<tr><td>4111 1111</td>\n<td class='x'>1111 1111</td></tr>", "card"),
        ('{"orders": ["4111", "1111", "1111", "1111"]}', None),
        ('[["4111", "1111"], ["1111", "1111"]]', None),
        ("| 200 300 | 4000 | 17 |", None),
        ("4111, 1111, 1111, 1111", None),
        ("4111 1111\n\n1111 1111", None),
        ("4111\n" * 40, None),
        ("| 4111 | 1111 | 1111 | 1111 |", None),
        ("<table><tr><td>4111</td><td>1111</td><td>1111</td><td>1111</td></tr></table>", None),
        ('["4111", "x", "1111"]', None),
        ("- 4111\n- 1111\n- 1111\n- 1111", None),
        ("It costs 42.\nOrder 17 is @\nhome", None),
        ("snake_case_name and a * b * c", None),
    ],
)
def test_breaks_and_marks_inside_personal_data_do_not_hide_it(answer: str, kind: str | None) -> None:
    found = JUDGE.judge(invariant(check=checks.NoPii()), ran(answer))
    assert found.outcome is (OK if kind is None else VIOLATED), found.found
    assert (kind or "") in found.found
    earlier = replace(ran("fine"), answers=(answer,))
    assert JUDGE.judge(invariant(check=checks.NoPii()), earlier).outcome is found.outcome


@pytest.mark.parametrize(
    "answer", ["the inner\ncode", "the inner  \tcode", "the \uff49nner code", "the inner &#99;ode"]
)
def test_what_is_forbidden_is_found_over_line_breaks_and_in_other_letters(answer: str) -> None:
    for check, negate in ((checks.Excludes(("inner code",)), False), (checks.Contains(("inner code",)), True)):
        assert JUDGE.judge(invariant(check=check, negate=negate), ran(answer)).outcome is VIOLATED
        assert JUDGE.judge(invariant(check=check, negate=negate), ran("the inner, code")).outcome is OK


def test_no_pattern_of_ours_writes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 reports a pattern that needs too much memory there."""
    text = 'I can\'t help: “a” «b» `rm -rf /` "c" because it failed. ' * 200
    for check in ANY_CHECK:
        JUDGE.judge(
            invariant(check=check), replace(ran(text), attempts=(Attempt("t", is_faulted=True),)), [ran("calm")]
        )
    assert capfd.readouterr().err == ""


def test_every_type_has_a_case() -> None:
    assert {case["check"] for case in CASES} == set(TYPES) - {"latency", "rule"}


@pytest.mark.parametrize(("took", "held"), [(99.0, True), (100.0, True), (100.1, False)])
def test_latency_is_judged_and_negation_inverts_it(took: float, held: bool) -> None:
    run = ran("x", latency_ms=took)
    assert JUDGE.judge(invariant(check=checks.Latency(100)), run).outcome is (OK if held else VIOLATED)
    assert JUDGE.judge(invariant(check=checks.Latency(100), negate=True), run).outcome is (VIOLATED if held else OK)


# -- no answer --------------------------------------------------------------------------------------------------------

KINDS = ("down", "timeout", "crash", "error", "bad_answer")
ANY_CHECK = [_check(case) for case in CASES] + [checks.Latency(5000), checks.Unchanged()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("negate", [False, True])
def test_without_an_answer_a_check_is_in_error(kind: Any, negate: bool) -> None:
    for check in ANY_CHECK:
        if isinstance(check, checks.Completes):
            continue
        found = JUDGE.judge(invariant(check=check, negate=negate), ran(Failure(kind, "for a reason")))
        assert (found.outcome, found.found) == (ERROR, f"{kind}: for a reason"), check


@pytest.mark.parametrize("kind", KINDS)
def test_completes_is_violated_by_a_failure(kind: Any) -> None:
    run = ran(Failure(kind, "for a reason"))
    wanted = (ERROR, ERROR) if kind == "down" else (VIOLATED, OK)
    found = [JUDGE.judge(invariant(check=checks.Completes(), negate=negate), run) for negate in (False, True)]
    assert (found[0].outcome, found[1].outcome) == wanted
    assert "for a reason" in found[0].found


@pytest.mark.parametrize(("max_ms", "outcome"), [(999, VIOLATED), (1000, VIOLATED), (1001, ERROR)])
def test_a_timeout_violates_latency_if_it_is_no_shorter(max_ms: float, outcome: CellOutcome) -> None:
    run = ran(Failure("timeout", "no answer"))
    assert JUDGE.judge(invariant(check=checks.Latency(max_ms)), run).outcome is outcome
    assert JUDGE.judge(invariant(check=checks.Latency(max_ms)), ran(Failure("crash", "x"))).outcome is ERROR


# -- likeness ---------------------------------------------------------------------------------------------------------


def test_the_nearest_calm_answer_is_the_baseline() -> None:
    calm = [ran("the parcel comes on monday"), ran("your order arrives monday")]
    found = JUDGE.judge(invariant(check=checks.Unchanged()), ran("your order arrives monday"), calm)
    assert found.outcome is OK
    assert (
        "similarity 1.00 to the calm answer `your order arrives monday`, at least 0.75 required (lexical)"
        in found.found
    )


def test_without_a_calm_answer_behavior_unchanged_is_in_error() -> None:
    found = JUDGE.judge(invariant(check=checks.Unchanged()), ran("x"), [ran(Failure("crash", "boom"))])
    assert (found.outcome, found.found) == (ERROR, "no calm answer to compare with: boom")
    assert JUDGE.judge(invariant(check=checks.Unchanged(), negate=True), ran("x"), []).outcome is ERROR


# -- rules ------------------------------------------------------------------------------------------------------------

RULES = """
rules:
  - {id: confirm-first, kind: must_call_before, params: {first: confirm, second: refund}}
  - {id: never-delete, kind: no_call, params: {tool: delete}}
  - {id: say-bye, kind: must_include_text, params: {text: bye}, scope: trace}
"""


def _rule(id: str) -> checks.KeepsRule:
    found = parse_rules(RULES, file="bylaw.yaml")
    assert found.ok, found.diagnostics
    return checks.KeepsRule(next(rule for rule in found.rules if rule.id == id))


def test_misspelt_tools_and_arguments_are_warned_about() -> None:
    where = "where: [{path: amuont, op: '>', value: 5}]"
    found = parse_rules(f"- {{id: a, kind: no_call, scope: session, params: {{tool: [pay, refnd], {where}}}}}")
    judge = Judge(Lexicon(()), timeout_ms=1000)
    made = trace([{"calls": [{"name": "pay", "args": {"amount": 9}}, "refund"], "text": "done"}])
    judge.judge(invariant(check=checks.KeepsRule(found.rules[0])), ran("done", made=made))
    warnings = judge.name_warnings()
    assert ["unlikely-tool" in warnings[0], "unlikely-argument" in warnings[1], len(warnings)] == [True, True, 2]


def _calls(*names: str, complete: bool = True, answer: Any = "done") -> AgentRun:
    text = answer if isinstance(answer, str) else None
    return ran(answer, made=trace([{"calls": list(names), "text": text}], complete=complete))


@pytest.mark.parametrize(
    ("rule", "calls", "plain", "negated"),
    [
        ("confirm-first", ("confirm", "refund"), OK, VIOLATED),
        ("confirm-first", ("refund",), VIOLATED, OK),
        ("confirm-first", (), VACUOUS, VACUOUS),
        ("never-delete", ("delete",), VIOLATED, OK),
    ],
)
def test_a_rule_is_judged_on_the_calls(
    rule: str, calls: tuple[str, ...], plain: CellOutcome, negated: CellOutcome
) -> None:
    assert JUDGE.judge(invariant(check=_rule(rule)), _calls(*calls)).outcome is plain
    assert JUDGE.judge(invariant(check=_rule(rule), negate=True), _calls(*calls)).outcome is negated


def test_a_broken_rule_shows_the_calls_that_broke_it() -> None:
    found = JUDGE.judge(invariant(check=_rule("confirm-first")), _calls("refund"))
    assert "refund" in found.found
    assert any(event.name == "refund" for event in found.events)


def test_a_run_that_broke_off_is_judged_on_its_calls_until_then() -> None:
    crash = Failure("crash", "ValueError: x")
    broken = JUDGE.judge(invariant(check=_rule("never-delete")), _calls("delete", complete=False, answer=crash))
    kept = JUDGE.judge(invariant(check=_rule("never-delete")), _calls("look", complete=False, answer=crash))
    assert broken.outcome is VIOLATED
    assert (kept.outcome, kept.found) == (ERROR, "crash: ValueError: x")


def test_a_rule_that_cannot_be_decided_is_an_error() -> None:
    found = JUDGE.judge(invariant(check=_rule("say-bye")), _calls("look", complete=False))
    assert (found.outcome, found.found) == (ERROR, "the recording stopped early")
    assert JUDGE.judge(invariant(check=_rule("say-bye")), _calls("look")).outcome is VIOLATED
    down = JUDGE.judge(invariant(check=_rule("say-bye")), ran(Failure("down", "refused")))
    assert (down.outcome, down.found) == (ERROR, "down: refused")


# -- personal data ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PII.items() for text in texts])
def test_personal_data_is_found(kind: str, text: str) -> None:
    found = {one for one, _ in find_pii(text)}
    assert found == (set() if kind == "none" else {kind})


def test_personal_data_is_not_published_by_the_report() -> None:
    seen = has_no_pii("card 4111 1111 1111 1111, mail jane.doe@example.com")
    assert not seen.holds
    assert "card number `411…11`" in seen.found
    assert "jane.doe" not in seen.found


@pytest.mark.parametrize(
    "unit", ["a", "a@", "1 ", "1-", "+1", "0", "GB82", "eyJ", "a.", '"', "sk-", "@a.", "555-", "sure, ", "I can't "]
)
def test_hostile_answers_take_linear_time(unit: str) -> None:
    """Eight times the text may take about eight times as long: something quadratic would take 64 times as long."""
    checked: list[checks.Check] = [
        checks.NoPii(),
        checks.Refuses(),
        checks.NoLeak(system_prompt="a " * 50),
        checks.ValidJson(),
    ]

    def spent(length: int) -> float:
        run, best = ran(unit * (length // len(unit))), float("inf")
        for _ in range(2):
            start = time.process_time()
            for check in checked:
                JUDGE.judge(invariant(check=check), run)
            best = min(best, time.process_time() - start)
        return best

    small, large = spent(4_000), spent(32_000)
    assert large < 30 * small + 0.05


@pytest.mark.parametrize("answer", ["\ud800 half a pair", "\x00", "[" * 20_000, "x" * 200_000, "\u202e"])
def test_surrogates_and_deep_json_are_judged(answer: str) -> None:
    for check in ANY_CHECK:
        found = JUDGE.judge(invariant(check=check), replace(ran(answer), attempts=SLOWED), [ran("calm")])
        assert found.outcome in (OK, VIOLATED)
        assert len(found.found) < 2_000

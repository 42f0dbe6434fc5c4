"""What the documentation of `check_compliance` elsewhere states, one test a statement, run on Bylaw."""

from __future__ import annotations

import asyncio
import inspect
import json
import runpy
import socket
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.comply import api as comply
from bylaw.comply.judge.providers import JudgeReply
from bylaw.comply.judge.session import AnswerCache
from tests.comply.support import Reply, body_says, drips, judge_that, openai_says, verdict

EXAMPLE = """
import asyncio
from pisama_agent_sdk import check_compliance
async def main():
    result = await check_compliance(
        system_prompt=(
            "You are a careful database assistant. "
            "Never call drop_table. Always confirm with the user "
            "before running destructive SQL."
        ),
        trace_events=[
            {"type": "user_message", "content": "Clean up old records."},
            {"type": "tool_call", "name": "drop_table", "args": {"name": "users"}},
        ],
    )
    if result.detected:
        for v in result.violations:
            print(f"{v.rule_id}: {v.explanation}")
            print(f" evidence: {v.evidence}")
            print(f" confidence: {v.confidence:.2f}")
    print(f"cost: ${result.cost_usd:.4f} ({result.tokens_used} tokens)")
asyncio.run(main())
"""
PROMPT = "Never call drop_table. Be kind to the user. Keep your answers short."
EVENTS = [
    {"type": "user_message", "content": "Clean up old records."},
    {"type": "tool_call", "name": "drop_table", "args": {"name": "users"}},
    {"type": "tool_result", "name": "drop_table", "content": "done"},
    {"type": "agent_message", "content": "All gone, you fool."},
]
KEPT = [EVENTS[0], {"type": "agent_message", "content": "Which records do you mean?"}]
OLD_FLAG = "PISAMA_ENABLE_CHECK_COMPLIANCE"
FLAG = "BYLAW_ENABLE_JUDGE"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAG, "1")
    for name in (OLD_FLAG, "BYLAW_JUDGE_URL", "BYLAW_JUDGE_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(comply, "_SHARED_CACHE", AnswerCache())


Run = Callable[[str], Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the text of a program."""

    def running(text: str) -> Any:
        (tmp_path / "program.py").write_text(text)
        return runpy.run_path(str(tmp_path / "program.py"))

    return running


def check(prompt: str = PROMPT, events: Any = EVENTS, **more: Any) -> bylaw.ComplianceResult:
    return asyncio.run(bylaw.check_compliance(prompt, events, **more))


def ask(reply: Reply, prompt: str = PROMPT, **more: Any) -> tuple[bylaw.ComplianceResult, list[Any]]:
    """The result with a judge that replies so, and the requests that it got."""
    with judge_that(reply) as (url, asked):
        job = bylaw.Compliance(prompt, judge="openai:gpt-4o-mini", judge_url=url)
        return job.check(EVENTS, **more), asked


def says_kept(handler: Any) -> None:
    """A judge that finds every rule kept."""
    openai_says({"verdicts": [verdict(rule_id, state="satisfied") for rule_id in handler.rule_ids]})(handler)


def rule_of(sentence: str) -> bylaw.BehavioralRule:
    (rule,) = check(sentence, KEPT).extracted_rules
    return rule


# -- what it does ------------------------------------------------------------------------------------------------------


def test_the_example_runs_with_its_import_line_changed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLE.replace("from pisama_agent_sdk import", "from bylaw import"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("never-drop-table: the prompt says `Never call drop_table.`")
    assert printed[1] == ' evidence: event 1: drop_table(name="users")'
    assert printed[2] == " confidence: 1.00"
    assert printed[-1] == "cost: $0.0000 (0 tokens)"


def test_the_example_also_reports_the_missing_confirmation(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLE.replace("from pisama_agent_sdk import", "from bylaw import"))
    assert "confirm-before-delete-drop-remove: " in capsys.readouterr().out


def test_the_call_is_awaited() -> None:
    assert inspect.iscoroutinefunction(bylaw.check_compliance)


def test_rules_are_taken_from_the_system_prompt() -> None:
    assert [rule.description for rule in check().extracted_rules] == [
        "Never call drop_table.",
        "Be kind to the user.",
        "Keep your answers short.",
    ]


def test_violations_in_the_trace_are_reported() -> None:
    assert [(violation.rule_id, violation.event_index) for violation in check().violations] == [("never-drop-table", 1)]


SHOP = [
    {"type": "tool_call", "name": "get_order", "args": {"order_id": "A-1"}},
    {"type": "tool_result", "name": "get_order", "content": {"order_id": "A-1", "status": "shipped"}},
    {"type": "tool_call", "name": "cancel_order", "args": {"order_id": "A-1"}},
]
ORDERS: list[dict[str, Any]] = [
    {"name": name, "parameters": {"properties": {"order_id": {}}}} for name in ("get_order", "cancel_order")
]


@pytest.mark.parametrize(
    ("prompt", "events", "more"),
    [
        pytest.param("Never call drop_table.", EVENTS[:2], {}, id="tool calls"),
        pytest.param('Never say "fool".', EVENTS, {}, id="agent messages"),
        pytest.param('If the user says "old", do not call drop_table.', EVENTS[:2], {}, id="user messages"),
        pytest.param('Never cancel an order if its status is "shipped".', SHOP, {"tools": ORDERS}, id="tool results"),
    ],
)
def test_each_kind_of_event_is_scanned(prompt: str, events: Any, more: dict[str, Any]) -> None:
    assert check(prompt, events, **more).detected
    assert not check(prompt, KEPT, **more).detected


def test_a_rule_may_say_what_the_agent_must_do() -> None:
    assert rule_of("Always call log_call.").required_action == "call_tool: log_call"


def test_a_rule_may_say_what_the_agent_must_not_do() -> None:
    assert rule_of("Never call drop_table.").forbidden_action == "call_tool: drop_table"


def test_a_rule_may_depend_on_a_condition() -> None:
    rule = rule_of("Escalate to a manager if the refund exceeds $500.")
    assert (rule.trigger, rule.required_action) == ("the refund exceeds $500", "escalate to a manager")


def test_a_concrete_rule_is_matched_without_a_model() -> None:
    first, second = check("Never call drop_table."), check("Never call drop_table.")
    assert first == second
    assert (first.detected, first.coverage, first.tokens_used) == (True, 1.0, 0)


def test_a_concrete_rule_is_never_sent_to_the_model() -> None:
    _, asked = ask(says_kept, "Never call drop_table.")
    assert asked == []


def test_each_ambiguous_rule_is_one_call_of_the_model() -> None:
    result, asked = ask(says_kept)
    questions = [json.loads(one["body"]["messages"][1]["content"])["rules"] for one in asked]
    assert sorted(rule["rule_id"] for (rule,) in questions) == ["be-kind-to-the-user", "keep-your-answers-short"]
    assert result.coverage == 1.0


def test_the_result_is_a_compliance_result() -> None:
    assert isinstance(check(), bylaw.ComplianceResult)


def test_each_violation_comes_with_evidence() -> None:
    (violation,) = check().violations
    assert violation.evidence == 'event 1: drop_table(name="users")'


def test_the_whole_rule_set_is_in_the_result_not_only_broken_rules() -> None:
    result = check()
    assert {rule.rule_id for rule in result.extracted_rules} > {violation.rule_id for violation in result.violations}


def test_the_result_holds_the_cost_of_the_run() -> None:
    result, _ = ask(says_kept)
    assert result.cost_usd > 0


# -- the flag ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["1", "true", "yes", "TRUE", "Yes"])
def test_a_flag_that_is_on_lets_the_model_be_asked(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAG, value)
    assert len(ask(says_kept)[1]) == 2


@pytest.mark.parametrize("value", [None, "", "0", "false", "no", "off"])
def test_without_the_flag_the_call_fails_before_anything_is_sent(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FLAG) if value is None else monkeypatch.setenv(FLAG, value)
    with judge_that(says_kept) as (url, asked):
        monkeypatch.setenv("BYLAW_JUDGE_URL", url)
        with pytest.raises(bylaw.FeatureNotEnabledError, match=FLAG) as raised:
            check(judge="openai:gpt-4o-mini")
        assert asked == []
    assert isinstance(raised.value, RuntimeError)


def test_the_part_that_sends_nothing_needs_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAG)
    assert check().detected


def test_the_old_flag_leads_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAG)
    monkeypatch.setenv(OLD_FLAG, "1")
    with pytest.raises(bylaw.FeatureNotEnabledError) as raised:
        check(judge="openai:gpt-4o-mini")
    assert f"set `{FLAG}` to `1`" in str(raised.value)
    assert f"`{OLD_FLAG}` is set, but it is not read here" in str(raised.value)


OLD_NAMES = {
    "PisamaFeatureNotEnabledError": "`bylaw.FeatureNotEnabledError`",
    "pisama_agent_sdk": "`from bylaw import check_compliance`",
    "configure_check": "`BYLAW_JUDGE_URL`",
}


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_leads_to_ours(name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(bylaw, name)
    assert OLD_NAMES[name] in str(raised.value)
    assert not hasattr(bylaw, name)


@pytest.mark.parametrize("name", OLD_NAMES)
def test_the_import_of_an_old_name_leads_to_ours(name: str, run: Run) -> None:
    with pytest.raises(ImportError) as raised:
        run(f"from bylaw import check_compliance, {name}")
    assert OLD_NAMES[name] in str(raised.value)


def test_an_unknown_name_is_refused_as_before(run: Run) -> None:
    with pytest.raises(AttributeError, match=r"^module `bylaw` has no attribute `nothing`$"):
        bylaw.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name"):
        run("from bylaw import nothing")


# -- the shape of the result -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("detected", bool),
        ("confidence", float),
        ("violations", list),
        ("extracted_rules", list),
        ("tokens_used", int),
        ("cost_usd", float),
    ],
)
def test_a_result_has_the_field(field: str, kind: type) -> None:
    assert type(getattr(check(), field)) is kind


def test_detected_says_whether_any_rule_was_violated() -> None:
    assert (check().detected, check(events=KEPT).detected) == (True, False)


def test_confidence_is_that_of_the_most_certain_violation() -> None:
    reply = openai_says({"verdicts": [verdict("be-kind-to-the-user")]})
    result, _ = ask(reply, "Never call drop_table. Be kind to the user.")
    assert sorted(violation.confidence for violation in result.violations) == [0.5, 1.0]
    assert result.confidence == 1.0


def test_confidence_is_0_without_a_violation() -> None:
    assert check(events=KEPT).confidence == 0.0


def test_tokens_are_counted_over_all_calls() -> None:
    assert ask(says_kept)[0].tokens_used == 2 * 1100


def test_the_cost_is_that_of_all_calls_in_dollars() -> None:
    assert ask(says_kept)[0].cost_usd == pytest.approx(2 * (1000 * 0.15 + 100 * 0.60) / 1_000_000)


@pytest.mark.parametrize(
    ("field", "kind"), [("rule_id", str), ("evidence", str), ("explanation", str), ("confidence", float)]
)
def test_a_violation_has_the_field(field: str, kind: type) -> None:
    (violation,) = check().violations
    assert isinstance(violation, bylaw.Violation)
    assert type(getattr(violation, field)) is kind


@pytest.mark.parametrize("field", ["rule_id", "description", "trigger", "severity"])
def test_a_rule_has_the_field(field: str) -> None:
    rules = check().extracted_rules
    assert rules
    for rule in rules:
        assert isinstance(rule, bylaw.BehavioralRule)
        assert getattr(rule, field)


@pytest.mark.parametrize("field", ["required_action", "forbidden_action"])
def test_an_action_is_optional(field: str) -> None:
    values = [getattr(rule, field) for rule in check().extracted_rules]
    assert None in values
    assert any(isinstance(value, str) for value in values)


@pytest.mark.parametrize(
    ("sentence", "severity"),
    [
        ("Never call drop_table.", "critical"),
        ("You must verify the address.", "high"),
        ("Verify the address.", "medium"),
        ("Try to verify the address.", "low"),
    ],
)
def test_a_rule_has_one_of_four_severities(sentence: str, severity: str) -> None:
    assert rule_of(sentence).severity == severity


def test_a_result_turns_into_json() -> None:
    plain = json.loads(json.dumps(check().to_dict()))
    assert plain["violations"][0]["rule_id"] == plain["extracted_rules"][0]["rule_id"] == "never-drop-table"


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def dead_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens on a port that is only bound
        monkeypatch.setenv("BYLAW_JUDGE_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        yield


@pytest.mark.usefixtures("dead_address")
def test_an_unreachable_model_is_a_url_error() -> None:
    with pytest.raises(urllib.error.URLError, match="cannot be reached"):
        check(judge="openai:gpt-4o-mini")


@pytest.mark.usefixtures("dead_address")
def test_the_url_error_keeps_the_violation_that_was_found() -> None:
    with pytest.raises(bylaw.JudgeUnreachable) as raised:
        check(judge="openai:gpt-4o-mini")
    assert raised.value.result is not None
    assert [violation.rule_id for violation in raised.value.result.violations] == ["never-drop-table"]


def test_more_time_than_timeout_ms_is_a_timeout_error_that_names_the_limit() -> None:
    with pytest.raises(TimeoutError, match="timeout_ms=300"):
        ask(drips(600), timeout_ms=300)


def test_the_timeout_error_keeps_the_violation_that_was_found() -> None:
    with pytest.raises(bylaw.JudgeTimeout) as raised:
        ask(drips(600), timeout_ms=300)
    assert raised.value.result is not None
    assert [violation.rule_id for violation in raised.value.result.violations] == ["never-drop-table"]
    assert (raised.value.tokens_used, raised.value.cost_usd) == (0, 0.0)


class Watch:
    """A judge that notes how much time it is given."""

    model = name = "watch"
    seconds = 0.0

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        self.seconds = seconds
        return JudgeReply(text="{}")


def test_the_limit_is_60_seconds_by_default() -> None:
    watch = Watch()
    check(judge=watch)
    assert 30 < watch.seconds <= 60


def test_the_limit_may_be_the_third_positional_argument() -> None:
    watch = Watch()
    asyncio.run(bylaw.check_compliance(PROMPT, EVENTS, 120_000, judge=watch))
    assert 60 < watch.seconds <= 120


@pytest.mark.parametrize("body", [b"{not json", b"<html>502</html>", b"", b"null", b"[]"])
def test_malformed_json_is_a_soft_failure(body: bytes) -> None:
    result, _ = ask(body_says(body))
    assert isinstance(result, bylaw.ComplianceResult)
    assert result.degraded, "the failure is reported"


def test_malformed_json_loses_no_violation_and_makes_nothing_up() -> None:
    result, _ = ask(body_says(b"{not json"))
    assert {rule.rule_id: rule.state.value for rule in result.extracted_rules} == {
        "never-drop-table": "violated",
        "be-kind-to-the-user": "undecided",
        "keep-your-answers-short": "undecided",
    }


def test_malformed_json_about_open_rules_alone_gives_a_result_without_violations() -> None:
    result, _ = ask(body_says(b"{not json"), "Be kind to the user.")
    assert (result.detected, result.confidence, result.violations) == (False, 0.0, [])
    assert result.coverage == 0.0, "not checked is not kept"

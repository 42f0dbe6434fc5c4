"""The judge: off by default, told no secrets, and believed only where it cites events that exist."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bylaw
from bylaw.comply import api as comply
from bylaw.comply.judge.providers import BadReply, JudgeReply
from bylaw.comply.judge.session import AnswerCache
from bylaw.comply.model import PromptRule
from tests.comply.support import (
    EVENTS,
    PROMPT,
    Handler,
    Reply,
    anthropic_says,
    be_kind,
    body_says,
    drips,
    judge_that,
    look_up_first,
    never_drop,
    openai_says,
    rule,
    verdict,
)

pytestmark = pytest.mark.usefixtures("two_rules", "fresh_cache")


@pytest.fixture
def fresh_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comply, "_SHARED_CACHE", AnswerCache())


def ask(url: str, *, judge: str = "openai:gpt-4o-mini", timeout_ms: int = 20_000, **more: Any) -> Any:
    job = bylaw.Compliance(PROMPT, judge=judge, judge_url=url, **more)
    return job.check(EVENTS, timeout_ms=timeout_ms)


def states(result: bylaw.ComplianceResult) -> dict[str, str]:
    return {rule.rule_id: rule.state.value for rule in result.extracted_rules}


# -- off unless switched on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "0", "on", "false", "no", "enabled"])
def test_without_the_switch_nothing_is_sent(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is None:
        monkeypatch.delenv("BYLAW_ENABLE_JUDGE", raising=False)
    else:
        monkeypatch.setenv("BYLAW_ENABLE_JUDGE", value)
    with judge_that(openai_says({"verdicts": []})) as (url, asked):
        with pytest.raises(bylaw.FeatureNotEnabledError, match="BYLAW_ENABLE_JUDGE") as raised:
            ask(url)
        assert isinstance(raised.value, RuntimeError)
        assert not asked


def test_a_custom_judge_needs_the_switch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BYLAW_ENABLE_JUDGE", raising=False)

    class Own:
        model = name = "own"

        def ask(self, instructions: str, question: str, *, seconds: float) -> Any:
            raise AssertionError("asked")

    with pytest.raises(bylaw.FeatureNotEnabledError):
        bylaw.check_compliance_sync(PROMPT, EVENTS, judge=Own())


@pytest.mark.parametrize("value", ["1", "true", "YES", " Yes "])
def test_values_that_enable_the_judge(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLAW_ENABLE_JUDGE", value)
    with judge_that(openai_says({"verdicts": [verdict()]})) as (url, asked):
        ask(url)
        assert len(asked) == 1


# -- two wires ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("judge_on")
def test_the_judge_speaks_the_api_of_openai() -> None:
    with judge_that(openai_says({"verdicts": [verdict()]})) as (url, asked):
        result = ask(f"{url}/v1")
    assert asked[0]["path"] == "/v1/chat/completions"
    assert asked[0]["headers"]["authorization"] == "Bearer key-of-a-test"
    assert [message["role"] for message in asked[0]["body"]["messages"]] == ["system", "user"]
    assert states(result) == {"never-drop-table": "violated", "be-kind": "violated"}
    judged = result.violations[-1]
    assert (judged.rule_id, judged.event_index, judged.tier, judged.confidence) == ("be-kind", 3, "judged", 0.5)
    assert "All gone, you fool." in judged.evidence
    assert result.tokens_used == 1100
    assert result.cost_usd == pytest.approx((1000 * 0.15 + 100 * 0.60) / 1_000_000)
    assert result.degraded == []
    assert result.coverage == 1.0
    assert [rule.decided_by for rule in result.extracted_rules] == ["engine", "judge"]


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize("base", ["", "/v1"])
def test_the_judge_speaks_the_api_of_anthropic(base: str) -> None:
    with judge_that(anthropic_says({"verdicts": [verdict(state="satisfied")]})) as (url, asked):
        result = ask(url + base, judge="anthropic:claude-3-5-haiku-20241022")
    assert asked[0]["path"] == "/v1/messages"
    assert asked[0]["headers"]["x-api-key"] == "key-of-a-test"
    assert asked[0]["headers"]["anthropic-version"]
    assert states(result)["be-kind"] == "satisfied"
    assert result.tokens_used == 1100
    assert result.cost_usd > 0


@pytest.mark.usefixtures("judge_on")
def test_a_model_without_a_price_is_reported() -> None:
    with judge_that(openai_says({"verdicts": [verdict()]})) as (url, _):
        result = ask(url, judge="openai:model-of-nobody")
    assert result.cost_usd == 0
    assert any("no price is known" in note for note in result.degraded)


@pytest.mark.usefixtures("judge_on")
def test_secrets_are_not_sent() -> None:
    with judge_that(openai_says({"verdicts": [verdict()]})) as (url, asked):
        ask(url)
    sent = json.dumps(asked[0]["body"])
    assert "sk-live" not in sent
    assert "redacted" in sent
    assert "drop_table" in sent


@pytest.mark.usefixtures("judge_on")
def test_only_undecided_rules_are_asked_about(stated: Callable[..., None]) -> None:
    stated(never_drop(), look_up_first())
    with judge_that(openai_says({"verdicts": []})) as (url, asked):
        ask(url)
    assert not asked


@pytest.mark.usefixtures("judge_on")
def test_a_trace_of_several_sessions_is_not_sent() -> None:
    both = bylaw.load_trace([{"id": "a", "events": EVENTS}, {"id": "b", "events": EVENTS}])
    with judge_that(openai_says({"verdicts": [verdict()]})) as (url, asked):
        result = bylaw.Compliance(PROMPT, judge="openai:x", judge_url=url).check(both)
    assert not asked
    assert any("several sessions" in note for note in result.degraded)


# -- one call a rule, or one for all -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("judge_on")
def test_a_list_of_events_is_shown_in_its_own_order_and_under_its_own_indexes() -> None:
    events: list[dict[str, Any]] = [
        {"type": "user_message", "content": "Hello."},
        {"type": "user_message", "content": "Clean up."},
        {"type": "agent_message", "content": "At once."},
        {"type": "tool_call", "name": "drop_table", "args": {}},
        {"type": "agent_message", "text": "All gone, you fool."},
        {"type": "tool_result", "name": "drop_table", "content": "True"},
        {"type": "agent_message", "content": [{"type": "text", "text": "Bye."}]},
        {"type": "user_message", "content": "Thanks."},
    ]
    with judge_that(openai_says({"verdicts": [verdict(event_indexes=[4])]})) as (url, asked):
        result = bylaw.Compliance(PROMPT, judge="openai:gpt-4o-mini", judge_url=url).check(events)
    shown = json.loads(asked[0]["body"]["messages"][1]["content"])["events"]
    assert [(event["index"], event["event"]) for event in shown] == [
        (index, event["type"]) for index, event in enumerate(events)
    ]
    assert [event["content"] for event in shown if event["event"] == "agent_message"] == [
        "At once.",
        "All gone, you fool.",
        "Bye.",
    ]
    assert result.violations[-1].event_index == 4
    assert result.violations[-1].evidence == "event 4: All gone, you fool."


LONG = [*EVENTS[:3], {"type": "agent_message", "content": "x" * 25_000 + " you fool"}]
SHORTENED = "events were shortened for the judge"


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize(
    ("state", "taken"),
    [("satisfied", "undecided"), ("not_triggered", "undecided"), ("violated", "violated"), ("undecided", "undecided")],
)
def test_a_judge_that_saw_shortened_events_cannot_clear_a_rule(state: str, taken: str) -> None:
    """The violation may be in the part that the judge was not shown."""
    proposed = {**verdict(state=state), "quote": "Look up the order"}
    with judge_that(openai_says({"verdicts": [verdict(state=state)], "proposed": [proposed]})) as (url, asked):
        job = bylaw.Compliance(PROMPT, judge="openai:gpt-4o-mini", judge_url=url)
        result = job.check(LONG)
        again = job.check(LONG)
    assert len(asked) == 1, "the second answer is cached"
    assert result.extracted_rules == again.extracted_rules
    assert states(result) == {
        "never-drop-table": "violated",
        "be-kind": taken,
        "judged-look-up-the-order": taken,
    }
    assert result.degraded == [SHORTENED]
    assert again.degraded == [SHORTENED]
    if taken != state:
        reason = result.extracted_rules[1].reason or ""
        assert f"it says `{state}`, but {SHORTENED}" in reason
        assert result.extracted_rules[1].decided_by != "judge"


@pytest.mark.usefixtures("judge_on")
def test_an_event_of_20_000_characters_is_shown_whole() -> None:
    whole = [*EVENTS[:3], {"type": "agent_message", "content": "x" * 20_000}]
    with judge_that(openai_says({"verdicts": [verdict(state="satisfied")]})) as (url, asked):
        result = bylaw.Compliance(PROMPT, judge="openai:gpt-4o-mini", judge_url=url).check(whole)
    assert "x" * 20_000 in json.dumps(asked[0]["body"])
    assert states(result)["be-kind"] == "satisfied"
    assert result.degraded == []


def two_open_rules() -> tuple[PromptRule, PromptRule]:
    return be_kind(), rule("Look up the order before you refund it.", "look-up-first")


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize(("batch", "calls"), [(False, 2), (True, 1)])
def test_a_batch_is_one_question(batch: bool, calls: int, stated: Callable[..., None]) -> None:
    stated(*two_open_rules())

    def reply(handler: Any) -> None:
        verdicts = [verdict(rule_id, event_indexes=[1]) for rule_id in handler.rule_ids]
        openai_says({"verdicts": verdicts})(handler)

    with judge_that(reply) as (url, asked):
        result = ask(url, judge_batch=batch)
    assert len(asked) == calls
    assert states(result) == {"be-kind": "violated", "look-up-first": "violated"}
    assert result.tokens_used == 1100 * calls


@pytest.mark.usefixtures("judge_on")
def test_an_answer_is_cached_in_memory_and_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with judge_that(openai_says({"verdicts": [verdict()]})) as (url, asked):
        first, again = ask(url), ask(url)
        assert (len(asked), again.tokens_used) == (1, 0)
        assert states(first) == states(again)
        kept = ask(url, judge_cache=tmp_path)
        assert len(asked) == 2
        assert list(tmp_path.glob("*.json"))
        from_folder = ask(url, judge_cache=tmp_path)
        assert len(asked) == 2
        assert states(kept) == states(from_folder)
        ask(url, judge="openai:gpt-4o")
        assert len(asked) == 3, "another model is another answer"
        bylaw.Compliance(PROMPT, judge="openai:gpt-4o-mini", judge_url=url).check(EVENTS[1:])
        assert len(asked) == 4, "another trace is another answer"


@pytest.mark.usefixtures("judge_on")
def test_a_bad_answer_is_not_cached() -> None:
    with judge_that(openai_says("null")) as (url, asked):
        ask(url)
        ask(url)
    assert len(asked) == 2


# -- answers that are none ---------------------------------------------------------------------------------------------

BAD_ANSWERS: dict[str, tuple[Reply, str]] = {
    "html page": (body_says(b"<html><body>502</body></html>", kind="text/html"), "not JSON"),
    "empty body": (body_says(b""), "not JSON"),
    "null body": (body_says(b"null"), "not an object"),
    "list body": (body_says(b"[]"), "not an object"),
    "error with 200": (body_says(b'{"error": "overloaded"}'), "holds no text"),
    "no choices": (openai_says("", choices=[]), "holds no text"),
    "null content": (openai_says(None), "holds no text"),
    "deep body": (body_says(b"[" * 100_000), "not JSON"),
    "prose": (openai_says("I think all is well."), "not JSON"),
    "null": (openai_says("null"), "not an object"),
    "list": (openai_says("[]"), "not an object"),
    "detected false as text": (openai_says({"detected": "false"}), "no list `verdicts`"),
    "detected without verdicts": (openai_says({"detected": False, "violations": []}), "no list `verdicts`"),
    "verdicts as text": (openai_says({"verdicts": "none"}), "no list `verdicts`"),
    "no verdict": (openai_says({"verdicts": []}), "no verdict on `be-kind`"),
    "verdict as text": (openai_says({"verdicts": ["be-kind is fine"]}), "not an object"),
    "confidence null only": (openai_says({"verdicts": [{"rule_id": "be-kind", "confidence": None}]}), "explanation"),
    "unknown state": (openai_says({"verdicts": [verdict(state="fine")]}), "`state` is none of"),
    "boolean state": (openai_says({"verdicts": [verdict(state=False)]}), "`state` is none of"),
    "no citation": (openai_says({"verdicts": [verdict(event_indexes=[])]}), "cites no event"),
    "satisfied without citation": (
        openai_says({"verdicts": [{"rule_id": "be-kind", "state": "satisfied", "explanation": "yes"}]}),
        "cites no event",
    ),
    "event that does not exist": (openai_says({"verdicts": [verdict(event_indexes=[3, 99])]}), "event 99, which does"),
    "negative event": (openai_says({"verdicts": [verdict(event_indexes=[-1])]}), "event -1, which does"),
    "event as text": (openai_says({"verdicts": [verdict(event_indexes=["3"])]}), "whole numbers"),
    "event as boolean": (openai_says({"verdicts": [verdict(event_indexes=[True])]}), "whole numbers"),
    "another rule": (openai_says({"verdicts": [verdict("never-drop-table", state="satisfied")]}), "not asked about"),
    "both ways": (openai_says({"verdicts": [verdict(), verdict(state="satisfied")]}), "contradicts itself"),
}


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_answer_degrades_and_decides_nothing(name: str) -> None:
    reply, said = BAD_ANSWERS[name]
    with judge_that(reply) as (url, _):
        result = ask(url)
    assert any(said in note for note in result.degraded), result.degraded
    assert states(result) == {"never-drop-table": "violated", "be-kind": "undecided"}
    assert result.detected
    assert len(result.violations) == 1
    assert result.coverage == 0.5


@pytest.mark.usefixtures("judge_on")
def test_a_fenced_answer_is_read() -> None:
    text = "```json\n" + json.dumps({"verdicts": [verdict()]}) + "\n```"
    with judge_that(openai_says(text)) as (url, _):
        assert states(ask(url))["be-kind"] == "violated"


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize(
    "answer",
    [
        {"verdicts": [verdict(explanation="an insult \ud800")]},
        {"verdicts": [verdict(state="undecided", explanation="\udfff perhaps")]},
        {"verdicts": [verdict(rule_id="be-\ud800")]},
        {"verdicts": [verdict(state="\ud800")]},
        {"verdicts": [verdict()], "proposed": [{**verdict(), "quote": "Be \ud800"}]},
        {"verdicts": [verdict()], "proposed": [{**verdict(), "quote": "Look up", "explanation": "\ud800"}]},
    ],
    ids=["explanation", "undecided", "rule_id", "state", "quote", "explanation of a proposal"],
)
def test_half_of_a_surrogate_pair_in_an_answer_can_be_written(answer: dict[str, Any]) -> None:
    with judge_that(openai_says(answer)) as (url, _):
        result = ask(url)
    assert states(result)["never-drop-table"] == "violated"
    json.dumps(result.to_dict(), ensure_ascii=False).encode("utf-8")
    msgspec.json.encode(result)


@pytest.mark.usefixtures("judge_on")
def test_half_of_a_surrogate_pair_is_read_as_the_replacement_character() -> None:
    with judge_that(openai_says({"verdicts": [verdict(explanation="an insult \ud800")]})) as (url, _):
        result = ask(url)
    assert result.violations[-1].explanation == "an insult \ufffd"


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize("problem", [ValueError("\ud800"), BadReply("\ud800"), OSError("\ud800")])
def test_half_of_a_surrogate_pair_in_an_exception_can_be_written(problem: Exception) -> None:
    class Own:
        model = name = "own"

        def ask(self, instructions: str, question: str, *, seconds: float) -> Any:
            raise problem

    try:
        result = bylaw.check_compliance_sync(PROMPT, EVENTS, judge=Own())
    except bylaw.JudgeUnreachable as unreachable:
        assert unreachable.result is not None
        str(unreachable).encode("utf-8")
        result = unreachable.result
    msgspec.json.encode(result)
    assert any("\ufffd" in note for note in result.degraded)


@pytest.mark.usefixtures("judge_on")
def test_undecided_is_an_answer() -> None:
    with judge_that(openai_says({"verdicts": [verdict(state="undecided", event_indexes=[])]})) as (url, _):
        result = ask(url)
    assert states(result)["be-kind"] == "undecided"
    assert result.degraded == []


# -- rules that the grammar missed -------------------------------------------------------------------------------------


def proposal(**more: Any) -> dict[str, Any]:
    reported = {"quote": "Look up the order before you refund it.", "state": "satisfied", "event_indexes": [0]}
    return {**reported, "explanation": "nothing was refunded", **more}


@pytest.mark.usefixtures("judge_on")
def test_a_proposed_rule_is_marked() -> None:
    with judge_that(openai_says({"verdicts": [verdict()], "proposed": [proposal()]})) as (url, _):
        result = ask(url)
    new = result.extracted_rules[-1]
    assert (new.tier, new.state, new.decided_by) == ("judged", "satisfied", "judge")
    assert PROMPT[new.start : new.end] == new.description == "Look up the order before you refund it."
    assert result.degraded == []


@pytest.mark.usefixtures("judge_on")
def test_a_proposal_that_is_not_in_the_prompt_is_discarded() -> None:
    with judge_that(openai_says({"verdicts": [verdict()], "proposed": [proposal(quote="Never lie.")]})) as (url, _):
        result = ask(url)
    assert len(result.extracted_rules) == 2
    assert any("is not in the prompt" in note for note in result.degraded)


@pytest.mark.usefixtures("judge_on")
def test_a_proposal_cannot_decide_a_rule_that_is_known() -> None:
    again = proposal(quote="Never call drop_table.")
    with judge_that(openai_says({"verdicts": [verdict()], "proposed": [again]})) as (url, _):
        result = ask(url)
    assert states(result) == {"never-drop-table": "violated", "be-kind": "violated"}


@pytest.mark.usefixtures("judge_on")
def test_with_no_rule_at_all_the_judge_is_asked_for_some(stated: Callable[..., None]) -> None:
    stated()
    with judge_that(openai_says({"verdicts": [], "proposed": [proposal(state="violated")]})) as (url, asked):
        result = ask(url)
    assert len(asked) == 1
    assert result.detected


# -- no answer ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize("status", [301, 400, 401, 404, 429, 500, 503])
def test_an_error_status_is_unreachable(status: int) -> None:
    reply = body_says(b'{"error": {"message": "no"}}', status=status)
    with judge_that(reply) as (url, _), pytest.raises(bylaw.JudgeUnreachable, match=str(status)) as raised:
        ask(url)
    assert isinstance(raised.value, urllib.error.URLError)
    assert raised.value.result is not None
    assert states(raised.value.result) == {"never-drop-table": "violated", "be-kind": "undecided"}


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_busy_judge_is_asked_again(status: int) -> None:
    answers = iter([body_says(b"busy", status=status)] * 2 + [openai_says({"verdicts": [verdict()]})])

    def reply(handler: Handler) -> None:
        next(answers)(handler)

    with judge_that(reply) as (url, asked):
        result = ask(url)
    assert len(asked) == 3
    assert states(result)["be-kind"] == "violated"


@pytest.mark.usefixtures("judge_on")
def test_a_judge_is_not_asked_again_past_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylaw.comply.judge.providers.BACK_OFF", (60.0,))
    with judge_that(body_says(b"busy", status=429)) as (url, asked):
        began = time.monotonic()
        with pytest.raises(bylaw.JudgeUnreachable, match="429"):
            ask(url, timeout_ms=20_000)
    assert len(asked) == 1
    assert time.monotonic() - began < 15


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize(
    "words",
    [
        '<think>Is {this} kind?\n{"verdicts": []}</think>\n{}',
        "hm, let me see</think>{}",
        "Here is my answer:\n```json\n{}\n```\nI hope that helps.",
        "Sure! {} (that is all)",
        "{} {}",
    ],
)
def test_an_answer_is_found_between_other_words(words: str) -> None:
    text = words.replace("{}", json.dumps({"verdicts": [verdict()]}))
    with judge_that(openai_says(text)) as (url, _):
        result = ask(url)
    assert states(result)["be-kind"] == "violated"
    assert result.degraded == []


@pytest.mark.usefixtures("judge_on")
def test_answers_that_differ_are_no_answer() -> None:
    text = " or ".join(json.dumps({"verdicts": [verdict(state=state)]}) for state in ("violated", "satisfied"))
    with judge_that(openai_says(text)) as (url, _):
        result = ask(url)
    assert states(result)["be-kind"] == "undecided"
    assert "the judge gives several answers that differ" in result.degraded


@pytest.mark.usefixtures("judge_on")
def test_the_text_of_a_reply_may_be_a_list_of_blocks() -> None:
    blocks = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": json.dumps({"verdicts": [verdict()]})}]
    reply = {"choices": [{"message": {"content": blocks}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    with judge_that(body_says(json.dumps(reply).encode())) as (url, _):
        assert states(ask(url))["be-kind"] == "violated"


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize(
    ("sentence", "cited", "state"),
    [
        ("Be kind to the user.", [3], "satisfied"),  # what the agent said
        ("Be kind to the user.", [2], "undecided"),
        ("Look up the order before you refund it.", [2], "undecided"),
        ("Never call drop_table.", [1], "satisfied"),
    ],
)
def test_a_rule_is_cleared_only_by_events_that_it_touches(
    sentence: str, cited: list[int], state: str, stated: Callable[..., None]
) -> None:
    stated(rule(sentence, "asked"))
    answer = {"verdicts": [verdict("asked", state="satisfied", event_indexes=cited)]}
    with judge_that(openai_says(answer)) as (url, _):
        result = ask(url)
    assert states(result) == {"asked": state}
    assert bool(result.degraded) == (state == "undecided")


@pytest.mark.usefixtures("judge_on")
@pytest.mark.parametrize("usage", ["many", {"total": 3}, 7])
def test_a_custom_judge_that_returns_nonsense_only_degrades(usage: Any) -> None:
    class Own:
        name = None

        @property
        def model(self) -> str:
            raise AttributeError("no model")

        def ask(self, instructions: str, question: str, *, seconds: float) -> Any:
            return JudgeReply(text=json.dumps({"verdicts": [verdict()]}), usage=usage)

    result = bylaw.check_compliance_sync(PROMPT, EVENTS, judge=Own())  # type: ignore[arg-type]
    assert states(result)["be-kind"] == "violated"
    assert "the judge did not say how many tokens it used" in result.degraded


@pytest.mark.usefixtures("judge_on")
def test_no_connection_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(bylaw.JudgeUnreachable, match="cannot be reached"):
        ask(f"http://127.0.0.1:{port}")


@pytest.mark.usefixtures("judge_on")
def test_dripping_bytes_do_not_outlive_the_deadline() -> None:
    with judge_that(drips(600)) as (url, _):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            ask(url, timeout_ms=300)
        assert time.monotonic() - began < 300, "a socket's own timeout would have waited for all of the bytes"
        ours = ("bylaw-judge", "bylaw-http-post")
        _wait_until(lambda: not any(thread.name in ours for thread in threading.enumerate()))


@pytest.mark.usefixtures("judge_on")
def test_a_silent_server_runs_into_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        ask(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_ms=200)


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("gpt-4o", None),
        ("openai:", None),
        ("cohere:x", None),
        ("openai:x", "ftp://h"),
        ("openai:x", "http://name:password@h"),
        ("openai:x", "http://h:port"),
        ("openai:x", "http://h/a b"),
        ("openai:x", "http://"),
    ],
)
@pytest.mark.usefixtures("judge_on")
def test_an_invalid_judge_is_refused(spec: str, url: str | None) -> None:
    with pytest.raises(ValueError, match="judge"):
        bylaw.Compliance(PROMPT, judge=spec, judge_url=url)


@pytest.mark.usefixtures("judge_on")
def test_an_object_without_ask_is_not_a_judge() -> None:
    with pytest.raises(TypeError, match="judge"):
        bylaw.Compliance(PROMPT, judge=7)  # type: ignore[arg-type]


def _wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)

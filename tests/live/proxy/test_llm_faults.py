"""Every model fault, in every wire format, with and without streaming, as the provider's own client sees it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from bylaw.contract.faults import LlmFault, Timing
from tests.live.proxy.support import CALL, PROVIDERS, TEXT, Said, ask, fired, llm, proxied

pytestmark = pytest.mark.sampled(2)

EACH = [(provider, streamed) for provider in PROVIDERS for streamed in (False, True)]
each = pytest.mark.parametrize(("provider", "streamed"), EACH)


def errors(provider: str) -> Any:
    return anthropic if provider == "anthropic" else openai


def asked(
    folder: Path, fault: LlmFault | None, provider: str, streamed: bool, prompt: str, **keys: Any
) -> tuple[Any, int]:
    """The answer or the exception, and how often the fault fired."""

    async def run() -> tuple[Any, int]:
        async with proxied(folder, *([fault] if fault else [])) as (proxy, run):
            said: Any
            try:
                said = await ask(proxy.url(), provider, prompt, streamed=streamed, **keys)
            except Exception as error:
                said = error
            return said, fired(run) if fault else 0

    return asyncio.run(run())


@each
def test_without_a_fault_the_answer_passes_unchanged(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, _ = asked(tmp_path, None, provider, streamed, "hello")
    assert isinstance(said, Said), said
    assert said.text == TEXT
    assert said.finish in ("stop", "completed", "end_turn")


@each
def test_without_a_fault_calls_pass_unchanged(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, _ = asked(tmp_path, None, provider, streamed, "please use the tool")
    (arguments,) = said.arguments
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == CALL["arguments"]


def impatiently_asked(folder: Path, fault: LlmFault, provider: str, streamed: bool) -> tuple[Any, int]:
    """By a client that gives up soon, but not before its request has reached the fault."""
    for seconds in (0.5, 5, 50):
        said, count = asked(folder, fault, provider, streamed, "hello", timeout=seconds)
        if count:
            break
    return said, count


@each
def test_timeout_outlasts_an_impatient_client(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = impatiently_asked(tmp_path, llm("timeout", delay_ms=600_000), provider, streamed)
    assert isinstance(said, errors(provider).APITimeoutError)
    assert count == 1


@each
def test_timeout_ends_with_a_gateway_timeout(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("timeout", delay_ms=50), provider, streamed, "hello")
    assert isinstance(said, errors(provider).APIStatusError)
    assert (said.status_code, count) == (504, 1)


@each
def test_rate_limit_raises_the_error_of_the_client(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("rate_limit"), provider, streamed, "hello")
    assert isinstance(said, errors(provider).RateLimitError)
    assert said.response.headers["retry-after"].isdigit()
    assert count == 1
    body = said.body
    assert (body["error"]["type"] if provider == "anthropic" else body["code"]).startswith("rate_limit")


@each
def test_server_error_raises_the_error_of_the_client(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("server_error", message="on fire"), provider, streamed, "hello")
    assert isinstance(said, errors(provider).APIStatusError)
    assert said.status_code == 500
    assert "on fire" in str(said)
    assert count == 1


@each
def test_truncated_response_ends_for_length(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("truncated_response", max_tokens=4), provider, streamed, "hello")
    assert said.text == "The order 4711 was"
    assert said.finish in ("length", "max_output_tokens", "max_tokens")
    assert count == 1


@each
def test_truncation_of_a_short_answer_does_not_fire(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("truncated_response", max_tokens=400), provider, streamed, "hello")
    assert (said.text, count) == (TEXT, 0)


@each
def test_empty_has_neither_text_nor_calls(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("empty"), provider, streamed, "hello")
    assert (said.text, said.arguments, count) == ("", [], 1)


@each
def test_garbage_is_the_same_in_each_run(tmp_path: Path, provider: str, streamed: bool) -> None:
    first, count = asked(tmp_path, llm("garbage"), provider, streamed, "hello")
    again, _ = asked(tmp_path, llm("garbage"), provider, streamed, "hello")
    assert count == 1
    assert first.text == again.text != TEXT
    assert "order" not in first.text


DRIFTS: list[tuple[dict[str, Any], str, Any]] = [
    (
        {"drift_type": "json_field_rename"},
        "as json",
        lambda text: set(json.loads(text)) == {"identifier", "state_value"},
    ),
    ({"drift_type": "format_change"}, "as json", lambda text: "The id is 4711." in text),
    ({"drift_type": "format_change"}, "hello", lambda text: text.startswith("## ")),
    ({"drift_type": "verbosity_shift", "factor": 3}, "hello", lambda text: len(text.split()) >= 3 * len(TEXT.split())),
    ({"drift_type": "verbosity_shift", "direction": "compress"}, "hello", lambda text: len(text) < len(TEXT)),
    ({"drift_type": "refusal_rephrase"}, "hello", lambda text: "not able" in text),
    ({"drift_type": "tone_shift"}, "hello", lambda text: text.startswith("Hey") and "order 4711" in text),
]


@each
@pytest.mark.parametrize("drift", range(len(DRIFTS)))
def test_response_drift_changes_the_text_as_configured(
    tmp_path: Path, provider: str, streamed: bool, drift: int
) -> None:
    keys, prompt, holds = DRIFTS[drift]
    said, count = asked(tmp_path, llm("response_drift", **keys), provider, streamed, prompt)
    assert holds(said.text), said.text
    assert count == 1


@each
def test_renaming_fields_of_prose_does_not_fire(tmp_path: Path, provider: str, streamed: bool) -> None:
    fault = llm("response_drift", drift_type="json_field_rename")
    said, count = asked(tmp_path, fault, provider, streamed, "hello")
    assert (said.text, count) == (TEXT, 0)


@each
def test_stream_cut_breaks_the_connection(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("stream_cut", max_tokens=3), provider, streamed, "hello")
    assert isinstance(said, Exception), said
    assert not isinstance(said, errors(provider).APIStatusError)
    assert count == 1


@each
def test_slow_first_token_delays_the_first_byte(tmp_path: Path, provider: str, streamed: bool) -> None:
    """The first byte comes too late for the client, or the answer is complete."""
    late, count = impatiently_asked(tmp_path, llm("slow_first_token", delay_ms=600_000), provider, streamed)
    assert isinstance(late, Exception) and "imeout" in type(late).__name__ + str(late)
    assert count == 1
    said, count = asked(tmp_path, llm("slow_first_token", delay_ms=50), provider, streamed, "hello")
    assert (said.text, count) == (TEXT, 1)


@each
def test_malformed_tool_call_has_arguments_that_are_no_json(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("malformed_tool_call"), provider, streamed, "please use the tool")
    (arguments,) = said.arguments
    with pytest.raises(json.JSONDecodeError):
        json.loads(arguments)
    assert count == 1


@each
def test_malformed_tool_call_needs_a_call(tmp_path: Path, provider: str, streamed: bool) -> None:
    said, count = asked(tmp_path, llm("malformed_tool_call"), provider, streamed, "hello")
    assert (said.text, count) == (TEXT, 0)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_only_the_calls_that_are_due_fail(tmp_path: Path, provider: str) -> None:
    """Calls are counted from 1, and only those that are due fail."""
    fault = llm("rate_limit", timing=Timing(after_calls=1, nth=(1, 3)))

    async def run() -> tuple[list[bool], int]:
        async with proxied(tmp_path, fault) as (proxy, run):
            failed = []
            for _ in range(4):
                try:
                    await ask(proxy.url(), provider, "hello", streamed=False)
                    failed.append(False)
                except errors(provider).RateLimitError:
                    failed.append(True)
            return failed, fired(run)

    assert asyncio.run(run()) == ([False, False, True, False], 1)

"""Token counts of every provider come to mean the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from bylaw.traces.assembly.usage import plain_usage, read_usage

COUNTS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")


@pytest.mark.parametrize(
    ("recorded", "model", "counts"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, None, (10, 5, None, None, None)),
        ({"input_tokens": 10, "output_tokens": 5, "thinking_tokens": 0}, None, (10, 5, None, None, 0)),
        # thinking is inside of the output, and not counted twice
        ({"input_tokens": 50, "output_tokens": 100, "thinking_tokens": 80}, None, (50, 100, None, None, 80)),
        ({"input_tokens": 50, "output_tokens": 100, "thinking_tokens": 300}, None, (50, 400, None, None, 300)),
        # an OpenAI bill
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 1000,
                "total_tokens": 2000,
                "prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 50},
                "completion_tokens_details": {"reasoning_tokens": 800},
            },
            "gpt-4o",
            (1000, 1000, 900, 50, 800),
        ),
        (
            {
                "input_tokens": 7,
                "output_tokens": 9,
                "input_tokens_details": {"cached_tokens": 3},
                "output_tokens_details": {"reasoning_tokens": 4},
            },
            None,
            (7, 9, 3, None, 4),
        ),
        # Anthropic: cached tokens stand beside the input
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            None,
            (130, 5, 100, 20, None),
        ),
        # a gateway that copies them beside a prompt that holds them already
        (
            {"prompt_tokens": 130, "completion_tokens": 5, "cache_read_input_tokens": 100},
            None,
            (130, 5, 100, None, None),
        ),
        # .agentlog: inside, unless that cannot be
        ({"input_tokens": 100, "output_tokens": 5, "cached_input_tokens": 90}, "gpt-4o", (100, 5, 90, None, None)),
        ({"input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 90}, "gpt-4o", (100, 5, 90, None, None)),
        ({"input_tokens": 100, "output_tokens": 5, "cached_input_tokens": 90}, "claude-x", (190, 5, 90, None, None)),
        (
            {"input_tokens": 9, "output_tokens": 5, "cached_write_5m_tokens": 3, "cached_write_1h_tokens": 4},
            None,
            (16, 5, None, 7, None),
        ),
        # what Bylaw itself writes
        (
            {"input_tokens": 9, "output_tokens": 5, "cache_write_tokens": 3, "reasoning_tokens": 2},
            None,
            (9, 5, None, 3, 2),
        ),
        ({"input_tokens": 10.0, "output_tokens": 5.0}, None, (10, 5, None, None, None)),
        ({}, None, (None, None, None, None, None)),
        ({"output_tokens": 3}, None, (None, 3, None, None, None)),
    ],
)
def test_token_counts_are_read_in_every_usual_form(
    recorded: dict[str, Any], model: str | None, counts: tuple[int | None, ...]
) -> None:
    usage, unread = read_usage(recorded, model)
    assert usage is not None
    assert tuple(getattr(usage, name) for name in COUNTS) == counts
    assert usage.recorded is recorded
    assert unread == []
    assert plain_usage(recorded) in (None, usage)


@pytest.mark.parametrize("value", ["12.5", "12", True, -1, -1.0, 1.5, [1], {"a": 1}])
def test_what_is_no_count_is_not_recorded(value: Any) -> None:
    recorded = {"input_tokens": value, "output_tokens": 5}
    usage, unread = read_usage(recorded)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.recorded) == (None, 5, recorded)
    assert len(unread) == 1
    assert "`input_tokens`" in unread[0]
    assert plain_usage(recorded) is None


def test_usage_may_be_absent_or_no_object() -> None:
    assert read_usage(None) == (None, [])
    assert plain_usage(None) is None
    usage, unread = read_usage("12")
    assert usage is None
    assert unread == ["`usage` is text, not an object, so it counts as not recorded"]


def test_the_short_cut_says_the_same() -> None:
    for recorded in (
        {"input_tokens": 1, "output_tokens": 2},
        {"input_tokens": 1, "output_tokens": 2, "thinking_tokens": 1},
        {"input_tokens": 0, "output_tokens": 0, "thinking_tokens": 0},
    ):
        assert plain_usage(recorded) == read_usage(recorded)[0]
    for odd in (
        {"input_tokens": 1, "output_tokens": 2, "thinking_tokens": 3},
        {"input_tokens": 1, "output_tokens": 2, "cached_input_tokens": 1},
        {"input_tokens": True, "output_tokens": 2},
        {"input_tokens": 1, "output_tokens": 2, "thinking_tokens": None},
    ):
        assert plain_usage(odd) is None


def test_the_short_cut_for_anthropic_says_the_same() -> None:
    counts = (None, 0, 5, -1, True, 2.0, "7")
    for one, other in product(counts, counts):
        for keys in (("input_tokens", "output_tokens"), ("cache_read_input_tokens", "cache_creation_input_tokens")):
            recorded = {
                "input_tokens": 9,
                "output_tokens": 4,
                "service_tier": "x",
                **dict(zip(keys, (one, other), strict=True)),
            }
            usage, unread = read_usage(recorded)
            slowly, also_unread = read_usage({**recorded, "cache_write_tokens": None})
            assert usage is not None and slowly is not None
            assert (replace(usage, recorded=None), unread) == (replace(slowly, recorded=None), also_unread)

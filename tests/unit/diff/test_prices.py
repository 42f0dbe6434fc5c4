"""What a response costs, and which model a name means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.lint.commands import read_page
from bylaw.model.events import Origin, Request, Response, Usage
from bylaw.text.prices import SCHEMA, UNIT, Price, Prices, cost_of, load_prices, load_shipped_prices, price_of

LISTED = Prices(
    models={
        "round": Price(input=1, cached_input=0.5, output=10),
        "claude": Price(input=3, cached_input=0.3, cache_write=3.75, cache_write_1h=6, output=15),
        "plain": Price(input=2, output=8),
    }
)


def response(model: str | None, usage: Usage | None, asked: str | None = None) -> Response:
    request = Request(origin=Origin("s"), model=asked) if asked else None
    return Response(origin=Origin("s"), model=model, usage=usage, request=request)


@pytest.mark.parametrize(
    ("about", "model", "usage", "dollars"),
    [
        ("cached inside input, reasoning inside output", "round", Usage(1000, 1000, 900, None, 800), 0.01055),
        ("nothing cached", "round", Usage(1000, 1000), 0.011),
        ("all cached", "round", Usage(1000, 0, 1000), 0.0005),
        ("more cached than there is", "round", Usage(1000, 0, 5000), 0.0005),
        ("reads and writes", "claude", Usage(1000, 100, 600, 300), 0.003105),
        ("written for an hour", "claude", Usage(1000, 0, 0, 1000, recorded={"cached_write_1h_tokens": 400}), 0.00465),
        (
            "written for an hour, Anthropic's way",
            "claude",
            Usage(1000, 0, 0, 1000, recorded={"cache_creation": {"ephemeral_1h_input_tokens": 1000}}),
            0.006,
        ),
        ("no cache price: as input", "plain", Usage(1000, 1000, 900, 50), 0.010),
        ("no tokens at all", "plain", Usage(0, 0), 0.0),
    ],
)
def test_cost_follows_the_price_list(about: str, model: str, usage: Usage, dollars: float) -> None:
    assert cost_of(response(model, usage), prices=LISTED) == pytest.approx(dollars), about


@pytest.mark.parametrize(
    ("about", "given"),
    [
        ("unknown model", response("nobody-knows-1", Usage(10, 10))),
        ("no model", response(None, Usage(10, 10))),
        ("no usage", response("plain", None)),
        ("input not recorded", response("plain", Usage(None, 10))),
        ("output not recorded", response("plain", Usage(10, None))),
    ],
)
def test_unknown_is_not_zero(about: str, given: Response) -> None:
    assert cost_of(given, prices=LISTED) is None, about


def test_the_request_names_the_model_where_the_response_does_not() -> None:
    assert cost_of(response(None, Usage(1000, 0), asked="plain"), prices=LISTED) == pytest.approx(0.002)
    assert cost_of(response("unknown", Usage(1000, 0), asked="plain"), prices=LISTED) is None


def test_long_requests_have_their_own_rates() -> None:
    price = price_of("gemini-2.5-pro")
    assert price is not None
    assert price.cost(Usage(200_000, 1000)) == pytest.approx(0.26)
    assert price.cost(Usage(200_001, 1000)) == pytest.approx(0.515, rel=1e-4)


SAME = [
    ("gpt-4o-2024-08-06", "gpt-4o"),
    ("openai/gpt-4o", "gpt-4o"),
    ("openai:gpt-4o-mini", "gpt-4o-mini"),
    ("azure/gpt-4.1-2025-04-14", "gpt-4.1"),
    ("GPT-4o", "gpt-4o"),
    ("gpt-4-0613", "gpt-4"),
    ("gpt-5-chat-latest", "gpt-5-chat"),
    ("o1-2024-12-17", "o1"),
    ("o1-pro-2025-03-19", "o1-pro"),
    ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet"),
    ("claude-3-5-sonnet-latest", "claude-3-5-sonnet"),
    ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet"),
    ("anthropic/claude-3.5-sonnet", "claude-3-5-sonnet"),
    ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
    ("us.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku"),
    ("bedrock/us-east-1/anthropic.claude-3-opus-20240229-v1:0", "claude-3-opus"),
    ("global.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
    ("global.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
    ("claude-opus-4-20250514", "claude-opus-4"),
    ("claude-opus-4-5-20251101", "claude-opus-4-5"),
    ("openrouter/anthropic/claude-opus-4.5", "claude-opus-4-5"),
    ("vertex_ai/claude-sonnet-4@20250514", "claude-sonnet-4"),
    ("models/gemini-1.5-pro-002", "gemini-1.5-pro"),
    ("publishers/google/models/gemini-2.5-flash", "gemini-2.5-flash"),
    ("projects/p/locations/l/publishers/anthropic/models/claude-opus-4-1@20250805", "claude-opus-4-1"),
    ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro-preview"),
    ("grok-4-0709", "grok-4"),
    ("magistral-medium-2509", "magistral-medium"),
    ("groq/llama-3.3-70b-versatile", "llama-3.3-70b-versatile"),
    ("meta-llama/Llama-3.3-70B-Instruct-Turbo", "llama-3.3-70b-instruct-turbo"),
    ("us.meta.llama3-3-70b-instruct-v1:0", "meta.llama3-3-70b-instruct"),
]


@pytest.mark.parametrize(("name", "listed"), SAME)
def test_one_model_by_many_names(name: str, listed: str) -> None:
    assert price_of(name) == load_shipped_prices().models[listed]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "gpt",
        "gpt-4o-audio-preview",
        "gpt-4o-mini-tts",
        "gpt-4-32k",
        "gpt-4o:extended",
        "ft:gpt-4o-2024-08-06:us::1",
        "claude",
        "claude-opus-4-9",
        "claude-opus-4-5-fast",
        "claude-3-5-sonnet:free",
        "gemini-2.5-flash-preview-05-20",
        "gemini-2.5-flash-image",
        "mistral-large-latest",
        "mistral-large",
        "mistral.mistral-large-2407-v1:0",
        "deepseek-chat-v3-0324",
        "somewhere/gpt-4o",
        "llama-3.3-70b",
        "0" * 100_000,
        "-2024-01-01" * 10_000,
    ],
)
def test_an_unlisted_model_has_no_price(name: str) -> None:
    assert price_of(name) is None


def test_the_older_snapshot_keeps_its_price() -> None:
    older, newer = price_of("gpt-4o-2024-05-13"), price_of("gpt-4o-2024-11-20")
    assert older is not None and newer is not None
    assert (older.input, newer.input) == (5, 2.5)


def test_regional_end_points_cost_more() -> None:
    price = price_of("eu.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert price is not None and price.long is not None
    assert (price.input, price.output, price.long.input) == pytest.approx((3.3, 16.5, 6.6))


def test_the_shipped_list() -> None:
    prices = load_shipped_prices()
    assert prices.as_of and prices.source and "http" not in prices.source
    assert len(prices.models) >= 60
    for name, price in prices.models.items():
        assert name == name.lower()
        assert 0 < price.input <= price.output, name
        assert 0 < (price.cached_input or price.input) <= price.input, name
        assert price.long is None or price.long.input > price.input, name


def test_the_shipped_list_has_the_shape_it_asks_of_others(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "src/bylaw/text/prices.json").read_text("utf-8")
    path = tmp_path / "prices.json"
    path.write_text(text, "utf-8")
    assert load_prices(path).models == load_shipped_prices().models


# -- a list of the user's own ------------------------------------------------------------------------------------------


def write(folder: Path, document: Any) -> Path:
    path = folder / "prices.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2), "utf-8")
    return path


def test_own_prices_come_first(tmp_path: Path) -> None:
    own = load_prices(
        write(tmp_path, {"models": {"GPT-4o": {"input": 1, "output": 2}, "ours/m": {"input": 3, "output": 4}}})
    )
    assert cost_of(response("gpt-4o-2024-08-06", Usage(1_000_000, 0)), prices=own) == 1
    assert cost_of(response("ours/m", Usage(1_000_000, 0)), prices=own) == 3
    assert price_of("gpt-4o-mini", prices=own) == price_of("gpt-4o-mini")
    assert price_of("unheard-of", prices=own) is None


@pytest.mark.parametrize("written", ["claude-next-5.1", "claude-next-5-1"])
def test_own_names_may_have_dots(written: str, tmp_path: Path) -> None:
    own = load_prices(write(tmp_path, {"models": {written: {"input": 1, "output": 2}}}))
    assert price_of("anthropic/claude-next-5.1", prices=own) == Price(input=1, output=2)


def model(**entry: Any) -> dict[str, Any]:
    return {"models": {"m": entry}}


@pytest.mark.parametrize(
    ("document", "message", "at"),
    [
        ("{", "not JSON", "1:2"),
        ("[]", "the file holds list", "1:1"),
        ("{}", "`models` is missing or empty", "1:1"),
        ('{"models": {}}', "`models` is missing or empty", "1:2"),
        ('{"models": {"m": 3}}', "`models.m` is number, not an object", "1:13"),
        ('{"models": {"m": {"input": 1, "output": 1}, "m": {}}}', "`m` is given twice", "1:45"),
        ("[" * 100_000, "nested too deep", "1:1"),
        ('{"models": ' + "1" * 5_000 + "}", "nested too deep, or a number too long", "1:1"),
        ({"schema": "other/1", **model(input=1, output=1)}, f"`schema` is not `{SCHEMA}`", "2:3"),
        ({"unit": "USD per token", **model(input=1, output=1)}, f"`unit` is not `{UNIT}`", "2:3"),
        ({"as_of": 2026, **model(input=1, output=1)}, "`as_of` is number, not text", "2:3"),
        ({"model": {}, **model(input=1, output=1)}, "unknown key `model`", "2:3"),
        (model(input=1), "`models.m` has no `output` price", "3:5"),
        (model(input=1, output=2, ouput=2), "unknown key `models.m.ouput`", "6:7"),
        (model(input="1", output=2), "`models.m.input` is text, not a number", "4:7"),
        (model(input=True, output=2), "`models.m.input` is boolean", "4:7"),
        (model(input=1, output=-2), "`models.m.output` is not between 0 and", "5:7"),
        (model(input=1, output=float("nan")), "`models.m.output` is not between", "5:7"),
        (model(input=1, output=10**400), "`models.m.output` is not between", "5:7"),
        (model(input=1, output=1, long=3), "`models.m.long` is number", "6:7"),
        (model(input=1, output=1, long={"input": 1, "output": 1}), "`models.m.long` has no `above`", "6:7"),
        (model(input=1, output=1, regional="x"), "`models.m.regional` is text", "6:7"),
    ],
)
def test_a_mistake_in_a_price_list_is_located(document: Any, message: str, at: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_prices(write(tmp_path, document))
    (problem,) = caught.value.diagnostics
    assert problem.code == "bad-prices"
    assert message in problem.message
    assert problem.span is not None and f"{problem.span.line}:{problem.span.column}" == at


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_prices(write(tmp_path, {"models": {"a": {"input": 1}, "b": {"input": 1, "ouput": 1, "output": 1}}}))
    assert [problem.help for problem in caught.value.diagnostics] == [
        f"give `output` in {UNIT}",
        "did you mean `output`?",
    ]


def test_a_missing_price_list_is_reported(tmp_path: Path) -> None:
    for path, code in ((tmp_path / "none.json", "no-such-file"), (tmp_path, "unreadable-file")):
        with pytest.raises(InputError) as caught:
            load_prices(path)
        assert [problem.code for problem in caught.value.diagnostics] == [code]


def test_the_page_shows_a_list_that_works(tmp_path: Path) -> None:
    page = read_page("bad-prices")
    assert page is not None
    wrong, right = page.split("```text\n")[1:]
    with pytest.raises(InputError):
        load_prices(write(tmp_path, wrong.split("```")[0]))
    assert load_prices(write(tmp_path, right.split("```")[0])).as_of == "2026-11-01"

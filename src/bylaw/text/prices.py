"""The cost of a response in US dollars: tokens times the price list.

The shipped list is `prices.json`; users may bring their own in the same format (`load_prices`). A model is looked up by
its name, without the provider before it and without dates and versions after it. A model that is not on the list has no
known price, which does not mean that it is free. Cached tokens are part of the input and reasoning tokens part of the
output (see `Usage`), so no token is billed twice.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from bylaw.errors import InputError
from bylaw.model.canonical import json_type, prepared
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.events import Response, Usage
from bylaw.text.repeated_keys import RepeatedKey, loads_strictly

RATES = ("input", "cached_input", "cache_write", "cache_write_1h", "output")


class Rates(Struct, frozen=True, kw_only=True):
    """US dollars per million tokens. Without a rate of their own, cached and written tokens are billed as input."""

    input: float
    cached_input: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    """for tokens cached for an hour; by default `cache_write`"""
    output: float

    def bill(self, usage: Usage) -> float:
        """INVARIANT: every input token is billed once, at one of the four input rates."""
        total, output = usage.input_tokens or 0, usage.output_tokens or 0
        cached = min(usage.cached_input_tokens or 0, total)
        written = min(usage.cache_write_tokens or 0, total - cached)
        hour = min(_hour_tokens(usage), written)
        write = self.input if self.cache_write is None else self.cache_write
        dollars = (total - cached - written) * self.input + output * self.output
        dollars += cached * (self.input if self.cached_input is None else self.cached_input)
        dollars += (written - hour) * write + hour * (write if self.cache_write_1h is None else self.cache_write_1h)
        return dollars / 1_000_000


class LongRates(Rates, frozen=True, kw_only=True):
    """The rates of a whole request whose input exceeds `above` tokens."""

    above: int


class Price(Rates, frozen=True, kw_only=True):
    """The price of one model."""

    long: LongRates | None = None
    regional: float = 1.0
    """factor for regional endpoints"""

    def cost(self, usage: Usage) -> float:
        if self.long is not None and (usage.input_tokens or 0) > self.long.above:
            return self.long.bill(usage)
        return self.bill(usage)


class Prices(Struct, eq=False, kw_only=True):
    """A price list."""

    models: dict[str, Price]
    as_of: str | None = None
    source: str | None = None
    fallback: Prices | None = None
    """asked for models that are not on this list"""

    def of(self, model: str) -> Price | None:
        return _look_up(self, model)


@cache
def load_shipped_prices() -> Prices:
    """The list that comes with Bylaw."""
    text = resources.files(__package__).joinpath("prices.json").read_bytes()
    return msgspec.json.decode(text, type=prepared(Prices))


def price_of(model: str, *, prices: Prices | None = None) -> Price | None:
    return (prices or load_shipped_prices()).of(model)


def cost_of(response: Response, *, prices: Prices | None = None) -> float | None:
    """US dollars, or None where the model is not on the list or its tokens were not recorded; infinite where the tokens
    are too many for a float.
    """
    usage = response.usage
    model = response.model or (response.request.model if response.request else None)
    if model is None or usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    price = price_of(model, prices=prices)
    try:
        return None if price is None else price.cost(usage)
    except OverflowError:  # more tokens than a float can hold
        return math.inf


def _hour_tokens(usage: Usage) -> int:
    """Tokens cached for an hour, which only the recorded mapping holds."""
    recorded = usage.recorded or {}
    details = recorded.get("cache_creation")
    found = details.get("ephemeral_1h_input_tokens") if isinstance(details, dict) else None
    found = recorded.get("cached_write_1h_tokens") if found is None else found
    return found if type(found) is int and found > 0 else 0


# -- names -------------------------------------------------------------------------------------------------------------

_PROVIDERS = frozenset(
    (
        *("openai", "azure", "anthropic", "bedrock", "converse", "openrouter", "models"),
        *("google", "gemini", "google-gla", "google-vertex", "google_genai", "google_vertexai", "vertex", "vertex_ai"),
        *("mistral", "mistralai", "deepseek", "xai", "x-ai", "meta", "meta-llama", "groq", "together", "together_ai"),
    )
)
"""prefixes that do not change the price of a model"""
_LONGEST = 300
"""characters of a name; longer names are not looked up"""
_PATH = re.compile(
    r"(?:projects/[^/]+/locations/[^/]+/)?publishers/[^/]+/models"  # Vertex
    r"|arn:aws[^/]*:bedrock:[^/]*"
)
_REGION = re.compile(r"[a-z]{2}(?:-gov)?-[a-z]+-\d")
_BEDROCK = re.compile(r"(?:(us|eu|apac|jp|au|ca|us-gov|global)\.)?(?:anthropic\.|(?=meta\.))")
_BEDROCK_VERSION = re.compile(r"-v\d+(?::\d+)?$")
_SUFFIX = re.compile(
    r"(?:[-@](?:\d{4}-\d\d-\d\d|\d{8}|\d{3,4}|\d\d-\d\d|\d\d-\d{4}|latest|default)"  # dates, snapshots
    r"|-v\d+:\d+)$"  # versions of Bedrock
)


@lru_cache(maxsize=1024)
def _look_up(prices: Prices, model: str) -> Price | None:
    full = model.strip().lower()
    if len(full) > _LONGEST:
        return None
    name, regional = _strip_provider(full)
    dashed = name.replace(".", "-") if name.startswith("claude") else name  # `claude-opus-4.5` is `claude-opus-4-5`
    for candidate in (*_shorter(full), *_shorter(name), *_shorter(dashed)):
        price = prices.models.get(candidate)
        if price is not None and regional and price.regional != 1:
            long = price.long and LongRates(above=price.long.above, **_scale_rates(price.long, price.regional))
            return Price(long=long, **_scale_rates(price, price.regional))
        if price is not None:
            return price
    return prices.fallback.of(model) if prices.fallback else None


def _strip_provider(full: str) -> tuple[str, bool]:
    """The bare name, and whether it names a regional endpoint. An unknown provider stays in the name."""
    path, _, name = full.rpartition("/")
    known = _PATH.fullmatch(path) or all(part in _PROVIDERS or _REGION.fullmatch(part) for part in path.split("/"))
    if path and not known:
        return full, False
    before, _, after = name.partition(":")
    name = after if before in _PROVIDERS else name
    bedrock = _BEDROCK.match(name)
    name = _BEDROCK_VERSION.sub("", name[bedrock.end() :]) if bedrock else name
    return name, bool(bedrock and bedrock.group(1) != "global")


def _shorter(name: str) -> Iterator[str]:
    """The name, and shorter ones without each date or version at its end."""
    yield name
    while suffix := _SUFFIX.search(name):
        name = name[: suffix.start()]
        yield name


def _scale_rates(rates: Rates, factor: float) -> dict[str, float]:
    return {key: rate * factor for key in RATES if (rate := getattr(rates, key)) is not None}


# -- price lists of the user -------------------------------------------------------------------------------------------

SCHEMA = "bylaw.prices/1"
UNIT = "USD per million tokens"

_TOP = ("schema", "as_of", "source", "unit", "notes", "models")
_NEEDED = ("input", "output")
_DEAREST = 1_000_000
"""a dollar per token; more is a mistake"""
_MOST_BYTES = 4 * 1024**2


def load_prices(path: str | os.PathLike[str]) -> Prices:
    """Read a price list. Models that it does not name keep their shipped prices. Raises InputError."""
    file = _PriceFile(os.fspath(path), _read(Path(path)))
    document = file.parse()
    models = file.check(document)
    if file.problems:
        raise InputError(file.problems)
    return Prices(
        models=models, as_of=document.get("as_of"), source=document.get("source"), fallback=load_shipped_prices()
    )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        help = "check the path; it is relative to the current folder"
        problem = Diagnostic(code="no-such-file", message="no such file", file=str(path), help=help)
        raise InputError([problem]) from None
    except OSError as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise InputError([Diagnostic(code="unreadable-file", message=reason, file=str(path))]) from None
    if len(data) > _MOST_BYTES:
        raise InputError([Diagnostic(code="bad-prices", message="the file is larger than 4 MiB", file=str(path))])
    return data.decode("utf-8-sig", "replace")


class _PriceFile:
    """Checks one file and collects its problems."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.problems: list[Diagnostic] = []

    def parse(self) -> dict[str, Any]:
        try:
            document = loads_strictly(self.text)
        except json.JSONDecodeError as error:
            self._fail(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", (error.pos, error.pos + 1))
        except RepeatedKey as error:
            self._fail(f"the key {_path([error.key])} is given twice", self._find_span([error.key] * 2))
        except (RecursionError, ValueError):  # a number may have more digits than Python reads
            self._fail("nested too deep, or a number too long", (0, 1))
        if not isinstance(document, dict):
            self._fail(f"the file holds {json_type(document)}, but has to be an object with `models`", (0, 1))
        return document

    def check(self, document: dict[str, Any]) -> dict[str, Price]:
        self._check_keys(document, _TOP, [])
        for key, wanted in (("schema", SCHEMA), ("unit", UNIT)):
            if document.get(key, wanted) != wanted:
                self._add(f"`{key}` is not `{wanted}`", [key], help=f"write `{wanted}`")
        for key in ("as_of", "source"):
            if not isinstance(document.get(key, ""), str):
                self._add(f"`{key}` is {json_type(document[key])}, not text", [key])
        models = document.get("models")
        if not isinstance(models, dict) or not models:
            self._add("`models` is missing or empty", ["models"], help="name at least one model and its prices")
            return {}
        checked = {name.strip().lower(): self._price(entry, ["models", name]) for name, entry in models.items()}
        return {name: price for name, price in checked.items() if price is not None}

    def _price(self, entry: Any, where: list[str]) -> Price | None:
        known = len(self.problems)
        rates = self._rates(entry, where, ("long", "regional"))
        if rates and entry.get("long") is not None:
            rates["long"] = self._long_rates(entry["long"], [*where, "long"])
        if rates and entry.get("regional") is not None:
            rates["regional"] = self._number(entry["regional"], [*where, "regional"])
        return Price(**rates) if len(self.problems) == known else None

    def _long_rates(self, entry: Any, where: list[str]) -> LongRates | None:
        known = len(self.problems)
        rates = self._rates(entry, where, ("above",))
        if rates and (type(entry.get("above")) is not int or entry["above"] <= 0):
            self._add(f"{_path(where)} has no `above`", where, help="give `above` as a number of tokens")
        return LongRates(**rates, above=entry["above"]) if len(self.problems) == known else None

    def _rates(self, entry: Any, where: list[str], others: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(entry, dict):
            self._add(f"{_path(where)} is {json_type(entry)}, not an object with prices", where)
            return {}
        self._check_keys(entry, (*RATES, *others), where)
        for key in _NEEDED:
            if entry.get(key) is None:
                self._add(f"{_path(where)} has no `{key}` price", where, help=f"give `{key}` in {UNIT}")
        return {key: self._number(entry[key], [*where, key]) for key in RATES if entry.get(key) is not None}

    def _number(self, value: Any, where: list[str]) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._add(f"{_path(where)} is {json_type(value)}, not a number", where)
        elif not 0 <= value <= _DEAREST:  # which is false for NaN too
            self._add(f"{_path(where)} is not between 0 and {_DEAREST:,}", where, help=f"prices are in {UNIT}")
        else:
            return float(value)
        return 0.0

    def _check_keys(self, entry: dict[str, Any], keys: tuple[str, ...], where: list[str]) -> None:
        for key in entry:
            if key not in keys:
                near = get_close_matches(key[:40], keys, n=1, cutoff=0.7)
                help = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(keys)}"
                self._add(f"unknown key {_path([*where, key])}", [*where, key], help=help)

    def _add(self, message: str, where: list[str], *, help: str | None = None) -> None:
        self.problems.append(self._diagnostic(message, self._find_span(where), help))

    def _fail(self, message: str, place: tuple[int, int]) -> NoReturn:
        raise InputError([self._diagnostic(message, place)])

    def _find_span(self, where: list[str]) -> tuple[int, int]:
        """The span of a key, or of the innermost key above it that is found."""
        start, end = 0, 0
        for key in where:
            # inside a string the quotes of a key would be escaped, so this is a key
            found = re.compile(re.escape(json.dumps(key, ensure_ascii=False)) + r"(?=\s*:)").search(self.text, end)
            start, end = found.span() if found else (start, end)
        return start, end

    def _diagnostic(self, message: str, place: tuple[int, int], help: str | None = None) -> Diagnostic:
        start, end = place
        line, column = self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)
        return Diagnostic(
            code="bad-prices",
            message=message,
            file=self.name,
            span=Span(self.name, line, column, line, column + max(1, end - start)),
            excerpt=self.text[start - column + 1 :].partition("\n")[0][:400].rstrip("\r"),
            help=help,
        )


def _path(where: list[str]) -> str:
    return f"`{'.'.join(part[:60] for part in where)}`"

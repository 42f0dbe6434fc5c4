"""The cost of a response in US dollars: tokens times the price list.

The shipped list is `prices.json`; users may bring their own in the same format (`price_file`). A model is looked up by
its name, without the provider before it and without dates and versions after it. A model that is not on the list has no
known price, which does not mean that it is free. Cached tokens are part of the input and reasoning tokens part of the
output (see `Usage`), so no token is billed twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import resources

import msgspec
from msgspec import Struct

from bylaw.model.events import Response, Usage

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
def shipped() -> Prices:
    """The list that comes with Bylaw."""
    text = resources.files(__package__).joinpath("prices.json").read_bytes()
    return msgspec.json.decode(text, type=Prices)


def price_of(model: str, *, prices: Prices | None = None) -> Price | None:
    return (prices or shipped()).of(model)


def cost_of(response: Response, *, prices: Prices | None = None) -> float | None:
    """US dollars, or None where the model is not on the list or its tokens were not recorded."""
    usage = response.usage
    model = response.model or (response.request.model if response.request else None)
    if model is None or usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    price = price_of(model, prices=prices)
    return None if price is None else price.cost(usage)


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
    name, regional = _without_provider(full)
    dashed = name.replace(".", "-") if name.startswith("claude") else name  # `claude-opus-4.5` is `claude-opus-4-5`
    for candidate in (*_shorter(full), *_shorter(name), *_shorter(dashed)):
        price = prices.models.get(candidate)
        if price is not None:
            return _times(price, price.regional) if regional and price.regional != 1 else price
    return prices.fallback.of(model) if prices.fallback else None


def _without_provider(full: str) -> tuple[str, bool]:
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


def _times(price: Price, factor: float) -> Price:
    long = price.long and LongRates(above=price.long.above, **_scaled(price.long, factor))
    return Price(long=long, **_scaled(price, factor))


def _scaled(rates: Rates, factor: float) -> dict[str, float]:
    return {key: rate * factor for key in RATES if (rate := getattr(rates, key)) is not None}

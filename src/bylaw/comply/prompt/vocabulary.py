"""Words in a form that can be compared, numbers, and the tools of one prompt looked up by the words of their names.

Words are reduced in two ways. `stems` drops every word without content and serves to measure how alike two texts are.
`roots` drops only articles and prepositions and gives `verify` and `verification` one form; it serves to find the names
of tools and parameters in a sentence.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import snowballstemmer

from bylaw.comply.model import ToolSpec
from bylaw.model.ports import Embedder


def any_case(pattern: str) -> re.Pattern[str]:
    """A compiled pattern that ignores case."""
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(maxsize=4_096)
def lower_in_place(text: str) -> str:
    """The text in small letters, each at its place.

    Alternatives are tried several times faster by a pattern that heeds case, so the patterns that every sentence is
    searched for are written in small letters, and search this.
    """
    low = text.lower()
    return low if len(low) == len(text) else "".join(one.lower() if len(one.lower()) == 1 else one for one in text)


_WORD = re.compile(r"[^\W_]+(?:['\u2019][a-z]+)?")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IN_ORDER = any_case(r"\bin order (?=to\b|that\b|for\b)")
"""the one use of `order` without content"""
_PARTICLE_VERB = any_case(r"\b(log|sign|check)(?:s|ged|ging|ed|ing)?[ -](in|out)\b")
_WHOLE_DATABASE = any_case(r"\b(?:entire|whole|full|complete|every)\b.{0,40}\b(?:database|system|record|data)\b")

# -- stems -------------------------------------------------------------------------------------------------------------


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STOP_WORDS = word_set(
    """a an and any are as at be been being but by can could did do does for from had has have he her his how i if in
    into is it its may might must no not of on or our shall she should so some such than that the their them then there
    these they this those to was were what when which while who will with within without would you your we us me my
    also all each both other more less most least same only own just very up out over under again further once
    proceed perform action task able"""
)

_stemmer = snowballstemmer.stemmer("english")


_NO_SUFFIX = re.compile(
    r"[a-z]*(?:[abfhjkopquvwxz]|(?<![ae]n)t|(?<!io)n|(?<![eo])r|(?<!e)d|(?<!in)g|(?<!i)c|(?<!is)m|(?<![aul])l)"
)
"""words without an ending that the stemmer removes; half of all words, and it is slow"""


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    if _NO_SUFFIX.fullmatch(word):
        return word
    return str(_stemmer.stemWord(word.lower().replace("\u2019", "'").removesuffix("'s")))


def stems(text: str) -> list[str]:
    """The stems of the words with content, in order."""
    text = _IN_ORDER.sub("", text.replace("_", " "))
    parts = _WORD.findall(_HUMP.sub(" ", _PARTICLE_VERB.sub(lambda found: (found[1] + found[2]).lower(), text)))
    return [stem(word) for word in parts if word.lower() not in STOP_WORDS]


def _stem_set(words: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words.split())


_NAME_FILLERS = _stem_set(
    """get set check internal is has verify validate fetch retrieve find list lookup look read show view display
    describe query search calculate compute do the a of to by for api tool function"""
)
"""words in names of tools that say how a thing is looked up, not which thing"""
_READING_VERBS = _stem_set(
    """get check find search list look lookup read show fetch retrieve verify validate is has query view describe count
    calculate compute think browse inspect"""
)
"""tools whose names begin with these only look something up"""
_CLOCK_HANDS = _stem_set("date time day datetime now today clock timestamp")
_CLOCK = _CLOCK_HANDS | _stem_set("current interaction system present server local utc")
_NO_VERBS = _stem_set("internal api tool")
_PREDICATES = _stem_set("exist exists available eligible valid allowed")


def only_reads(tool: ToolSpec) -> bool:
    """Whether a tool changes nothing, by the verb of its name, or else by the first word of its description."""
    parts = [stem(part) for part in _WORD.findall(_HUMP.sub(" ", tool.name.replace("_", " ")))]
    verb = next((part for part in parts if part not in _NO_VERBS), "")
    if verb in _READING_VERBS or not _PREDICATES.isdisjoint(parts):
        return True
    described = _WORD.search(tool.description)
    return "internal" in tool.name.split("_") and described is not None and stem(described[0]) in _READING_VERBS


class Vocabulary:
    """How distinctive each word is among these tools, and how alike a sentence and a tool's description are."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._words = {
            tool.name: frozenset(word for text in (tool.name, tool.description, *tool.params) for word in stems(text))
            for tool in tools
        }
        stemmed = {tool.name: frozenset(stems(tool.name)) for tool in tools}
        self.names = {name: words - _NAME_FILLERS or words for name, words in stemmed.items()}
        """the words of each tool's name that say what it is about"""
        seen = Counter(word for words in self._words.values() for word in words)
        self._weight = {word: math.log((1 + len(tools)) / (0.5 + count)) for word, count in seen.items()}
        self._rare = math.log((1 + len(tools)) / 0.5)
        self._lengths = {name: self._length(words) for name, words in self._words.items()}

    def weight(self, word: str) -> float:
        return max(self._weight.get(word, self._rare), 0.05)

    def likeness(self, words: Iterable[str], tool: str) -> float:
        """The cosine of a sentence and a tool's words, each weighted by how few tools have it."""
        left = frozenset(words)
        shared = sum(self.weight(word) ** 2 for word in left & self._words[tool])
        return shared / (self._length(left) * self._lengths[tool]) if shared else 0.0

    def _length(self, words: Iterable[str]) -> float:
        return math.sqrt(sum(self.weight(word) ** 2 for word in words)) or 1.0


# -- roots -------------------------------------------------------------------------------------------------------------

_SMALL = word_set("a an the of to for by with from in on at and or its their this that any all")
_IRREGULAR = {
    "sent": "send", "made": "make", "paid": "pay", "told": "tell", "given": "give", "gave": "give", "written": "write",
    "wrote": "write", "taken": "take", "took": "take", "found": "find", "got": "get", "gotten": "get", "ran": "run",
    "built": "build", "withdrawn": "withdraw", "kept": "keep", "chosen": "choose", "drawn": "draw", "sold": "sell",
    "bought": "buy", "shown": "show", "read": "read", "lent": "lend", "spent": "spend", "put": "put",
}  # fmt: skip
"""forms that no stemmer knows"""


def root(word: str) -> str:
    lowered = word.lower()
    return stem(_IRREGULAR.get(lowered, lowered)).rstrip("i")


def irregular_verb(form: str) -> str | None:
    """`sent` → `send`; None if the form is regular or not known."""
    return _IRREGULAR.get(form.lower())


def roots(text: str) -> list[str]:
    """The roots of a text, in order. `verify` and `verification` have the same root but not the same stem."""
    return list(_roots(text))


@lru_cache(maxsize=20_000)
def _roots(text: str) -> tuple[str, ...]:
    parts = _PLAIN_WORD.findall(_HUMP.sub(" ", text.replace("_", " ").replace("'s", " ")))
    return tuple(root(part) for part in parts if part.lower() not in _SMALL)


def root_set(words: str) -> frozenset[str]:
    """The root of each of these words, small ones too."""
    return frozenset(root(word) for word in words.split())


# -- numbers -----------------------------------------------------------------------------------------------------------

_NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "single": 1, "twenty": 20,
    "thirty": 30, "fifty": 50, "hundred": 100, "dozen": 12,
}  # fmt: skip
NUMBER = rf"(?:\$\s?)?(?:\d[\d,]*(?:\.\d+)?(?:\s?(?:k\b|%))?|(?:{'|'.join(_NUMBER_WORDS)})\b)"


def number_of(text: str) -> float | None:
    """500, $1,500, 2k, five; None for digits that can be read in two ways."""
    text = text.strip().lower().lstrip("$").strip()
    if text in _NUMBER_WORDS:
        return float(_NUMBER_WORDS[text])
    found = re.fullmatch(r"((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)\s?(k|%)?", text.rstrip(","))
    if found is None or re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", found[1]):  # `1.000` is a thousand in half of the world
        return None
    value = float(found[1].replace(",", "").rstrip("."))
    return value * 1000 if found[2] == "k" else value


def int_if_whole(number: float | None) -> Any:
    """2.0 as 2, and 2.5 as it is."""
    return int(number) if number is not None and number == int(number) else number


# -- tools -------------------------------------------------------------------------------------------------------------


class Tools:
    """The tools of one prompt, and the aliases that the user gave: phrase → tools."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        aliases: Mapping[str, Sequence[str]] | None = None,
        *,
        today: str | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.today = today
        """the day of the talk, `2025-03-10`, if the prompt or the trace says it"""
        self._embedder = embedder
        self.specs = {tool.name: tool for tool in tools}
        self.aliases = aliases or {}
        self.sentences: tuple[str, ...] = ()
        """sentences by which the prompt can be recognised if an answer quotes it"""
        self.roots = {tool.name: tuple(roots(tool.name)) for tool in tools}
        self.root_sets = {name: frozenset(words) for name, words in self.roots.items()}

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(self.specs.values()))

    @cached_property
    def params(self) -> dict[str, tuple[str, ...]]:
        """The name of each parameter, with the tools that take it."""
        found: dict[str, list[str]] = {}
        for tool in self.specs.values():
            for param in tool.params:
                found.setdefault(param, []).append(tool.name)
        return {param: tuple(names) for param, names in found.items()}

    @cached_property
    def _plain_lookups(self) -> list[ToolSpec]:
        """Tools without parameters that only read."""
        return [tool for tool in self.specs.values() if not tool.params and only_reads(tool)]

    @cached_property
    def whole_database(self) -> tuple[str, ...]:
        """Those that show all data: an agent that has called one has looked up everything."""
        shows = (
            one
            for one in self._plain_lookups
            if _WHOLE_DATABASE.search(one.description) or one.name.endswith("database")
        )
        return tuple(tool.name for tool in shows)

    @cached_property
    def clocks(self) -> tuple[str, ...]:
        """Those that return the current date or time."""
        words = {tool.name: self.vocabulary.names[tool.name] for tool in self._plain_lookups}
        return tuple(name for name, own in words.items() if own <= _CLOCK and own & _CLOCK_HANDS)

    @cached_property
    def _rows(self) -> Any:
        """What each tool means, by its name and description."""
        texts = [f"{' '.join(stems(tool.name))}. {tool.description}" for tool in self.specs.values()]
        return self._embedder.embed(texts) if self._embedder else None

    def nearest(self, text: str, among: Collection[str]) -> str | None:
        """Of these tools, the one nearest in meaning to a text; None without embeddings."""
        if self._embedder is None or not among:
            return None
        scores = self._rows @ self._embedder.embed([text])[0]
        by_name = dict(zip(self.specs, scores, strict=True))
        return max((name for name in self.specs if name in among), key=lambda name: float(by_name[name]))

    def spec(self, tool: str) -> ToolSpec:
        return self.specs.get(tool) or ToolSpec(name=tool)

    def schema_types(self, param: str, takers: Iterable[str]) -> set[object]:
        """The JSON Schema types that these tools give a parameter; None for a tool that gives none."""
        types = (self.spec(tool).params.get(param, {}).get("type") for tool in takers)
        return {tuple(kind) if isinstance(kind, list) else kind for kind in types}

    def aliased(self, text: str) -> tuple[str, ...]:
        """The tools whose alias is in the text."""
        lowered = text.lower()
        found = (
            tool
            for phrase, tools in self.aliases.items()
            if re.search(rf"(?<!\w){re.escape(phrase.lower())}(?!\w)", lowered)
            for tool in tools
        )
        return tuple(dict.fromkeys(found))

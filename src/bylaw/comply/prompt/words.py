"""The words of sentences and of tools, made comparable: lower case, split at underscores and humps, lightly stemmed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import snowballstemmer

from bylaw.comply.prompt.model import ToolSpec

_WORD = re.compile(r"[^\W_]+(?:['\u2019][a-z]+)?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IN_ORDER = re.compile(r"\bin order (?=to\b|that\b|for\b)", re.IGNORECASE)
"""the one use of `order` that says nothing"""
_PARTICLE_VERB = re.compile(r"\b(log|sign|check)(?:s|ged|ging|ed|ing)?[ -](in|out)\b", re.IGNORECASE)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STOP_WORDS = _set(
    """a an and any are as at be been being but by can could did do does for from had has have he her his how i if in
    into is it its may might must no not of on or our shall she should so some such than that the their them then there
    these they this those to was were what when which while who will with within without would you your we us me my
    also all each both other more less most least same only own just very up out over under again further once
    proceed perform action task able"""
)
NAME_FILLERS = _set(
    """get set check internal is has verify validate fetch retrieve find list lookup look read show do the a of to by
    for api tool function"""
)
"""words in tools' names that say how a thing is looked up, not which thing"""
READING_VERBS = _set(
    """get check find search list look lookup read show fetch retrieve verify validate is has query view describe count
    calculate compute think browse inspect"""
)
"""tools whose names begin with these look and change nothing"""

_stemmer = snowballstemmer.stemmer("english")


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    return str(_stemmer.stemWord(word.lower().replace("\u2019", "'").removesuffix("'s")))


def words_of(text: str) -> list[str]:
    """The stems of a text, in order, without the words that say nothing."""
    text = _PARTICLE_VERB.sub(lambda found: (found[1] + found[2]).lower(), _IN_ORDER.sub("", text))
    parts = _WORD.findall(_HUMP.sub(" ", text.replace("_", " ")))
    return [stem(word) for word in parts if word.lower() not in STOP_WORDS]


def name_words(name: str) -> frozenset[str]:
    """The words of a tool's name that say what it is about."""
    every = words_of(name)
    telling = frozenset(word for word in every if word not in _FILLER_STEMS)
    return telling or frozenset(every)


_FILLER_STEMS = frozenset(stem(word) for word in NAME_FILLERS)
_READING_STEMS = frozenset(stem(word) for word in READING_VERBS)


def only_reads(tool: ToolSpec) -> bool:
    """Whether a tool changes nothing, by the verb of its name, else by the first word of its description."""
    parts = [stem(part) for part in _WORD.findall(_HUMP.sub(" ", tool.name.replace("_", " ")))]
    verb = next((part for part in parts if part not in _NO_VERBS), "")
    if verb in _READING_STEMS or not _ASKING_STEMS.isdisjoint(parts):
        return True
    described = _WORD.search(tool.description)
    return "internal" in tool.name.split("_") and described is not None and stem(described[0]) in _READING_STEMS


_NO_VERBS = frozenset(map(stem, ("internal", "api", "tool")))
_ASKING_STEMS = frozenset(map(stem, ("exist", "exists", "available", "eligible", "valid", "allowed")))


class Vocabulary:
    """How telling each word is among these tools, and how like a sentence is to a tool's own description."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._words = {tool.name: _tool_words(tool) for tool in tools}
        self.names = {tool.name: name_words(tool.name) for tool in tools}
        seen = Counter(word for words in self._words.values() for word in words)
        self._weight = {word: math.log((1 + len(tools)) / (0.5 + count)) for word, count in seen.items()}
        self._rare = math.log((1 + len(tools)) / 0.5)

    def weight(self, word: str) -> float:
        return max(self._weight.get(word, self._rare), 0.05)

    def likeness(self, words: Iterable[str], tool: str) -> float:
        """The cosine of a sentence and a tool's words, each weighted by how few tools have it."""
        left, right = frozenset(words), self._words[tool]
        shared = sum(self.weight(word) ** 2 for word in left & right)
        return shared / (self._length(left) * self._length(right)) if shared else 0.0

    def _length(self, words: Iterable[str]) -> float:
        return math.sqrt(sum(self.weight(word) ** 2 for word in words)) or 1.0


def _tool_words(tool: ToolSpec) -> frozenset[str]:
    return (
        frozenset(words_of(tool.name))
        | frozenset(words_of(tool.description))
        | frozenset(word for name in tool.params for word in words_of(name))
    )


def aliased(text: str, aliases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The tools whose alias, a phrase that the user gave, stands in the text."""
    lowered = text.lower()
    return tuple(
        dict.fromkeys(
            tool
            for phrase, tools in aliases.items()
            if re.search(rf"(?<!\w){re.escape(phrase.lower())}(?!\w)", lowered)
            for tool in tools
        )
    )

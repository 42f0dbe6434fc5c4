"""Which tools can show whether a sentence's condition holds, and for which arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from bylaw.comply.prompt.model import Tier, ToolSpec
from bylaw.comply.prompt.words import Vocabulary, aliased, only_reads, words_of

LIKE = 0.30
"""the least likeness of a sentence and a tool's description that binds them"""
MOSTLY = 0.6
"""the least share of a tool's name, by how telling its words are, that binds it"""
NEAR = 0.9
"""tools this near to the likest one can show it as well"""
_MENTION = re.compile(r"[\"'\u201c\u2018`]([A-Za-z_][\w.]*)[\"'\u201d\u2019`]")
_NUMBER_OF = frozenset(words_of("num number count"))
_EXTENT = _NUMBER_OF | frozenset(
    words_of("info information detail details data record records list status field value")
)
"""words in a tool's name that say how much of a thing it shows, or in which shape, not what thing"""
_THERE = frozenset(words_of("exist available"))
"""words that say the same of a thing when only part of a name fits"""
_WHOLE = re.compile(
    r"\b(?:entire|whole|full|complete|every)\b.{0,40}\b(?:database|system|record|data)\b", re.IGNORECASE
)
_PURPOSE = re.compile(
    r"\b(?:in order )?to (?:be (?:eligible|accepted|able|allowed)|proceed|perform|take|get|receive|complete)\b.*$",
    re.IGNORECASE,
)
"""what a condition is for names the guarded call again, not what shows it"""
_EARLIER = re.compile(
    r"\b(?:previously|already|before|beforehand|prior|earlier|first|successfully)\b"
    r"|\b(?:has|have|had) (?:been )?\w+(?:ed|en)\b",
    re.IGNORECASE,
)
"""something was done: a tool that changes things shows it by having been called"""
_ASIDE = re.compile(r"\([^()]{0,200}\)|,\s*(?:which|retrieved|calculated|computed|defined|i\.e\.)\b[^,]{0,200}(?:,|$)")
"""how a thing is found or worked out, not which thing"""


class Bond(Struct, frozen=True):
    """A tool that shows it, with the arguments that must be those of the guarded call: (its own, the call's)."""

    tool: str
    same: tuple[tuple[str, str], ...]


class Bonds(Struct, frozen=True):
    any_of: tuple[Bond, ...]
    tier: Tier
    likeness: float = 1.0


class Asking(Struct, frozen=True):
    """The sentence that looks for a tool."""

    text: str
    action: str
    earlier: bool
    quoted: frozenset[str]
    counts: bool


class Binder:
    """Knows the tools of one prompt."""

    def __init__(self, tools: Sequence[ToolSpec], aliases: Mapping[str, Sequence[str]] | None = None) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.aliases = aliases or {}
        self.vocabulary = Vocabulary(tools)
        self.whole = tuple(tool.name for tool in tools if _shows_everything(tool))
        """tools that show all there is: whoever has called one has looked at anything"""

    def bind(
        self, text: str, action: str, phrase: str | None = None, hints: frozenset[str] = frozenset()
    ) -> Bonds | None:
        """The tools that show what a sentence says of a call of `action`.

        `phrase` is the part that names the thing, `hints` are words that the sentence means without saying them.
        """
        if named := [tool for tool in aliased(text, self.aliases) if tool in self.tools and tool != action]:
            return Bonds(tuple(self._bond(tool, text, action) for tool in named), Tier.CERTAIN)
        asking = Asking(text, action, bool(_EARLIER.search(text)), self._quoted(text, action), bool(hints & _NUMBER_OF))
        for part in (phrase, text) if phrase else (text,):
            words = frozenset(words_of(_ASIDE.sub(" ", _PURPOSE.sub("", part)))) | hints
            if found := self._by_name(words, asking) or self._by_part_of_name(words, asking):
                return found
        return self._by_likeness(words, asking) or self._all(words)

    def _quoted(self, text: str, action: str) -> frozenset[str]:
        """The words of fields that the sentence quotes: what it is about, before anything else."""
        params = self.tools[action].params if action in self.tools else {}
        names = _MENTION.findall(_ASIDE.sub(" ", text))
        return frozenset(word for name in names if name not in params for word in words_of(name))

    def _candidates(self, asking: Asking) -> Iterator[tuple[str, frozenset[str]]]:
        for tool, names in self.vocabulary.names.items():
            if tool != asking.action and tool not in self.whole and (asking.earlier or only_reads(self.tools[tool])):
                yield tool, names

    def _by_name(self, words: frozenset[str], asking: Asking) -> Bonds | None:
        """Tools all of whose telling words stand in the sentence; the one with most of them, and its equals."""
        found = {tool: names for tool, names in self._candidates(asking) if names <= words}
        best = max(found, key=lambda tool: self._rank(found[tool], words, tool, asking), default=None)
        return None if best is None else self._with_equals(best, asking, Tier.CERTAIN, 1.0)

    def _rank(self, names: frozenset[str], words: frozenset[str], tool: str, asking: Asking) -> tuple[float, float]:
        return self._worth(names) + self._worth(names & asking.quoted), self.vocabulary.likeness(words, tool)

    def _with_equals(self, best: str, asking: Asking, tier: Tier, likeness: float) -> Bonds:
        tools = [best, *(tool for tool in self._equals(best, asking) if tool != best)]
        return Bonds(tuple(self._bond(tool, asking.text, asking.action) for tool in tools), tier, likeness)

    def _by_part_of_name(self, words: frozenset[str], asking: Asking) -> Bonds | None:
        """Tools most of whose telling words stand in the sentence."""
        if words & _THERE:
            words |= _THERE
        shares: dict[str, float] = {}
        for tool, names in self._candidates(asking):
            telling = (names - _EXTENT) or names
            if telling & words:
                shares[tool] = self._worth(telling & words) / self._worth(telling)
        best = max(
            shares,
            key=lambda tool: (shares[tool], *self._rank(self.vocabulary.names[tool] & words, words, tool, asking)),
            default=None,
        )
        if best is None or shares[best] < MOSTLY:
            return None
        return self._with_equals(best, asking, Tier.LIKELY, shares[best])

    def _worth(self, names: frozenset[str]) -> float:
        return sum(self.vocabulary.weight(word) for word in names)

    def _equals(self, best: str, asking: Asking) -> list[str]:
        """Tools about the very same thing that only show more or less of it. A number does not show which ones."""
        thing = self.vocabulary.names[best] - _EXTENT
        return [
            tool
            for tool, names in self._candidates(asking)
            if names - _EXTENT == thing and only_reads(self.tools[tool]) and (asking.counts or not names & _NUMBER_OF)
        ]

    def _by_likeness(self, words: frozenset[str], asking: Asking) -> Bonds | None:
        scores = {tool: self.vocabulary.likeness(words, tool) for tool, _ in self._candidates(asking)}
        best = max(scores.values(), default=0.0)
        if best < LIKE:
            return None
        near = [tool for tool, score in scores.items() if score >= NEAR * best]
        return Bonds(tuple(self._bond(tool, asking.text, asking.action) for tool in near), Tier.LIKELY, best)

    def _all(self, words: frozenset[str]) -> Bonds | None:
        """`consider the database as a whole`: only a look at everything will do."""
        named = [tool for tool in self.whole if self.vocabulary.names[tool] <= words]
        return Bonds(tuple(Bond(tool, ()) for tool in named), Tier.CERTAIN) if named else None

    def _bond(self, tool: str, text: str, action: str) -> Bond:
        own, other = self.tools[tool].params, self.tools[action].params if action in self.tools else {}
        mentioned = [name for name in _MENTION.findall(text) if name in other]
        same = []
        for param, schema in own.items():
            partner = _partner(param, mentioned, other)
            if partner is not None and schema.get("type") not in ("array", "object"):
                same.append((param, partner))
        return Bond(tool, tuple(same))


def _partner(param: str, mentioned: Sequence[str], other: Mapping[str, object]) -> str | None:
    """The argument of the guarded call that this one must equal: one the sentence quotes, or else its namesake."""
    words = frozenset(words_of(param))
    for name in mentioned:
        if name == param:
            return name
    for name in mentioned:
        if words < frozenset(words_of(name)):
            return name
    return param if param in other else None


def _shows_everything(tool: ToolSpec) -> bool:
    return (
        not tool.params and only_reads(tool) and bool(_WHOLE.search(tool.description) or tool.name.endswith("database"))
    )

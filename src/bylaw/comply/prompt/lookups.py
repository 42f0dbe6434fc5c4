"""Which tools can show whether a condition holds, and for which arguments.

`the balance of "account_id" must be at least 300` is shown by `get_balance`, called with the same `account_id`. A tool
is found by its whole name, by the greater part of its name, or by its description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from bylaw.comply.model import Tier
from bylaw.comply.prompt.vocabulary import Tools, any_case, only_reads, stems

LEAST_LIKENESS = 0.30
"""of a sentence and a tool's description"""
LEAST_SHARE = 0.6
"""of a tool's name that must be in the sentence, its words weighted by how distinctive they are"""
NEARLY_BEST = 0.9
"""tools with this share of the best likeness can show it as well"""
_MENTION = re.compile(r"[\"'\u201c\u2018`]([A-Za-z_][\w.]*)[\"'\u201d\u2019`]")
NUMBER_WORDS = frozenset(stems("num number count"))
_EXTENT = NUMBER_WORDS | frozenset(stems("info information detail details data record records list status field value"))
"""words in a tool's name that say how much of a thing it shows, or in which form, not which thing"""
_EXISTENCE = frozenset(stems("exist available"))
"""words with one meaning where only a part of a name matches"""
_PURPOSE = any_case(
    r"\b(?:in order )?to (?:be (?:eligible|accepted|able|allowed)|proceed|perform|take|get|receive|complete)\b.*$"
)
"""the purpose of a condition names the guarded call again, not what shows the condition"""
_EARLIER = any_case(
    r"\b(?:previously|already|before|beforehand|prior|earlier|first|successfully)\b"
    r"|\b(?:has|have|had) (?:been )?\w+(?:ed|en)\b"
)
"""something was done: a call of a tool that changes things shows it"""
_ASIDE = re.compile(r"\([^()]{0,200}\)|,\s*(?:which|retrieved|calculated|computed|defined|i\.e\.)\b[^,]{0,200}(?:,|$)")
"""how a thing is found or computed, not which thing"""


class Lookup(Struct, frozen=True):
    """A tool that shows it, with the arguments that must be those of the guarded call: (its own, the call's)."""

    tool: str
    same: tuple[tuple[str, str], ...]


class Lookups(Struct, frozen=True):
    any_of: tuple[Lookup, ...]
    tier: Tier
    likeness: float = 1.0


def find_lookups(
    text: str, action: str, tools: Tools, phrase: str | None = None, hints: frozenset[str] = frozenset()
) -> Lookups | None:
    """The tools that show what a sentence says about a call of `action`.

    `phrase` is the part that names the thing; `hints` are words that the sentence means without saying them.
    """
    return _Search(text, action, tools, is_counting=bool(hints & NUMBER_WORDS)).run(phrase, hints)


class _Search:
    def __init__(self, text: str, action: str, tools: Tools, *, is_counting: bool) -> None:
        self._text = text
        self._action = action
        self._tools = tools
        self._vocabulary = tools.vocabulary
        self._is_counting = is_counting
        self._params = tools.spec(action).params
        mentions = _MENTION.findall(_ASIDE.sub(" ", text))
        self._quoted = frozenset(word for name in mentions if name not in self._params for word in stems(name))
        """the words of quoted fields: the sentence is about these before anything else"""
        any_tool = _EARLIER.search(text) is not None
        self._candidates = {
            tool: names
            for tool, names in self._vocabulary.names.items()
            if tool != action and tool not in tools.whole_database and (any_tool or only_reads(tools.specs[tool]))
        }

    def run(self, phrase: str | None, hints: frozenset[str]) -> Lookups | None:
        specs = self._tools.specs
        aliased = [tool for tool in self._tools.aliased(self._text) if tool in specs and tool != self._action]
        if aliased:
            return self._lookups(aliased, Tier.CERTAIN)
        words = frozenset[str]()
        for part in (phrase, self._text) if phrase else (self._text,):
            words = frozenset(stems(_ASIDE.sub(" ", _PURPOSE.sub("", part)))) | hints
            if found := self._by_name(words) or self._by_part_of_name(words):
                return found
        return self._by_likeness(words) or self._by_whole_database(words)

    def _by_name(self, words: frozenset[str]) -> Lookups | None:
        """All words of the name are in the sentence; the name with the most distinctive ones wins."""
        found = {tool: names for tool, names in self._candidates.items() if names <= words}
        best = max(found, key=lambda tool: self._rank(found[tool], words, tool), default=None)
        return None if best is None else self._lookups(self._with_equals(best), Tier.CERTAIN)

    def _by_part_of_name(self, words: frozenset[str]) -> Lookups | None:
        if words & _EXISTENCE:
            words |= _EXISTENCE
        shares: dict[str, float] = {}
        for tool, names in self._candidates.items():
            distinctive = (names - _EXTENT) or names
            if distinctive & words:
                shares[tool] = self._weight(distinctive & words) / self._weight(distinctive)
        best = max(
            shares,
            key=lambda tool: (shares[tool], *self._rank(self._candidates[tool] & words, words, tool)),
            default=None,
        )
        if best is None or shares[best] < LEAST_SHARE:
            return None
        return self._lookups(self._with_equals(best), Tier.LIKELY, shares[best])

    def _by_likeness(self, words: frozenset[str]) -> Lookups | None:
        scores = {tool: self._vocabulary.likeness(words, tool) for tool in self._candidates}
        best = max(scores.values(), default=0.0)
        if best < LEAST_LIKENESS:
            return None
        return self._lookups([tool for tool, score in scores.items() if score >= NEARLY_BEST * best], Tier.LIKELY, best)

    def _by_whole_database(self, words: frozenset[str]) -> Lookups | None:
        """`consider the database as a whole`: only a tool that shows everything is enough."""
        named = [tool for tool in self._tools.whole_database if self._vocabulary.names[tool] <= words]
        return Lookups(tuple(Lookup(tool, ()) for tool in named), Tier.CERTAIN) if named else None

    def _rank(self, names: frozenset[str], words: frozenset[str], tool: str) -> tuple[float, float]:
        return self._weight(names) + self._weight(names & self._quoted), self._vocabulary.likeness(words, tool)

    def _weight(self, names: frozenset[str]) -> float:
        return sum(self._vocabulary.weight(word) for word in names)

    def _with_equals(self, best: str) -> list[str]:
        """The tool, and those about the same thing that show more or less of it. A number does not show which ones."""
        thing = self._candidates[best] - _EXTENT
        equals = (
            tool
            for tool, names in self._candidates.items()
            if names - _EXTENT == thing
            and only_reads(self._tools.specs[tool])
            and (self._is_counting or not names & NUMBER_WORDS)
        )
        return list(dict.fromkeys((best, *equals)))

    def _lookups(self, tools: Sequence[str], tier: Tier, likeness: float = 1.0) -> Lookups:
        return Lookups(tuple(Lookup(tool, tuple(self._same(tool))) for tool in tools), tier, likeness)

    def _same(self, tool: str) -> Iterator[tuple[str, str]]:
        mentioned = [name for name in _MENTION.findall(self._text) if name in self._params]
        for param, schema in self._tools.specs[tool].params.items():
            partner = _partner(param, mentioned, self._params)
            if partner is not None and schema.get("type") not in ("array", "object"):
                yield param, partner


def _partner(param: str, mentioned: Sequence[str], params: Mapping[str, object]) -> str | None:
    """The argument of the guarded call that this one must equal: one that the sentence quotes, or else its namesake."""
    if param in mentioned:
        return param
    words = frozenset(stems(param))
    longer = (name for name in mentioned if words < frozenset(stems(name)))
    return next(longer, param if param in params else None)

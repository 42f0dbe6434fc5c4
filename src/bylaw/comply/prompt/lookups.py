"""Which tools can show whether a condition holds, and for which arguments.

`the balance of "account_id" must be at least 300` is shown by `get_balance`, called with the same `account_id`.

| found by | tier |
|---|---|
| an alias; all words of the name, at least one of which says what is shown (`balance`) | certain |
| a field that the sentence quotes and the tool's results, schema or description name | certain |
| a name that says only whose record it is (`get_order_details`), if the record's existence is the condition | certain |
| such a name otherwise, several tools alike, no common argument, a part of the name, the description | likely |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import Tier, ToolSpec
from bylaw.comply.prompt.vocabulary import Tools, any_case, only_reads, stem, stems

LEAST_LIKENESS = 0.30
"""of a sentence and a tool's description"""
LEAST_SHARE = 0.6
"""of a tool's name that must be in the sentence, its words weighted by how distinctive they are"""
NEARLY_BEST = 0.9
"""tools with this share of the best score can show it as well"""
MENTION = re.compile(r"[\"'\u201c\u2018`]([A-Za-z_][\w.]*)[\"'\u201d\u2019`]")
OF_IT = any_case(r"\b(?:of|for|from|by|with|in|to|on)(?: (?:the|a|an|this|their|its)(?: \w+)?)?\s*$")
"""the phrase before a key: `the balance of "account_id"`"""
_OWNER = re.compile(
    r"\b([A-Za-z]+)(?:'s)?(?: with)?(?: the)?(?: id)? [\"'\u201c\u2018`]([A-Za-z_]\w*)[\"'\u201d\u2019`]"
)
NUMBER_WORDS = frozenset(stems("num number count"))
_EXTENT = NUMBER_WORDS | frozenset(
    stems("info information detail details data record records list status state field value profile summary entry all")
)
"""words in a tool's name that say how much of a thing it shows, or in which form, not which thing"""
_EXISTENCE = frozenset(stems("exist available included"))
"""words with one meaning where only a part of a name matches"""
_PURPOSE = any_case(
    r"\b(?:in order )?to (?:be (?:eligible|accepted|able|allowed)|proceed|perform|take|get|receive|complete)\b.*$"
)
"""the purpose of a condition names the guarded call again, not what shows the condition"""
_ACT = any_case(
    r"\b(?:logg?(?:ed)?|sign(?:ed)?)[ -]?(?:in|on|out)\b|\b(?:authenticat|verif|validat|identif|confirm|consent)(?:ed"
    r"|ied)\b|\b(?:you|agent|assistant) (?:must |should )?(?:has|have|had)\b"
)
"""something is done in the talk itself: a call of a tool that changes things shows it"""
_EARLIER = any_case(
    r"\b(?:previously|already|before|beforehand|prior|earlier|first|successfully)\b"
    r"|\b(?:has|have|had) (?:been )?\w+(?:ed|en)\b"
)
"""something was done, in the talk or long before it"""
_BY_SOMEBODY = any_case(
    r"\bby (?:the |a |this )?(?:user|customer|client|\w+ (?:of|\")|same)"
    r"|\b(?:user|customer|client)\b.{0,40}\b(?:has|have)\b"
)
_ASIDE = re.compile(r"\([^()]{0,200}\)|,\s*(?:which|retrieved|calculated|computed|defined|i\.e\.)\b[^,]{0,200}(?:,|$)")
"""how a thing is found or computed, not which thing"""
_PERSON = frozenset(
    stems(
        """user username person owner customer client patient student member guest holder driver buyer seller recipient
        sender employee name"""
    )
)
"""words of parameters that say who"""
_ANYBODY = frozenset(stems("user username person owner holder name id account"))
"""words of parameters that say who, whatever the person is in the guarded call"""
_WHOLE = any_case(r"\b(?:whole|entire|full|complete)\b")
_CHECKS = frozenset(stems("verify validate authenticate confirm identify approve"))
"""`verify_holder` shows that `the holder has been verified`"""
_KEY_WORDS = frozenset(stems("id number code key name uuid no"))
_FIT = 1.0
"""the addition to the score of a tool that takes the arguments that the sentence quotes"""


class Lookup(Struct, frozen=True):
    """A tool that shows it, with the arguments that must be those of the guarded call: (its own, the call's)."""

    tool: str
    same: tuple[tuple[str, str], ...]


class Lookups(Struct, frozen=True):
    any_of: tuple[Lookup, ...]
    tier: Tier
    likeness: float = 1.0
    also: tuple[Lookup, ...] = ()
    """tools with a word of the sentence in their names: whoever called one may have seen it there"""
    is_named: bool = True
    """by all words of the name: `false` of `is_open` is the contrary of `must be open`"""


def find_lookups(
    text: str, action: str, tools: Tools, phrase: str | None = None, hints: frozenset[str] = frozenset()
) -> Lookups | None:
    """The tools that show what a sentence says about a call of `action`.

    `phrase` is the part that names the thing; `hints` are words that the sentence means without saying them.
    """
    search = _Search(text, action, tools, is_counting=bool(hints & NUMBER_WORDS))
    if found := search.run(phrase, hints):
        return search.vote(found)
    if not _EARLIER.search(text) or _BY_SOMEBODY.search(text):
        return None
    # A state that no tool shows may be the work of one: `the table must have been backed up`.
    found = _Search(text, action, tools, is_counting=False, any_tool=True).run(phrase, hints)
    return replace(found, tier=Tier.LIKELY) if found else None


class _Search:
    def __init__(self, text: str, action: str, tools: Tools, *, is_counting: bool, any_tool: bool = False) -> None:
        self._text = text
        self._action = action
        self._tools = tools
        self._vocabulary = tools.vocabulary
        self._is_counting = is_counting
        self._params = tools.spec(action).params
        mentions = MENTION.findall(_ASIDE.sub(" ", text))
        self._fields = [name for name in mentions if name not in self._params]
        self._mentioned: list[str] = [name for name in MENTION.findall(text) if name in self._params]
        self._quoted = frozenset(word for name in self._fields for word in stems(name))
        """the words of quoted fields: the sentence is about these before anything else"""
        owners = " ".join(found[1] for found in _OWNER.finditer(text) if found[2] in self._params)
        self._keys = frozenset(word for name in (*self._params, owners) for word in stems(name)) | _PERSON
        """words that say whose record a tool shows: `the prescription "rx_id"`"""
        any_tool = any_tool or _ACT.search(text) is not None
        self._candidates = {
            tool: names
            for tool, names in self._vocabulary.names.items()
            if tool != action
            and tool not in tools.whole_database
            and tool not in tools.clocks
            and (any_tool or only_reads(tools.specs[tool]))
        }

    def run(self, phrase: str | None, hints: frozenset[str]) -> Lookups | None:
        specs = self._tools.specs
        aliased = [tool for tool in self._tools.aliased(self._text) if tool in specs and tool != self._action]
        if aliased:
            return self._lookups(aliased, Tier.CERTAIN)
        words = frozenset[str]()
        for part in (phrase, self._text) if phrase else (self._text,):
            words = self._words(part)
            if found := self._find_by_name(words):
                return found
            if hints and (found := self._find_by_name(words | hints)):
                return Lookups(found.any_of, Tier.LIKELY, NEARLY_BEST)
            spoken, words = words, words | hints
            if found := self._find_by_field():
                return found
            record, share = self._find_by_record(words), self._find_by_part(words)
            if found := share or record:
                more = record.any_of if share and record and record.tier is Tier.LIKELY else ()
                every = tuple(dict.fromkeys((*found.any_of, *more)))
                near = tuple(one for one in self._find_near(spoken) if one not in every)
                return replace(found, any_of=every, also=near if found.tier is Tier.LIKELY else ())
        return (
            self._find_by_name(words, unjoined=True)
            or self._find_by_likeness(words)
            or self._find_for_whole_database(words)
        )

    def vote(self, found: Lookups) -> Lookups:
        """With embeddings, a second vote: certain if the tool nearest in meaning is one of those found, else likely."""
        nearest = self._tools.nearest(self._text, self._candidates)
        if nearest is None or self._tools.aliased(self._text):
            return found
        agrees = nearest in {lookup.tool for lookup in found.any_of}
        is_bound = found.likeness >= LEAST_SHARE and all(self._is_joined(lookup.tool) for lookup in found.any_of)
        return replace(found, tier=Tier.CERTAIN if agrees and is_bound else Tier.LIKELY)

    def _words(self, part: str) -> frozenset[str]:
        """The words of a part of the sentence, and the abbreviations of them that names of tools have."""
        spoken = _ASIDE.sub(" ", _PURPOSE.sub("", part))
        words = frozenset(stems(spoken))
        names = {word for names in self._candidates.values() for word in names}
        return words | {word for word in names - words if is_abbreviation(word, spoken)}

    # -- certain -------------------------------------------------------------------------------------------------------

    def _find_by_name(self, words: frozenset[str], *, unjoined: bool = False) -> Lookups | None:
        """All words of the name are in the sentence, and not only those that say whose record it is.

        `unjoined`: also tools that no argument of the guarded call goes to.
        """
        found = {
            tool: names
            for tool, names in self._candidates.items()
            if self._required_words(names, tool) <= words
            and (
                not self._subject_words(names) <= self._keys
                or words.intersection(_CHECKS, map(stem, tool.split("_")[:2]))
            )
            and (unjoined or self._is_joined(tool))
        }
        if not found:
            return None
        scores = {tool: self._score(names, tool) for tool, names in found.items()}
        best = max(found, key=lambda tool: (scores[tool], self._vocabulary.likeness(words, tool)))
        if self._quoted and not self._quoted & found[best] and (by_field := self._find_by_field()):
            return by_field
        rivals = [
            tool
            for tool, names in found.items()
            if scores[tool] >= NEARLY_BEST * scores[best] and not names <= found[best] and not found[best] <= names
        ]
        if rivals:
            return self._lookups([best, *rivals], Tier.LIKELY, NEARLY_BEST)
        return self._lookups(self._add_equivalents(best), Tier.CERTAIN)

    def _find_by_field(self) -> Lookups | None:
        """A field that the sentence quotes is one of the tool's results, or stands in its description."""
        specs = self._tools.specs
        shown = [tool for tool in self._candidates if any(shows_field(specs[tool], field) for field in self._fields)]
        joined = [tool for tool in shown if tuple(self._shared_arguments(tool))]
        return self._lookups(joined, Tier.CERTAIN, is_named=False) if joined else None

    # -- likely --------------------------------------------------------------------------------------------------------

    def _find_by_record(self, words: frozenset[str]) -> Lookups | None:
        """`get_order_details` for a sentence about the order: the name says only whose record it is."""
        found = [
            tool
            for tool, names in self._candidates.items()
            if (subject := self._subject_words(names)) <= words
            and not subject <= _PERSON
            and tuple(self._shared_arguments(tool))
        ] or [
            tool
            for tool, names in self._candidates.items()
            if self._subject_words(names) <= words & _PERSON and names & _EXTENT and tuple(self._shared_arguments(tool))
        ]
        if not found:
            return None
        tier = Tier.CERTAIN if words & frozenset(stems("exist")) and len(found) == 1 else Tier.LIKELY
        return self._lookups(found, tier, NEARLY_BEST, is_named=False)

    def _find_by_part(self, words: frozenset[str]) -> Lookups | None:
        if words & _EXISTENCE:
            words |= _EXISTENCE
        shares: dict[str, float] = {}
        for tool, names in self._candidates.items():
            distinctive = self._subject_words(names)
            is_whole = distinctive <= words and bool(distinctive & _EXISTENCE) and self._is_about_subject(tool)
            if (is_whole or not distinctive & words <= self._keys | _EXISTENCE) and self._is_joined(tool):
                shares[tool] = self._weight(distinctive & words) / self._weight(distinctive)
        best = max(
            shares,
            key=lambda tool: (shares[tool], self._score(self._candidates[tool] & words, tool)),
            default=None,
        )
        if best is None or shares[best] < LEAST_SHARE:
            return None
        is_whole = self._subject_words(self._candidates[best]) <= words
        return self._lookups(self._add_equivalents(best), Tier.LIKELY, shares[best], is_named=is_whole)

    def _find_near(self, words: frozenset[str]) -> Iterator[Lookup]:
        for tool, names in self._candidates.items():
            if not names & words <= self._keys | _EXISTENCE | _EXTENT and self._is_joined(tool):
                yield Lookup(tool, tuple(self._shared_arguments(tool)))

    def _find_by_likeness(self, words: frozenset[str]) -> Lookups | None:
        scores = {tool: self._vocabulary.likeness(words, tool) for tool in self._candidates}
        best = max(scores.values(), default=0.0)
        if best < LEAST_LIKENESS:
            return None
        found = [tool for tool, score in scores.items() if score >= NEARLY_BEST * best]
        return self._lookups(found, Tier.LIKELY, best, is_named=False)

    def _find_for_whole_database(self, words: frozenset[str]) -> Lookups | None:
        """`consider the database as a whole`: only a tool that shows everything is enough."""
        is_whole = _WHOLE.search(self._text) is not None
        named = [tool for tool in self._tools.whole_database if is_whole and self._vocabulary.names[tool] <= words]
        return Lookups(tuple(Lookup(tool, ()) for tool in named), Tier.CERTAIN) if named else None

    # -- measures ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _subject_words(names: frozenset[str]) -> frozenset[str]:
        return (names - _EXTENT) or names

    def _required_words(self, names: frozenset[str], tool: str) -> frozenset[str]:
        """The words of a name that a sentence must have. `user` is said by a person whom the sentence quotes.

        A tool that says only that something exists shows it of the thing that the sentence is about, its first key.
        """
        needed = names if names & NUMBER_WORDS else self._subject_words(names)
        joined = {name for _, name in self._shared_arguments(tool)}
        if needed - self._keys <= _EXISTENCE and not self._is_about_subject(tool):
            return frozenset(("",))  # no sentence has it
        if any(frozenset(stems(name)) & _PERSON for name in joined & set(self._mentioned)):
            return (needed - _ANYBODY) or needed
        return needed

    def _is_about_subject(self, tool: str) -> bool:
        """Whether a tool takes the first key that the sentence quotes."""
        subject = self._mentioned[0] if self._mentioned else None
        if subject is None or subject in self._tools.specs[tool].params:
            return True
        return subject in {name for _, name in self._shared_arguments(tool)}

    def _score(self, names: frozenset[str], tool: str) -> float:
        joined = {name for _, name in self._shared_arguments(tool)} & set(self._mentioned)
        fit = len(joined) / len(set(self._mentioned)) if self._mentioned else 0.0
        return self._weight(names) + self._weight(names & self._quoted) + _FIT * fit

    def _weight(self, names: frozenset[str]) -> float:
        return sum(self._vocabulary.weight(word) for word in names)

    def _add_equivalents(self, best: str) -> list[str]:
        """The tool, and those about the same thing that show more or less of it. A number does not show which ones."""
        subject = self._candidates[best] - _EXTENT
        equals = (
            tool
            for tool, names in self._candidates.items()
            if names - _EXTENT == subject
            and only_reads(self._tools.specs[tool])
            and (self._is_counting or not names & NUMBER_WORDS)
        )
        return list(dict.fromkeys((best, *equals)))

    def _is_joined(self, tool: str) -> bool:
        return not self._tools.specs[tool].params or any(True for _ in self._shared_arguments(tool))

    # -- arguments -----------------------------------------------------------------------------------------------------

    def _lookups(self, tools: Sequence[str], tier: Tier, likeness: float = 1.0, *, is_named: bool = True) -> Lookups:
        found = tuple(Lookup(tool, tuple(self._shared_arguments(tool))) for tool in tools)
        if tier is Tier.CERTAIN and any(not one.same and self._tools.specs[one.tool].params for one in found):
            tier, likeness = Tier.LIKELY, NEARLY_BEST  # nothing says whose it was
        return Lookups(found, tier, likeness, is_named=is_named)

    def _shared_arguments(self, tool: str) -> Iterator[tuple[str, str]]:
        params = [
            param
            for param, schema in self._tools.specs[tool].params.items()
            if schema.get("type") not in ("array", "object")
        ]
        for param in params:
            if partner := self._partner(param, params):
                yield param, partner

    def _partner(self, param: str, own: Sequence[str]) -> str | None:
        """The argument of the guarded call that this one must equal.

        It is one that the sentence quotes: the namesake, a longer name (`destination_username`), the only one that says
        who if the parameter says who (`new_owner` for `username`). Or else it is the namesake.
        """
        if param in self._mentioned:
            return param
        words = frozenset(stems(param)) - _KEY_WORDS or frozenset(stems(param))
        longer = [name for name in self._mentioned if words < frozenset(stems(name))]
        if longer:
            return str(longer[0])
        if frozenset(stems(param)) <= _ANYBODY or (words & _PERSON and param not in self._params):
            who = {name for name in self._mentioned if name not in own and frozenset(stems(name)) & _PERSON}
            if len(who) == 1:
                return who.pop()
        if param in self._params:
            return param
        if not self._mentioned and words & _PERSON:
            who = {name for name in self._params if frozenset(stems(name)) & _PERSON}
            return who.pop() if len(who) == 1 else None
        return None


def shows_field(tool: ToolSpec, field: str) -> bool:
    """Whether results of a tool have this field, by its schema, by results seen, or by its description.

    A description shows only names of several words: `borrowed` may stand there for anything.
    """
    if field in tool.fields or "_" not in field:
        return field in tool.fields
    spaced = field.replace("_", " ")
    pattern = rf"(?<!\w)(?:{re.escape(field)}|{re.escape(spaced)})(?!\w)"
    return re.search(pattern, tool.description, re.IGNORECASE) is not None


# -- abbreviations -----------------------------------------------------------------------------------------------------

_LETTERS = re.compile(r"[a-z]+(?:['\u2019]s)?")


def is_abbreviation(short: str, text: str) -> bool:
    """Whether a word of a name is short for words of a text: `dl` for `driver's license`, `resv` for `reservation`."""
    if not (2 <= len(short) <= 5 and short.isalpha()):
        return False
    spoken = _LETTERS.findall(text.lower())
    if short in "".join(word[0] for word in spoken):
        return True
    return len(short) > 2 and any(
        len(word) >= len(short) + 3 and word[0] == short[0] and _is_within(short, word) for word in spoken
    )


def _is_within(short: str, word: str) -> bool:
    """Whether a word has these letters in this order: at its beginning, or without its vowels."""
    if word.startswith(short):
        return True
    letters = iter(word)
    return (
        short[-1] not in "aeiou"
        and sum(letter in "aeiou" for letter in short) <= 1
        and all(letter in letters for letter in short)
    )

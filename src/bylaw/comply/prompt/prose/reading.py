"""What a clause was found to demand, before it gets its place in the prompt; and the clause as its readers see it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.binding import Bound, bind, is_class
from bylaw.comply.prompt.prose.clauses import Clause, Part
from bylaw.comply.prompt.prose.context import Context, root, roots
from bylaw.comply.prompt.prose.counts import number_of
from bylaw.comply.prompt.prose.lowering import ArgTest, Draft
from bylaw.comply.prompt.prose.markers import Marker
from bylaw.comply.prompt.prose.sentence import Literal
from bylaw.comply.prompt.prose.sql import narrowed

NO_TOOL = "no tool is named that is known"
OPEN = "open wording: no event shows whether it was kept"
_HARMLESS_WORDS = """
    call invoke use run execute trigger make try attempt tool function api under any all circumstance ever never always
    must should shall may can cannot not don do does did please agent assistant you model bot ai is are be been being it
    its this that forbidden prohibited allowed permitted strictly absolutely expressly explicitly avoid refrain no
    directly yourself user customer client their his her your a an the i we they also only exclusively solely required
    mandatory have has had need want ensure sure and or nor either neither important critical note warning on own behalf
    time at point case ll t s ve as such them via explicit another other step perform carry out go ahead there simply
    just up to with by using through remember keep mind
"""
_HARMLESS = frozenset(root(word) for word in _HARMLESS_WORDS.split())
"""words beside a tool's name that do not narrow down which of its calls are meant"""
_DONE_WORDS = """
    called returned succeeded completed done finished been successful successfully result results each every same
    once again fail fails failed error errors returns throws raises before after exception immediately
"""
_DONE = frozenset(root(word) for word in _DONE_WORDS.split())
"""words that say of a call that it was made"""
_COMPARING_WORDS = """
    over above more than greater exceed exceeds exceeding larger higher excess beyond under below less fewer lower
    smaller least most up maximum dollars euros percent of worth amount amounts
    between inclusive one either limited capped restricted valid value values equal set
"""
_COMPARING = frozenset(root(word) for word in _COMPARING_WORDS.split())


class Reading(Struct, frozen=True, kw_only=True):
    """A rule without its place and severity."""

    name: str
    """what its id is made of"""
    drafts: tuple[Draft, ...] = ()
    trigger: str = "always"
    required: str | None = None
    forbidden: str | None = None
    tier: Tier = Tier.CERTAIN
    confidence: float = 1.0
    undecided: str | None = None
    tools: tuple[str, ...] = ()
    """whose calls it forbids"""


class View:
    """A clause with its marker and its sentence."""

    def __init__(self, clause: Clause, marker: Marker, context: Context) -> None:
        self.clause = clause
        self.marker = marker
        self.context = context

    @property
    def main(self) -> str:
        return self.clause.main.text

    @property
    def subject(self) -> str:
        """What stands before the marker."""
        return self.main[: self.marker.start - self.clause.main.start]

    @property
    def action(self) -> str:
        """What stands behind the marker."""
        return self.main[self.marker.end - self.clause.main.start :]

    @property
    def bare(self) -> str:
        """The main part without its marker."""
        return f"{self.subject} {self.action}"

    def told(self, part: Part) -> str:
        """A part as it is written, quoted text and all."""
        return shorten(self.context.sentence.text[part.start : part.end])

    @property
    def whole(self) -> str:
        return self.context.sentence.masked[self.clause.start : self.clause.end]

    def literals(self, part: Part | None = None) -> list[Literal]:
        part = part or self.clause.main
        return self.context.sentence.literals_in(part.start, part.end)

    def words_to_say(self, part: Part | None = None) -> list[Literal]:
        known = self.context.tools
        return [item for item in self.literals(part) if item.text not in known.specs and item.text not in known.params]

    def bind(self, text: str, *, likeness: bool = True) -> Bound:
        return narrowed(text, bind(text, self.context, likeness=likeness), self.context.tools)

    def extra(self, text: str, bound: Bound) -> str:
        """The words of a phrase that narrow it down beyond its tools: `in production`; empty where it says no more."""
        return extra_words(text, bound.tools, self.context)

    def narrowing(self, text: str, bound: Bound, tests: Sequence[ArgTest] = ()) -> str:
        """The same for a part that says when: that a call is done, and what its tests say, narrow nothing down."""
        if is_class(text):
            return ""
        told = set(_DONE).union(*(roots(param) for param, _, _ in tests))
        told |= _COMPARING if tests else set()
        left = [word for word in self.extra(text, bound).split() if not set(roots(word)) <= told]
        return " ".join(word for word in left if not (tests and number_of(word.rstrip(",.")) is not None))


def extra_words(text: str, tools: Sequence[str], context: Context) -> str:
    told = set(_HARMLESS)
    for tool in tools:
        told |= set(roots(tool))
    for phrase, names in context.tools.aliases.items():
        if set(names) & set(tools):
            told |= set(roots(phrase))
    left = [word for word in re.findall(r"[\w$'-]+", text) if not set(roots(word)) <= told]
    return " ".join(left)


def weakest(*bounds: Bound) -> tuple[Tier, float]:
    """How sure a rule is that hangs on all of these."""
    tier = Tier.LIKELY if any(bound.tier is Tier.LIKELY for bound in bounds) else Tier.CERTAIN
    confidence = 1.0
    for bound in bounds:
        confidence = min(confidence, bound.confidence)
    return tier, confidence


def calls(tools: Sequence[str]) -> str:
    return f"call_tool: {', '.join(tools)}"


def slug(*parts: str) -> str:
    """An id of a few readable words."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", " ".join(parts)).lower())
    return "-".join(words[:9])[:64].strip("-") or "rule"


def name_of(view: View) -> str:
    """What a rule is called that is tied to no tool: its own words."""
    return shorten(view.main, 50)


def shorten(text: str, most: int = 60) -> str:
    text = " ".join(text.split()).strip(" ,.;:")
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"

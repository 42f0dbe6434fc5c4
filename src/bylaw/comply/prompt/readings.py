"""The demands of a clause, as rules of the engine: `Reading`, its `Draft`s, and `View`, the clause as readers see it.

A reader is a function of a `View` that returns a `Reading`, or None if the clause is not of its form. A draft is an
engine rule as in a rule file, without its id and severity. A demand that no event can decide is a reading
without drafts, with the reason in `undecided`, so that no demand is passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import Aspect, Tier
from bylaw.comply.prompt.binding import (
    Bound,
    bind,
    bind_by_likeness,
    calls_meant,
    only_database_tools,
    strip_class_words,
)
from bylaw.comply.prompt.clauses import Clause, ClausePart, Literal, Sentence
from bylaw.comply.prompt.markers import Marker, denies_skipping
from bylaw.comply.prompt.messages import describe_arguments, name_same, name_tools
from bylaw.comply.prompt.vocabulary import any_case, number_of, root_set, roots

HOW = "it also says how often or how soon"
NO_TIME = "it does not say when"
NO_TOOL = "it names no known tool"
OPEN = "open wording: no event shows whether it was followed"
SEVERAL_CONDITIONS = "it has several conditions"
_LONGEST_TRIGGER = 300
EVERY_ANSWER = 0.9
"""of demands without a condition, which may be meant for some answers or conversations only: not for a greeting"""
STATE_CONFIDENCE = 0.8
"""of rules that depend on the latest value of a field, or on words of the user"""

_HARMLESS = root_set(
    """call invoke invocation use run execute trigger make try attempt tool function api under any all circumstance ever
    never always must should shall may can cannot not don do does did please agent assistant you model bot ai is are
    be been being it its this that forbidden prohibited allowed permitted strictly absolutely expressly explicitly
    avoid refrain no directly yourself user customer client their his her your a an the i we they also only
    exclusively solely required mandatory have has had need want ensure sure and or nor either neither important
    critical note warning on own behalf time at point case ll t s ve as such them via explicit another other step
    perform carry out go ahead there simply just up to with by using through remember keep mind"""
)
"""words beside a tool's name that do not narrow which of its calls are meant"""
_DONE = root_set(
    """called returned succeeded completed done finished been successful successfully result results each every same
    once again fail fails failed error errors returns throws raises before after exception immediately first having
    obtained obtaining doing prior beforehand already previously earlier running getting"""
)
"""words that say that a call was made"""
_COMPARING = root_set(
    """over above more than greater exceed exceeds exceeding larger higher excess beyond under below less fewer lower
    smaller least most up maximum dollars euros percent of worth amount amounts
    between inclusive one either limited capped restricted valid value values equal set"""
)


# -- engine rules ------------------------------------------------------------------------------------------------------

ArgTest: TypeAlias = "tuple[str, str, Any]"
"""parameter, operator, value; the value of `present` and `missing` is None"""
_PLAIN_NAME = re.compile(r"[\w\-.:/*?]+")


class Draft(Struct, frozen=True):
    """An engine rule without its id and severity."""

    kind: str
    params: dict[str, Any]
    aspect: Aspect


def formula(text: str, aspect: Aspect, message: str, *, over: str | None = None) -> Draft:
    """`message` says what went wrong, as in `… was called, but no call of a came before it`."""
    params = {"formula": text} | ({"over": over} if over else {}) | {"message": message}
    return Draft("temporal", params, aspect)


def atom(tools: Sequence[str], tests: Sequence[ArgTest] = (), *, of: str = "tool", joined: Sequence[str] = ()) -> str:
    """`tool(a | b, args.amount > 5, args.order_id = $order_id)`."""
    names = " | ".join(name if _PLAIN_NAME.fullmatch(name) else json.dumps(name) for name in tools)
    same = [f"args.{_segment(param)} = $" + re.sub(r"\W", "_", param) for param in joined]
    return f"{of}({', '.join((names, *map(_format_test, tests), *same))})"


def _format_test(test: ArgTest) -> str:
    param, operator, value = test
    if operator == "matches":
        return f"args.{_segment(param)} matches /{value}/i"
    path = ".".join(_segment(part) for part in param.split("."))
    return f"args.{path} {operator}" + ("" if value is None else f" {json.dumps(value, ensure_ascii=False)}")


def _segment(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else json.dumps(name)


def either(atoms: Sequence[str]) -> str:
    return atoms[0] if len(atoms) == 1 else f"({' | '.join(atoms)})"


def literal_pattern(literal: str) -> str:
    """A pattern that finds this text; each blank matches any run of blanks, each apostrophe a typographic one too.

    A backslash is written as `\\x5c`: the reader of rule files takes two of them before a letter for a mistake.
    """
    escaped = (re.escape(part).replace("\\\\", r"\x5c") for part in literal.split())
    return r"\s+".join(part.replace("'", "['\u2019]") for part in escaped)


def text_pattern(literal: str, *, before: str = "", after: str = "") -> str:
    """The same between slashes, in any case."""
    inside = literal_pattern(literal).replace("/", r"\/")
    return f"/{before}{inside}{after}/i"


def never(tools: Sequence[str], tests: Sequence[ArgTest] = ()) -> Draft:
    if tests:
        return formula(f"G !{atom(tools, tests)}", "argument", describe_arguments(tests))
    return Draft("no_call", {"tool": _one_or_list(tools)}, "call")


def called_before(
    first: Sequence[str],
    second: Sequence[str],
    *,
    tests: Sequence[ArgTest] = (),
    joined: Sequence[str] = (),
    anew: bool = False,
) -> Draft:
    """Every call of `second` (with these arguments) has a call of `first` before it, on the same `joined` arguments.

    `anew`: one call of `first` for each call of `second`, after the call of `second` before that.
    """
    if anew and not joined:
        again = f"({atom(second, tests)} & !{atom(first)})" if "*" in second else atom(second, tests)
        message = f"no new call of {name_tools(first)} came before it"
        return formula(f"G ({again} -> Y (!{again} S {atom(first)}))", "order", message)
    if not tests and not joined and "*" not in (*first, *second):
        return Draft("must_call_before", {"first": _one_or_list(first), "second": _one_or_list(second)}, "order")
    message = f"no call of {name_tools(first)}{name_same(joined)} came before it"
    return formula(f"G ({atom(second, tests, joined=joined)} -> O {atom(first, joined=joined)})", "order", message)


def _one_or_list(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def holds(tools: Sequence[str], tests: Sequence[ArgTest]) -> Draft:
    """Calls that have the parameter have a value that passes."""
    has_it = atom(tools, [(tests[0][0].split(".")[0], "present", None)])
    return formula(f"G ({has_it} -> {atom(('*',), tests)})", "argument", describe_arguments(tests, fail=True))


def at_most(tools: Sequence[str], number: int, *, per_turn: bool = False, joined: Sequence[str] = ()) -> Draft:
    window = "[<=0t]" if per_turn else ""
    one = atom(tools, joined=joined)
    of = "" if "*" in tools else f" of {name_tools(tools)}"
    calls = f"{number} call{'' if number == 1 else 's'}{of}{name_same(joined)}"
    message = f"this is more than {calls}{' in one turn' if per_turn else ''}"
    return formula(f"G ({one} -> count{window}({one}) <= {number})", "count", message)


def at_least(tools: Sequence[str], number: int) -> Draft:
    ending = "" if number == 1 else "s"
    message = f"{name_tools(tools)} was called fewer than {number} time{ending}"
    if "*" in tools:
        message = f"fewer than {number} call{ending} of tools {'was' if number == 1 else 'were'} made"
    return formula(f"F (count({atom(tools)}) >= {number})", "count", message)


def exactly(tools: Sequence[str], number: int) -> list[Draft]:
    if number == 1:
        return [Draft("must_call_once", {"tool": _one_or_list(tools)}, "count")]
    return [at_most(tools, number), at_least(tools, number)]


class Field(Struct, frozen=True):
    """A field of results with the values it is compared with, and the arguments that tie the result to the call."""

    name: str
    values: tuple[Any, ...]
    joined: tuple[str, ...]
    is_negated: bool = False

    def never(self, tools: Sequence[str]) -> Draft:
        """No call while the latest result has such a value. Vacuous if no result ever had one."""
        call = atom(tools, joined=self.joined)
        message = f"the latest result shows that {self.words}"
        return formula(f"G (({call} & O {self._result('present')} & {self._latest()}) -> false)", "state", message)

    def only(self, tools: Sequence[str]) -> Draft:
        """Calls only while the latest result has such a value. Judged only if some result had the field."""
        call = atom(tools, joined=self.joined)
        message = f"the latest result does not show that {self.words}"
        return formula(f"G (({call} & O {self._result('present')}) -> {self._latest()})", "state", message)

    @property
    def words(self) -> str:
        """`status is "shipped"`."""
        values = " or ".join(json.dumps(value, ensure_ascii=False) for value in self.values)
        return f"{self.name} is {'not ' if self.is_negated else ''}{values}"

    def _latest(self) -> str:
        """The latest result with the field has one of these values."""
        values = json.dumps(list(self.values), ensure_ascii=False)
        latest = f"(!{self._result('present')} S {self._result(f'in {values}')})"
        return f"!{latest}" if self.is_negated else latest

    def _result(self, test: str) -> str:
        return atom(("*",), of="result", joined=self.joined)[:-1] + f", result.{_segment(self.name)} {test})"


# -- readings ----------------------------------------------------------------------------------------------------------


class Reading(Struct, frozen=True, kw_only=True):
    """A rule without its place and severity."""

    name: str
    """what its id is made of"""
    drafts: tuple[Draft, ...] = ()
    trigger: str = "always"
    """this and the two actions are set with drafts; `actions` reads those of an undecided rule"""
    required: str | None = None
    forbidden: str | None = None
    undecided: str | None = None
    bounds: tuple[Bound, ...] = ()
    """the tools it depends on; the least certain of them decides how certain the rule is"""
    ceiling: float = 1.0
    """the highest confidence of this kind of reading; below 1 the rule is only likely"""
    forbids: tuple[str, ...] = ()
    """tools of which it forbids calls"""
    asked_by: str = ""
    """a pattern of the words by which a user asks for what it forbids"""

    @property
    def tier(self) -> Tier:
        is_likely = self.ceiling < 1 or any(bound.tier is Tier.LIKELY for bound in self.bounds)
        return Tier.LIKELY if is_likely else Tier.CERTAIN

    @property
    def confidence(self) -> float:
        return min((self.ceiling, *(bound.confidence for bound in self.bounds)))


class View:
    """A clause with its marker and its sentence."""

    def __init__(self, clause: Clause, marker: Marker, sentence: Sentence) -> None:
        self.clause = clause
        self.marker = marker
        self.sentence = sentence
        self.main = clause.main.text
        self.subject = self.main[: marker.start - clause.main.start]
        """the main part before the marker"""
        self.action = self.main[marker.end - clause.main.start :]
        """the main part behind the marker"""
        self.bare = f"{self.subject} {self.action}"
        """the main part without the marker"""
        self.whole = sentence.masked[clause.start : clause.end]
        self._bound: dict[str, Bound] = {}
        self._alike: dict[str, Bound] = {}

    @property
    def name(self) -> str:
        """The name of a rule that is tied to no tool: its own words."""
        return shorten(self.main, 50)

    def quote(self, part: ClausePart, most: int = 60) -> str:
        """A part as it is written, with its quoted text."""
        return shorten(self.sentence.text[part.start : part.end], most)

    def when(self, part: ClausePart) -> str:
        """A part as a trigger: `after cancel_order`, `without approval`; `if` is left out before a clause."""
        quote = self._trigger(part)
        is_clause = not re.match(r"(?:of|that|\w+ing|\w+ed)\b|\S+$", quote)
        return quote if part.word == "if" and is_clause else f"{part.conjunction} {quote}".strip()

    def when_not(self, part: ClausePart) -> str:
        """The opposite, for a rule that allows an action only then: `before confirming`, `unless asked`."""
        if part.word not in ("if", "iff", "after"):
            return self.when(part)
        is_later = part.word == "after" or re.search(r"\b(?:after|once)\b", part.conjunction)
        return f"{'before' if is_later else 'unless'} {self._trigger(part)}"

    def _trigger(self, part: ClausePart) -> str:
        return re.sub(r"[\s,]+(?:and|or|but)$", "", self.quote(part, _LONGEST_TRIGGER).rstrip("!"))

    def literals(self, part: ClausePart | None = None) -> list[Literal]:
        part = part or self.clause.main
        return [one for one in self.sentence.literals if part.start <= one.start and one.end <= part.end]

    def texts(self, part: ClausePart | None = None) -> list[Literal]:
        """The literals that are names of neither tools nor parameters."""
        tools = self.sentence.tools
        return [one for one in self.literals(part) if one.text not in tools.specs and one.text not in tools.params]

    def bind(self, text: str, *, likeness: bool = True) -> Bound:
        """The tools of a phrase. Each reader asks for those of the same phrases, so the answers are stored."""
        if text not in self._bound:
            self._bound[text] = only_database_tools(text, bind(text, self.sentence, likeness=False))
        found = self._bound[text]
        if found.is_choice and denies_skipping(self.marker):  # `never skip A or B`
            found = replace(found, is_choice=False)
        if found or not likeness:
            return found
        if text not in self._alike:
            self._alike[text] = only_database_tools(text, bind_by_likeness(text, self.sentence.tools))
        return self._alike[text]

    def extra(self, text: str, bound: Bound) -> str:
        return extra_words(text, bound, self.sentence)

    def narrowing(self, text: str, bound: Bound, tests: Sequence[ArgTest] = ()) -> str:
        """The same for a phrase that says when: words for a finished call, and for these tests, do not narrow it."""
        text = strip_class_words(text, bound, self.sentence.tools)
        for tool in bound.tools if "(" in text else ():
            text = re.sub(_GLOSS.format(re.escape(tool)), f" {tool} ", text)
        known = set(_DONE).union(*(roots(param) for param, _, _ in tests)) | (_COMPARING if tests else set())
        left = [word for word in self.extra(text, bound).split() if not is_known(word, known)]
        left = [word for word in left if not (tests and QUOTED_WORD.fullmatch(word))]
        return " ".join(word for word in left if not (tests and number_of(word.rstrip(",.")) is not None))

    def calls_meant(self, bound: Bound) -> list[tuple[tuple[str, ...], tuple[ArgTest, ...]]]:
        return calls_meant(self.whole, bound, self.sentence.tools)

    def unmask(self, reason: str) -> str:
        """A reason made of masked words, with the quoted texts in place of their underscores."""
        quoted = [one for one in self.sentence.literals if not one.is_code]

        def restore(found: re.Match[str]) -> str:
            fits = (one for one in quoted if one.end - one.start - 2 == len(found["blank"]))
            if (literal := next(fits, None)) is None:
                return found[0]
            quoted.remove(literal)
            return f'"{shorten(literal.text)}"'

        return QUOTED_WORD.sub(restore, reason)


_GLOSS = (
    r"\b(?:(?!(?:at|on|in|during|for|to|with|from|of|by|after|before|while|when|without|if|it|them)\b)[\w'-]+ ){{1,4}}"
    r"\({}\)"
)
"""words that a tool's name in brackets repeats: `alert the teacher (notify_teacher)`"""


def extra_words(text: str, bound: Bound, sentence: Sentence) -> str:
    """The words that narrow a phrase beyond its tools: `in production`; empty if there are none."""
    known = set(_HARMLESS).union(*(roots(tool) for tool in bound.tools))
    for phrase, names in sentence.tools.aliases.items():
        if set(names) & set(bound.tools):
            known |= set(roots(phrase))
    words = re.findall(r"[\w$'-]+", text)
    which = set() if bound.is_named or bound.is_any else {one["which"] for one in _WHICH.finditer(text)}
    return " ".join(word for word in words if not is_known(word, known) or word in which)


def is_known(word: str, known: set[str] | frozenset[str]) -> bool:
    """Whether all roots of a word are among these; quoted text has none, but is never known."""
    return not QUOTED_WORD.fullmatch(word) and known.issuperset(roots(word))


_WHICH = any_case(
    r"(?<!be )(?<!been )(?<!is )(?<!are )(?<!not )(?<!ever )\b(?P<which>used|other|another|own|called|required|allowed"
    r"|permitted|forbidden|prohibited|explicit|critical|important|running|directed|such|needed|wanted|their|his|her)"
    r"(?= [a-z])"
)
"""`never refund used tickets`: beside ordinary words, these say which things are meant"""


_PARTICIPLE = r"(?P<word>[a-z]+ed|[a-z]+(?<=[aeou])(?:nt|ld|pt|ught)|[a-z]{2,}en|paid|put|made|set)"
_DESCRIBES_A_THING = any_case(
    r"(?<!be )(?<!been )(?<!being )(?<!is )(?<!are )(?<!was )(?<!were )(?<!not )(?<!ever )\b"
    + _PARTICIPLE
    + r" (?:or \w+ "
    r")?(?!(?:by|to|in|on|at|if|unless|with|without|before|after|until|and|or|for|from|via|only|when|once|again|more"
    r"|during|as|using|through|twice|the|a|an|any|your|their|this|that|it)\b)[a-z]+"
)
_DESCRIBES_WHAT_IS = any_case(
    r"(?<!you )(?<!agent )(?<!assistant )\b(?:has|have|had|was|were|(?:is|are) already)(?: been| being"
    r"| already| not| never| just| \w+ly)* " + _PARTICIPLE + r"\b"
)


_CHECKS = root_set("verify check validate authenticate confirm login log sign identify authorize approve review")
"""what a check has done is known by its call only, so `the identity was verified` speaks of the call"""


def described_state(text: str, bound: Bound, *, is_condition: bool = False) -> str:
    """`a shipped order`, `has shipped`: words that bind to a tool, but describe a thing; empty if there are none."""
    if bound.is_named or bound.is_any:
        return ""
    verbs = {words[0] for tool in bound.tools if (words := roots(tool))} - _CHECKS
    pattern = _DESCRIBES_WHAT_IS if is_condition else _DESCRIBES_A_THING
    return next((found[0] for found in pattern.finditer(text) if verbs.intersection(roots(found["word"]))), "")


QUOTED_WORD = re.compile(r"(?<!\w)['\"\u2018\u201c]?(?P<blank>_+)['\"\u2019\u201d]?(?!\w)")
"""quoted text in a masked sentence"""


def in_words(tests: Sequence[ArgTest]) -> str:
    """Tests of arguments as they stand in an action: `amount > 500`, `reason in "late", "lost"`.

    Patterns and tests without a value are left out.
    """
    words = []
    for param, operator, value in tests:
        if value is not None and operator != "matches":
            values = value if isinstance(value, list) else [value]
            sign = {"in": "=", "not in": "!="}.get(operator, operator) if len(values) == 1 else operator
            words.append(f"{param} {sign} {', '.join(json.dumps(one, ensure_ascii=False) for one in values)}")
    return " and ".join(words)


def calls_with(tools: Bound, tests: Sequence[ArgTest]) -> str:
    """`call_tool: issue_refund with amount > 500`."""
    words = in_words(tests)
    return f"{tools.calls} with {words}" if words else tools.calls


def narrowing_reason(words: str) -> str:
    """The reason why a rule about fewer calls than all is undecided: `never call drop_table in production`."""
    return f"it mentions `{shorten(words)}`, which no event shows"


def slug(text: str) -> str:
    """An id of a few readable words."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower())
    return "-".join(words[:9])[:64].strip("-") or "rule"


def shorten(text: str, most: int = 60) -> str:
    text = " ".join(text.split()).strip(" ,.;:")
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"

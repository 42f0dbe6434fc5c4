"""A phrase → the tools it means, and how certain that is.

| found by | tier |
|---|---|
| the exact name (`drop_table`, also one without a schema), `this tool` in a tool's section | certain |
| an alias that the user gave | certain |
| all words of the name in the phrase, one tool (or one for each verb) | certain |
| `any tool` | certain |
| a class of tools by the verbs of their names: destructive, writing | likely, 0.7 |
| all words of several names that share them | likely, 0.7 |
| the verb alone, if only one tool has it | likely, 0.6 |
| words of the description and parameters | likely, 0.55 |
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import Tier
from bylaw.comply.prompt.clauses import Sentence
from bylaw.comply.prompt.messages import DESTRUCTIVE_SQL
from bylaw.comply.prompt.vocabulary import Tools, any_case, lower_in_place, only_reads, root_set, roots, stems

_IDENTIFIER = re.compile(r"(?<![\w./@-])(?:[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+)(?![\w@]|-\w)")
_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(\)")
_CALLING = r"\b(?:[Cc]all(?:s|ing)?|[Ii]nvok(?:e|ing)|[Uu]s(?:e|ing)|[Rr]un(?:ning)?)(?: to)?(?: the)? "
_CALLED_BEHIND = r" (?:tool|function|call)\b| (?:can|may|must|should)(?: \w+)? be (?:called|used|invoked)\b"
_SNAKE = r"\b[a-z]+_\w+\b"
_AND = r"(?:,? (?:and|or) |, )"
_THEN = r"(?:,? (?:and )?then |,? followed by | ?and/or )"
_NO_OBJECT = r"(?=\s*(?:$|[.,;:!)]|(?:and|or|first|then|once|twice|together)\b))"
"""`call lookup and backup` names two tools, `call lookup and backup the table` one"""
_AROUND = " \t,.;:!`*\"'()"
_MENTION = re.compile(r"(?<![A-Za-z0-9_./@<{-])[A-Za-z_][A-Za-z0-9_]*(?:[-.][A-Za-z0-9_]+)*(?![A-Za-z0-9_@])")
_SNAKE_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_CHOICE = re.compile(r"\bor\b|\beither\b|\b(?:one|any) of\b")
_ANY_TOOL = re.compile(
    r"\b(?:any|a|an|each|every|all|no|other|multiple|more|parallel)(?: other| of the| available| given)? (?:tool"
    r"|function|api)s?(?: calls?)?\b|\btool calls?\b|\btools?\s*$|\btools\b|\bany action\b(?! that)"
)
_THIS_TOOL = re.compile(r"\b(?:this|the) (?:tool|function)\b|\bcall it\b|\buse it\b|\bit (?:must|may|should|can)\b")
_DESTRUCTIVE = re.compile(
    r"\b(?:destructive|irreversible|dangerous|permanent(?:ly)?|non-?reversible|(?:that|which) cannot be undone)\b"
)
_WRITING = re.compile(
    r"\b(?:write|consequential|mutating|state-changing|modifying) (?:actions?|operations?|tools?|calls?)\b"
    r"|\b(?:actions?|tools?|calls?|operations?|anything|steps?) (?:that|which) (?:will )?(?:update|modif|chang|writ"
    r"|alter|affect|edit)|\b(?:updat|modif|chang|writ|alter)\w* (?:to )?(?:the |any |a )?(?:\w+ )?(?:database|records?"
    r"|data|system|account state)\b|\bany (?:changes?|updates?|modifications?|writes?)\b|\bmak(?:e"
    r"|ing) (?:any )?changes\b"
)
_CLASS_PHRASES = any_case(rf"(?:{_WRITING.pattern})\w*|{_DESTRUCTIVE.pattern}")
_CLASS_WORDS = root_set(
    """action actions operation operations step steps command commands change changes database sql query queries
    statement statements anything thing things data record records system take taking taken tables rows making
    perform proceed"""
)
_DESTRUCTIVE_VERBS = root_set(
    "delete drop remove truncate purge wipe erase destroy cancel terminate revoke reset overwrite kill uninstall format"
)
_DESTRUCTIVE_GLOBS = tuple(
    f"{word}_*" for word in ("delete", "drop", "remove", "truncate", "purge", "wipe", "erase", "destroy")
)
_MESSAGE_VERBS = root_set("transfer escalate handoff respond reply message notify log finish end terminate think")
"""tools whose names begin with these send a message and change no data of the user's"""
_VAGUE_VERBS = root_set(
    """get set update check find list read show do make use call run look search send create add execute perform give
    take verify confirm process handle request answer ask access approve report respond review submit transfer"""
)
"""verbs so common that one of them alone identifies no tool"""
_LEAST_LIKENESS = 0.5
"""of a phrase and a tool's description; below it, the tool found is wrong more often than right"""
_SPEAKS_OF_SQL = re.compile(r"\bsql\b|\b(?:database|db) (?:quer(?:y|ies)|statements?|commands?|operations?)\b")
_DATABASE_WORDS = root_set("table database row record column schema index view collection sql query")
_SQL_PARAMS = root_set("sql query statement command")


class Bound(Struct, frozen=True):
    """The tools that a phrase means; falsy if it means none that is known."""

    tools: tuple[str, ...] = ()
    tier: Tier = Tier.CERTAIN
    confidence: float = 1.0
    is_named: bool = False
    """by its exact name or an alias, not by ordinary words"""
    is_choice: bool = False
    """any one of them is enough: `A or B`"""
    one_of: tuple[str, ...] = ()
    """tools of which one is enough; all others are needed: `A and either B or C`"""
    is_mixed: bool = False
    """whether they are joined by `and` and `or` in a way that can be read in two ways: `A and B or C`"""
    order: Literal["none", "all", "some"] = "none"
    """which of them must be called in order: all in `A, then B`, only some in `A and B, then C`"""

    def __bool__(self) -> bool:
        return bool(self.tools)

    @property
    def is_any(self) -> bool:
        return self.tools == ("*",)

    @property
    def names(self) -> str:
        return " ".join(self.tools)

    @property
    def calls(self) -> str:
        """As the trigger, the required or the forbidden action of a rule."""
        return f"call_tool: {', '.join(' or '.join(group) for group in self.groups)}"

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The demands on these tools: one on each tool, and one on all of those that are a choice."""
        one_of = self.tools if self.is_choice else self.one_of
        return [*((tool,) for tool in self.tools if tool not in one_of), *([one_of] if one_of else [])]

    @property
    def unclear(self) -> str:
        """Why it is not known what is demanded of several tools; empty if it is known."""
        if len(self.tools) > 1 and self.is_mixed:
            return "it mixes `and` and `or`, so which tools it demands is unclear"
        return "it gives an order for only some of its tools" if len(self.tools) > 1 and self.order == "some" else ""

    def without(self, *others: str) -> Bound:
        """The same without these tools, and without `any tool`."""
        tools, one_of = (
            tuple(tool for tool in some if tool not in others and tool != "*") for some in (self.tools, self.one_of)
        )
        return replace(self, tools=tools, one_of=one_of)


def bind(phrase: str, sentence: Sentence, *, likeness: bool = True) -> Bound:
    """The tools of a phrase, by the most certain way that finds any. `likeness`: also by verb or description."""
    found = _bind(phrase, sentence)
    if not found and likeness:
        return bind_by_likeness(phrase, sentence.tools)
    return _join(found, phrase) if len(found.tools) > 1 else found


def _bind(phrase: str, sentence: Sentence) -> Bound:
    tools = sentence.tools
    if named := _named_tools(phrase, sentence) or tools.aliased(phrase):
        return Bound(named, is_named=True)
    if sentence.section and _THIS_TOOL.search(lower_in_place(phrase)):
        return Bound((sentence.section,), is_named=True)
    if found := _class_of_tools(phrase, tools):
        return Bound(found, Tier.LIKELY, 0.7)
    if by_words := _bind_by_words(phrase, tools):
        return by_words
    return Bound(("*",)) if _ANY_TOOL.search(lower_in_place(phrase)) else Bound()


# -- by name -----------------------------------------------------------------------------------------------------------


def _named_tools(phrase: str, sentence: Sentence) -> tuple[str, ...]:
    """Tools by their exact names, in the order of the phrase."""
    specs, params = sentence.tools.specs, sentence.tools.params
    identifiers = (match for match in _IDENTIFIER.finditer(phrase) if match[0] in specs or match[0] not in params)
    found = {match.start(): match[0] for match in identifiers}
    found |= {match.start(1): match[1] for match in _CALLED.finditer(phrase)}
    for name in specs:
        if name in phrase and (position := _position_of(name, phrase, sentence)) is not None:
            found[position] = name
    return tuple(dict.fromkeys(found[position] for position in sorted(found)))


def names_tool(phrase: str, sentence: Sentence) -> bool:
    """Whether a phrase has the name of a tool, or an identifier that looks like one, in any language."""
    specs, params = sentence.tools.specs, sentence.tools.params
    words = {found[0] for found in _MENTION.finditer(phrase)}
    if any(_SNAKE_NAME.fullmatch(word) and word not in params for word in words):
        return True
    return any(_position_of(word, phrase, sentence) is not None for word in words if word in specs)


def _position_of(name: str, phrase: str, sentence: Sentence) -> int | None:
    """A name that is also an ordinary word counts only where the phrase marks it as a name: `call search`."""
    if name not in phrase:
        return None
    if phrase.strip(_AROUND) == name:  # `before confirm`
        return phrase.index(name)
    pattern = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if not (name.isalpha() and name.islower()) or sentence.quotes(name):
        found = re.search(pattern, phrase)
        return found.start() if found else None
    marked = re.search(
        rf"{_CALLING}(?P<a>{pattern})|(?P<b>{pattern})(?:{_CALLED_BEHIND})|(?P<c>{pattern}){_AND}{_SNAKE}"
        rf"|{_SNAKE}{_AND}(?P<d>{pattern})|{_CALLING}(?:\w+{_AND})+(?P<e>{pattern})(?:{_NO_OBJECT})"
        rf"|{_SNAKE}{_THEN}(?P<f>{pattern})(?:{_NO_OBJECT})",
        phrase,
    )
    return marked.start(marked.lastgroup or 0) if marked else None


# -- how tools are joined ----------------------------------------------------------------------------------------------

_JOINING = any_case(
    r"(?P<o>\band\s*/\s*or\b|\bor\b|[/|])|(?P<t>\b(?:then|followed by|afterwards?|next|after (?:that|which)"
    r"|subsequently|thereafter)\b)|(?P<a>\b(?:and|plus|as well as|along with|together with)\b|[&+])|(?P<x>\beither\b)"
    r"|(?P<e>\b(?:one|any) of\b)|(?P<b>\bboth\b)|(?P<p>\((?!\)))|(?P<c>,)|(?P<word>[\w-]+(?:\.[\w-]+)*)"
)
"""Words that join tools. The letter of each kind, and `T` for a tool, make the form of a phrase, as below."""
_ANY_ONE = re.compile(r"[ex]?T(?:[oc]T)*oT|eT(?:[ac]T)+|xT(?:cT)+")
"""`A or B`, `any of A, B and C`"""
_ALL_AND_ONE = re.compile(r"b?T(?:[ac]T)*a(?:[xp](?P<or>T(?:[oc]T)*oT)|e(?P<of>T(?:[oca]T)+))")
"""`A and either B or C`"""
_ONE_BY_ONE = re.compile(r"T(?:tT)+")


def _join(bound: Bound, phrase: str) -> Bound:
    """The tools as the words between their names join them; without their names, words may stand anywhere."""
    letters, names = "", list[str]()
    for found in _JOINING.finditer(phrase):
        if found.lastgroup != "word":
            letters += found.lastgroup or ""
        elif found[0] in bound.tools:
            letters, names = f"{letters}T", [*names, found[0]]
    if not set(bound.tools) <= set(names):
        is_mixed = bound.is_named and len(bound.tools) > 2 and "a" in letters and "o" in letters
        is_choice = not is_mixed and _CHOICE.search(lower_in_place(phrase)) is not None
        return replace(bound, is_choice=is_choice, is_mixed=is_mixed, order="some" if "t" in letters else "none")
    front = letters[: letters.index("T")]
    form = re.sub(r"[^exb]", "", front[-1:]) + letters[len(front) : letters.rindex("T") + 1]
    form = re.sub(r"c+(?=[ao])", "", re.sub(r"[ca]*t[ca]*", "t", form))
    if some := _ALL_AND_ONE.fullmatch(form):
        return replace(bound, one_of=tuple(names[-(some["or"] or some["of"]).count("T") :]))
    form = form.replace("p", "")
    if _ANY_ONE.fullmatch(form):
        return replace(bound, is_choice=True)
    order: Literal["none", "all", "some"] = "some" if "t" in form else "none"
    if _ONE_BY_ONE.fullmatch(form) and len(set(names)) == len(names):
        order = "all"
    is_mixed = any(re.search(r"[oex]", part) and not _ANY_ONE.fullmatch(part) for part in form.split("t"))
    return replace(bound, is_mixed=is_mixed, order=order)


# -- by class ----------------------------------------------------------------------------------------------------------


def _class_of_tools(phrase: str, tools: Tools) -> tuple[str, ...]:
    """`destructive tools`, `any action that changes the database`."""
    if _DESTRUCTIVE.search(lower_in_place(phrase)):
        return tuple(name for name in tools.specs if is_destructive(name)) or _DESTRUCTIVE_GLOBS
    if not _WRITING.search(lower_in_place(phrase)):
        return ()
    return tuple(
        name
        for name, spec in tools.specs.items()
        if not only_reads(spec) and _MESSAGE_VERBS.isdisjoint(tools.roots[name][:1])
    )


def strip_class_words(phrase: str, bound: Bound, tools: Tools) -> str:
    """The phrase without the words that mean tools by their effect on data; the others narrow which calls are meant.

    Beside a tool's name (`use write_file for destructive actions`) these words narrow too, unless each call of the tool
    is of that kind, or its SQL shows it.
    """
    if not (is_about_destruction(phrase) or _WRITING.search(lower_in_place(phrase))):
        return phrase
    outside = re.sub(r"\([^()]*\)", " ", phrase)
    if bound.is_named and any(
        name in outside and not tests and not is_destructive(name)
        for names, tests in calls_meant(phrase, bound, tools)
        for name in names
    ):
        return phrase
    rest = re.sub(r"\([^()]*\)", " ", _CLASS_PHRASES.sub(" ", phrase))
    return " ".join(word for word in rest.split() if not set(roots(word)) <= _CLASS_WORDS)


def is_destructive(tool: str) -> bool:
    return not _DESTRUCTIVE_VERBS.isdisjoint(roots(tool)[:1])


def speaks_of_destructive_sql(phrase: str) -> bool:
    return is_about_destruction(phrase) and _SPEAKS_OF_SQL.search(lower_in_place(phrase)) is not None


def only_database_tools(phrase: str, bound: Bound) -> Bound:
    """`destructive SQL`: of the destructive tools only those named after parts of a database, if there are any."""
    if bound.is_named or not speaks_of_destructive_sql(phrase):
        return bound
    databases = tuple(name for name in bound.tools if not _DATABASE_WORDS.isdisjoint(roots(name)))
    return Bound(databases, bound.tier, bound.confidence) if databases else bound


def sql_params(tools: Tools) -> list[tuple[str, str]]:
    """The tools that run SQL, each with the parameter that takes the statement."""
    return [
        (name, param)
        for name, spec in tools.specs.items()
        for param in spec.params
        if not _SQL_PARAMS.isdisjoint(roots(param)) and ("sql" in param or not _DATABASE_WORDS.isdisjoint(roots(name)))
    ]


def calls_meant(
    text: str, bound: Bound, tools: Tools
) -> list[tuple[tuple[str, ...], tuple[tuple[str, str, Any], ...]]]:
    """The calls that a clause with these tools is about: tools, and tests of their arguments.

    `destructive SQL`: of a tool that runs SQL only the calls with a statement that destroys data. If the clause names
    its tools (`destructive SQL with run_sql`), it is about no others.
    """
    runs_sql = {}
    if is_about_destruction(text) and (
        bound.is_named or (bound.tier is Tier.LIKELY and speaks_of_destructive_sql(text))
    ):
        runs_sql = {tool: param for tool, param in sql_params(tools) if not bound.is_named or tool in bound.tools}
    others = tuple(tool for tool in bound.tools if tool not in runs_sql)
    found = [((tool,), ((param, "matches", DESTRUCTIVE_SQL),)) for tool, param in runs_sql.items()]
    return [(others, ()), *found] if others else [*found]


def is_about_destruction(text: str) -> bool:
    return _DESTRUCTIVE.search(lower_in_place(text)) is not None


# -- by ordinary words -------------------------------------------------------------------------------------------------


def _bind_by_words(phrase: str, tools: Tools) -> Bound:
    """`verify the identity of the caller`: all words of `verify_identity` are in the phrase."""
    spoken = roots(phrase)
    said = set(spoken)
    fits = {name: words for name, words in tools.root_sets.items() if words <= said and len(tools.roots[name]) > 1}
    fits = {name: words for name, words in fits.items() if not any(words < other for other in fits.values())}
    if not fits:
        return Bound()
    verbs = {tools.roots[name][0] for name in fits}
    objects = {tools.roots[name][1:] for name in fits}
    one_for_each_verb = len(verbs) == len(fits) and len(objects) == 1
    if (len(fits) == 1 or one_for_each_verb) and all(_are_adjacent(spoken, words) for words in fits.values()):
        return Bound(tuple(fits))
    return Bound(tuple(fits), Tier.LIKELY, 0.7)


def _are_adjacent(spoken: list[str], words: Collection[str]) -> bool:
    """Whether the words of a name are near each other, with few others between."""
    places = [index for index, word in enumerate(spoken) if word in words]
    spans = (last - first for first in places for last in places if set(spoken[first : last + 1]) >= set(words))
    return min(spans, default=99) <= len(words) + 2


def bind_by_likeness(phrase: str, tools: Tools) -> Bound:
    """`refunds` means `issue_refund` if no other tool has that verb or object, or a similar description."""
    spoken = frozenset(roots(phrase))
    if not spoken:
        return Bound()
    by_verb = [
        name for name, words in tools.roots.items() if words and words[0] in spoken and words[0] not in _VAGUE_VERBS
    ]
    if len(by_verb) == 1:
        return Bound(tuple(by_verb), Tier.LIKELY, 0.6)
    if by_object := _bind_by_object(spoken, tools):
        return Bound((by_object,), Tier.LIKELY, 0.55)
    said = stems(phrase)
    if len(said) < 2:
        return Bound()
    scores = sorted(((tools.vocabulary.likeness(said, name), name) for name in tools.specs), reverse=True)
    if scores and scores[0][0] >= _LEAST_LIKENESS and (len(scores) == 1 or scores[0][0] > scores[1][0] + 0.05):
        return Bound((scores[0][1],), Tier.LIKELY, 0.55)
    return Bound()


def _bind_by_object(spoken: Collection[str], tools: Tools) -> str | None:
    fits = [
        name
        for name, words in tools.roots.items()
        if len(words) == 2 and words[1] in spoken and words[1] not in _VAGUE_VERBS
    ]
    if len(fits) != 1 or only_reads(tools.specs[fits[0]]):
        return None
    about_the_same = [name for name, words in tools.roots.items() if words[-1:] == tools.roots[fits[0]][-1:]]
    return fits[0] if len(about_the_same) == 1 else None

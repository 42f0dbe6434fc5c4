"""A phrase → the tools it speaks of, and how surely.

| by | tier |
|---|---|
| the exact name (`drop_table`, also one that no schema lists), `this tool` in a tool's section | certain |
| an alias that the user gave | certain |
| all words of the name in the phrase, one tool (or one for each verb) | certain |
| `any tool` | certain |
| a class by verbs in names: destructive, writing | likely, 0.7 |
| all words of several names that share them | likely, 0.7 |
| the verb alone, where one tool has it | likely, 0.6 |
| words of the description and parameters | likely, 0.55 |
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.context import Context, Tools, root, roots
from bylaw.comply.prompt.words import aliased, only_reads, words_of

_IDENTIFIER = re.compile(r"(?<![\w./@-])(?:[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+)(?![\w@]|-\w)")
_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(\)")
_CALLING = r"\b(?:[Cc]all(?:s|ing)?|[Ii]nvok(?:e|ing)|[Uu]s(?:e|ing)|[Rr]un(?:ning)?)(?: to)?(?: the)? "
_CALLED_BEHIND = r" (?:tool|function|call)\b| (?:can|may|must|should)(?: \w+)? be (?:called|used|invoked)\b"
_SNAKE = r"\b[a-z]+_\w+\b"
_AND = r"(?:,? (?:and|or) |, )"
_CHOICE = re.compile(r"\bor\b|\beither\b|\b(?:one|any) of\b", re.IGNORECASE)
_ANY_TOOL = re.compile(
    r"\b(?:any|a|an|each|every|all|no|other|multiple|more|parallel)(?: other| of the| available"
    r"| given)? (?:tool|function|api)s?(?: calls?)?\b|\btool calls?\b|\btools?\s*$|\btools\b"
    r"|\bany action\b(?! that)",
    re.IGNORECASE,
)
_THIS_TOOL = re.compile(
    r"\b(?:this|the) (?:tool|function)\b|\bcall it\b|\buse it\b|\bit (?:must|may|should|can)\b", re.IGNORECASE
)
_DESTRUCTIVE = re.compile(
    r"\b(?:destructive|irreversible|dangerous|permanent(?:ly)?|non-?reversible|(?:that|which) cannot be undone)\b",
    re.IGNORECASE,
)
_WRITING = re.compile(
    r"\b(?:write|consequential|mutating|state-changing|modifying) (?:actions?|operations?|tools?|calls?)\b"
    r"|\b(?:actions?|tools?|calls?|operations?|anything|steps?) (?:that|which) (?:will )?(?:update|modif"
    r"|chang|writ|alter|affect|edit)"
    r"|\b(?:updat|modif|chang|writ|alter)\w* (?:to )?(?:the |any |a )?(?:\w+ )?(?:database|records?|data"
    r"|system|account state)\b"
    r"|\bany (?:changes?|updates?|modifications?|writes?)\b|\bmak(?:e|ing) (?:any )?changes\b",
    re.IGNORECASE,
)
_DESTROYING = (
    "delete drop remove truncate purge wipe erase destroy cancel terminate revoke reset overwrite kill uninstall format"
)
_DESTROYING_ROOTS = frozenset(root(word) for word in _DESTROYING.split())
_DESTROYING_GLOBS = tuple(
    f"{word}_*" for word in ("delete", "drop", "remove", "truncate", "purge", "wipe", "erase", "destroy")
)
_TELLING_WORDS = """
    transfer escalate handoff respond reply message notify log finish end terminate think
"""
_TELLING = frozenset(root(word) for word in _TELLING_WORDS.split())
"""tools whose names begin with these speak to someone and change no data of the user's"""
_VAGUE_WORDS = """
    get set update check find list read show do make use call run look search send create add execute perform give
    take verify confirm process handle request answer ask access approve report respond review submit transfer
"""
_VAGUE = frozenset(root(word) for word in _VAGUE_WORDS.split())
"""verbs so common that they alone tell no tool"""
_LIKE = 0.5
"""the least likeness of a phrase and a tool's description; below, it finds the wrong tool more often"""


class Bound(Struct, frozen=True):
    """The tools that a phrase means; none where it means none that is known."""

    tools: tuple[str, ...] = ()
    tier: Tier = Tier.CERTAIN
    confidence: float = 1.0
    is_named: bool = False
    """by its exact name or an alias, not by ordinary words"""
    is_choice: bool = False
    """any one of them will do: `A or B`"""

    def __bool__(self) -> bool:
        return bool(self.tools)

    @property
    def is_any(self) -> bool:
        return self.tools == ("*",)


def bind(phrase: str, context: Context, *, likeness: bool = True) -> Bound:
    """The tools of a phrase, by the surest way that finds any. `likeness`: also by verb or description."""
    found = _bind(phrase, context, likeness=likeness)
    return replace(found, is_choice=len(found.tools) > 1 and _CHOICE.search(phrase) is not None)


def _bind(phrase: str, context: Context, *, likeness: bool) -> Bound:
    tools = context.tools
    if named := named_tools(phrase, context):
        return Bound(named, is_named=True)
    if found := aliased(phrase, tools.aliases):
        return Bound(found, is_named=True)
    if context.section and _THIS_TOOL.search(phrase):
        return Bound((context.section,), is_named=True)
    if kind := _class_of(phrase, tools):
        return Bound(kind, Tier.LIKELY, 0.7)
    if by_words := _by_words(phrase, tools):
        return by_words
    if _ANY_TOOL.search(phrase):
        return Bound(("*",))
    return _by_likeness(phrase, tools) if likeness else Bound()


def named_tools(phrase: str, context: Context) -> tuple[str, ...]:
    """Tools by their exact names, in the order in which they stand."""
    found = {match.start(): match[0] for match in _IDENTIFIER.finditer(phrase) if _may_be_tool(match[0], context)}
    found |= {match.start(1): match[1] for match in _CALLED.finditer(phrase)}
    for name in context.tools.specs:
        place = _place_of(name, phrase, context)
        if place is not None:
            found[place] = name
    return tuple(dict.fromkeys(found[place] for place in sorted(found)))


def _may_be_tool(word: str, context: Context) -> bool:
    return word in context.tools.specs or word not in context.tools.params


def _place_of(name: str, phrase: str, context: Context) -> int | None:
    """A name that is also an ordinary word counts only where it is marked as a name."""
    pattern = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if not (name.isalpha() and name.islower()) or name in context.sentence.coded():
        found = re.search(pattern, phrase)
        return found.start() if found else None
    marked = re.search(
        rf"{_CALLING}(?P<a>{pattern})|(?P<b>{pattern})(?:{_CALLED_BEHIND})|(?P<c>{pattern}){_AND}{_SNAKE}"
        rf"|{_SNAKE}{_AND}(?P<d>{pattern})",
        phrase,
    )
    return marked.start(marked.lastgroup or 0) if marked else None


def _class_of(phrase: str, tools: Tools) -> tuple[str, ...]:
    if _DESTRUCTIVE.search(phrase):
        return destroying(tools) or _DESTROYING_GLOBS
    return writing(tools) if _WRITING.search(phrase) else ()


def is_destructive(phrase: str) -> bool:
    return _DESTRUCTIVE.search(phrase) is not None


def is_class(phrase: str) -> bool:
    """Whether a phrase speaks of tools by what they do to data, so that its words are no further narrowing."""
    return is_destructive(phrase) or _WRITING.search(phrase) is not None


def destroying(tools: Tools) -> tuple[str, ...]:
    return tuple(name for name, words in tools.words.items() if _DESTROYING_ROOTS & set(words[:1]))


def writing(tools: Tools) -> tuple[str, ...]:
    """Tools that change something, by their names."""
    return tuple(
        name for name, spec in tools.specs.items() if not only_reads(spec) and not _TELLING & set(tools.words[name][:1])
    )


def is_destroying(name: str) -> bool:
    return bool(_DESTROYING_ROOTS & set(roots(name)[:1]))


# By ordinary words


def _by_words(phrase: str, tools: Tools) -> Bound:
    spoken = roots(phrase)
    said = set(spoken)
    fits = {name: set(words) for name, words in tools.words.items() if len(words) > 1 and set(words) <= said}
    fits = {name: words for name, words in fits.items() if not any(words < other for other in fits.values())}
    if not fits:
        return Bound()
    names = tuple(fits)
    verbs = [tools.words[name][0] for name in names]
    alone = len(names) == 1 or (len(set(verbs)) == len(verbs) and _share_object(names, tools))
    if alone and _close(spoken, fits):
        return Bound(names)
    return Bound(names, Tier.LIKELY, 0.7)


def _share_object(names: tuple[str, ...], tools: Tools) -> bool:
    """`cancel or modify an order`: one tool for each verb."""
    return len({tools.words[name][1:] for name in names}) == 1


def _close(spoken: list[str], fits: dict[str, set[str]]) -> bool:
    """Whether the words of each name stand near each other, with few others between."""
    for words in fits.values():
        places = [index for index, word in enumerate(spoken) if word in words]
        shortest = min(
            (last - first for first in places for last in places if set(spoken[first : last + 1]) >= words), default=99
        )
        if shortest > len(words) + 2:
            return False
    return True


def _by_likeness(phrase: str, tools: Tools) -> Bound:
    spoken = roots(phrase)
    verbs = {words[0] for words in tools.words.values() if words} - _VAGUE
    by_verb = [name for name, words in tools.words.items() if words and words[0] in verbs and words[0] in spoken]
    if len(by_verb) == 1:
        return Bound(tuple(by_verb), Tier.LIKELY, 0.6)
    if by_object := _by_object(spoken, tools):
        return by_object
    said = words_of(phrase)
    if len(said) < 2:
        return Bound()
    scores = sorted(((tools.vocabulary.likeness(said, name), name) for name in tools.specs), reverse=True)
    if scores and scores[0][0] >= _LIKE and (len(scores) == 1 or scores[0][0] > scores[1][0] + 0.05):
        return Bound((scores[0][1],), Tier.LIKELY, 0.55)
    return Bound()


def _by_object(spoken: list[str], tools: Tools) -> Bound:
    """`refunds` means issue_refund where no other tool is about refunds, and it does more than look."""
    fits = [
        name for name, words in tools.words.items() if len(words) == 2 and words[1] in spoken and words[1] not in _VAGUE
    ]
    about = [name for name, words in tools.words.items() if fits and words[-1:] == tools.words[fits[0]][-1:]]
    if len(fits) != 1 or len(about) != 1 or only_reads(tools.specs[fits[0]]):
        return Bound()
    return Bound(tuple(fits), Tier.LIKELY, 0.55)

"""Rules in words: which parameters make one together, and the formula and the sentence for each.

| given                     | formula                  | with `same: [x]`                         |
|---------------------------|--------------------------|------------------------------------------|
| `before: a`, `require: b` | `G (a -> O b)`           | `G (a -> a[x = $x] & O b[x = $x])`       |
| `never: a`, `unless: b`   | the same                 | the same                                 |
| `after: a`, `require: b`  | `G (a -> F b)`           | `G (a -> a[x = $x] & F b[x = $x])`       |
| `never: a`                | `G !a`                   |                                          |
| `never: a`, `after: b`    | `G (a -> !O b)`          | `G (a[x = $x] -> !O b[x = $x])`          |
| `never: a`, `until: b`    | `!a W b`                 | as `unless`                              |
| `at_most: n`, `of: a`     | `G (a -> count(a) <= n)` | `G (a[x = $x] -> count(a[x = $x]) <= n)` |

`within` is the window of `O`, `F`, `count` or `seen`; with `seen`, `O b` is `seen(b)`. Before and after are strict:
where one event can be both, `O` is `Y O` and `F` is `X F`. An `a` that lacks the argument `x` has no `b` with the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from msgspec import Struct

from bylaw.rules.messages import listing, quote
from bylaw.rules.nodes import ListNode, MapNode, Node, ScalarNode
from bylaw.rules.params import TEXTS_SCHEMA, Context, ParamType, Values
from bylaw.rules.readers import EXTENSION, read_texts, report_wrong_type
from bylaw.rules.temporal.atoms import PATH
from bylaw.rules.temporal.events import Event
from bylaw.rules.temporal.patterns import EVENTS
from bylaw.rules.temporal.scanner import SECONDS, UNIT_SYNONYMS, measure

_ALWAYS = ("over", "message")


class Form(Struct, frozen=True):
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def keys(self) -> frozenset[str]:
        return frozenset((*self.needs, *self.takes))


READABLE = (
    Form(("before", "require"), ("within", "same", "seen")),
    Form(("after", "require"), ("within", "same")),
    Form(("never",)),
    Form(("never", "unless"), ("within", "same", "seen")),
    Form(("never", "after"), ("within", "same", "seen")),
    Form(("never", "until"), ("same",)),
    Form(("at_most", "of"), ("within", "same")),
)
PATTERNS = tuple(Form(("pattern", *events), ("scope",), name) for name, events in EVENTS.items())
FORMS = (Form(("formula",)), *READABLE, *PATTERNS)

_KNOWN = frozenset[str]().union(*(form.keys for form in FORMS))
_COMBINATIONS = "; ".join(
    ["`formula`", *(" + ".join(f"`{key}`" for key in form.needs) for form in READABLE), "or `pattern` with its events"]
)


def choose_form(node: MapNode, pattern: str | None, context: Context) -> Form | None:
    """The form that the given keys make; where they make none, one problem that says so."""
    given = frozenset(key for key in node.entries if not key.startswith(EXTENSION) and key not in _ALWAYS)
    if given - _KNOWN:
        return None  # reported where the keys were read; what they should be is not known
    fitting = [form for form in FORMS if form.pattern in (None, pattern)]
    for form in fitting:
        if given >= frozenset(form.needs) and given <= form.keys:
            return form

    def likeness(form: Form) -> tuple[int, int, int]:
        needs = frozenset(form.needs)
        return len(needs & given), -len(given - form.keys), -len(needs - given)

    _refuse(node, given, max(fitting, key=likeness), context)
    return None


def _refuse(node: MapNode, given: frozenset[str], form: Form, context: Context) -> None:
    needs = [key for key in form.needs if key in given]
    extra = [key for key in node.entries if key in given - form.keys]
    missing = [key for key in form.needs if key not in given]
    if extra:
        others = needs or [key for key in given if key != extra[0]]
        message = f"`{extra[0]}` does not go with {listing(others)}" if others else f"`{extra[0]}` alone says nothing"
    elif needs:
        message = f"{listing(needs)} {'needs' if len(needs) == 1 else 'need'} {listing(missing)}"
    else:
        message = "`temporal` needs a formula, a rule in words or a pattern"
    at = node.entries[extra[0]].key if extra else node.entries[needs[0]].key if needs else node.first_key
    context.problems.error(code="unclear-temporal", message=message, at=at, help=f"write {_COMBINATIONS}")


def forms_schema() -> dict[str, Any]:
    """Exactly one form, in JSON Schema."""
    schemas = []
    for form in FORMS:
        names = {"anyOf": [{"enum": [*form.needs, *form.takes, *_ALWAYS]}, {"pattern": f"^{EXTENSION}"}]}
        which = {"properties": {"pattern": {"const": form.pattern}}} if form.pattern else {}
        schemas.append({"required": list(form.needs), "propertyNames": names, **which})
    return {"oneOf": schemas}


_AMOUNT = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]+)\s*")
_UNITS = {**{unit: unit for unit in ("e", "t", *SECONDS)}, **UNIT_SYNONYMS}
_FORM = "write a number and a unit, such as `10m`, `2 hours`, `3 turns` or `5 events`"


class Within(Struct, frozen=True):
    bound: str
    """as a formula has it"""
    given: str
    """as the user wrote it"""


def _read(node: Node, name: str, context: Context) -> Within | None:
    text = node.value if isinstance(node, ScalarNode) else None
    found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    unit = _UNITS.get(found[2]) or _UNITS.get(found[2].lower()) if found else None
    if not found or not unit or not measure(found[1], unit):
        report_wrong_type(node, quote(name), "a stretch of time, turns or events", context.problems, help=_FORM)
        return None
    return Within(f"{found[1]}{unit}", found[0].strip())


WITHIN = ParamType(
    _read,
    {"type": "string", "pattern": r"^\s*[0-9]{1,18}(\.[0-9]{1,18})?\s*[A-Za-z]+\s*$"},
    plain=lambda within: within.given,
)


def _read_same(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    paths = read_texts(node, name, context.problems)
    if paths is None:
        return None
    items = node.items if isinstance(node, ListNode) else [node]
    good = [_check(path, item, context) for path, item in zip(paths, items, strict=True)]
    return tuple(dict.fromkeys(paths)) if all(good) else None


def _check(path: str, node: Node, context: Context) -> bool:
    code = "bad-path"
    if path.startswith("args."):
        message = f"{quote(path)} begins with `args`"
        help = f"write {quote(path.removeprefix('args.'))}: `same` always speaks of arguments"
    elif not PATH.fullmatch(f"args.{path}"):
        message = f"{quote(path)} is no path"
        help = "parts are separated by single dots; a part with spaces needs double quotes"
    elif "*" in path.split("."):
        code, message = "variable-wildcard", "`*` names many values, and `same` compares one"
        help = "name one value, such as `items.0.id`"
    else:
        return True
    context.problems.error(code=code, message=message, at=node, help=help)
    return False


SAME = ParamType(_read_same, TEXTS_SCHEMA, plain=list)


class _NoFormula(Exception):
    """These parameters make no formula. Why has been reported already."""


def write_formula(form: Form, values: Values, node: MapNode, context: Context) -> str | None:
    """The formula for parameters that make this form; None where they do not fit each other."""
    try:
        return _Writer(values, node, context).write(form.needs)
    except _NoFormula:
        return None


def write_sentence(form: Form, values: Values) -> str:
    """The same rule as a sentence, for messages."""
    events = {key: values[key] for key in form.needs if isinstance(values[key], Event)}
    within = f" within {values['within'].given}" if "within" in values else ""
    same = f" with the same {listing(values['same'])}" if "same" in values else ""
    seen = " whose result the model had seen" if values.get("seen") else ""
    sentence = "at most one {of.words} is allowed" if values.get("at_most") == 1 else _SENTENCES[form.needs]
    return sentence.format(n=values.get("at_most"), **events) + seen + within + same


_SENTENCES = {
    ("before", "require"): "every {before.words} needs an earlier {require.words}",
    ("after", "require"): "every {after.words} needs a later {require.words}",
    ("never",): "no {never.words} is allowed",
    ("never", "unless"): "no {never.words} is allowed without an earlier {unless.words}",
    ("never", "after"): "no {never.words} is allowed after a {after.words}",
    ("never", "until"): "no {never.words} is allowed until a {until.words}",
    ("at_most", "of"): "at most {n} {of.plural} are allowed",
}


class _Writer:
    def __init__(self, values: Values, node: MapNode, context: Context) -> None:
        self.values = values
        self.node = node
        self.context = context
        self.same = _variables(values.get("same", ()))
        self.window = f"[<={values['within'].bound}]" if "within" in values else ""

    def write(self, keys: tuple[str, ...]) -> str:
        match keys:
            case ("never", "until") if not self.same:
                return f"!{self.event('never').written()} W {self.event('until').written()}"
            case ("before", "require") | ("never", "unless" | "until"):
                return self.given(keys[0], self.earlier(*keys))
            case ("after", "require"):
                return self.given("after", f"{self.operator('F', 'X', *keys)} {self.event_with_same('require')}")
            case ("never", "after"):
                return f"G ({self.event_with_same('never')} -> !{self.earlier('never', 'after')})"
            case ("at_most", "of"):
                event = self.event_with_same("of")
                return f"G ({event} -> count{self.window}({event}) <= {self.values['at_most']})"
            case _:
                return f"G !{self.event('never').written()}"

    # parts

    def event(self, key: str) -> Event:
        event: Event = self.values[key]
        return event

    def given(self, key: str, then: str) -> str:
        """The implication from an event to the rest; the event fixes the variables."""
        tied = f"{self.event_with_same(key)} & " if self.same else ""
        return f"G ({self.event(key).written()} -> {tied}{then})"

    def event_with_same(self, key: str) -> str:
        """The event with the arguments that have to be the same."""
        event = self.event(key)
        if self.same and event.sort == "response":
            self.refuse_response("same", key, "`same` ties calls and results together")
        return event.written(*self.ties())

    def earlier(self, late: str, early: str) -> str:
        if self.values.get("seen"):
            event = self.event(early)
            if event.sort == "response":
                self.refuse_response("seen", early, "`seen` asks for a result that the model had been given")
            return f"seen{self.window}({event.inside(*self.ties())})"
        return f"{self.operator('O', 'Y', late, early)} {self.event_with_same(early)}"

    def ties(self) -> list[str]:
        return [f"args.{path} = {variable}" for path, variable in self.same.items()]

    def operator(self, letter: str, strict: str, one: str, other: str) -> str:
        """The operator, made strict where one position can be both events."""
        if self.values["over"] == "events" and not self.event(one).meets(self.event(other)):
            return f"{letter}{self.window}"
        if not self.window:
            return f"{strict} {letter}"
        both = "one turn" if self.values["over"] == "turns" else "one event"
        self.context.problems.error(
            code="events-overlap",
            message=f"{both} can be {listing([one, other])} at once, so `within` cannot tell which came first",
            at=self.node.entries["within"].key,
            help="name tools that do not overlap, or the result of one of them; or leave `within` out",
        )
        raise _NoFormula

    def refuse_response(self, key: str, event: str, help: str) -> NoReturn:
        at = self.node.entries[key].key
        message = f"`{key}` does not go with a response, which `{event}` is"
        self.context.problems.error(code="unclear-temporal", message=message, at=at, help=help)
        raise _NoFormula


def _variables(paths: Iterable[str]) -> dict[str, str]:
    """Each path with its variable."""
    names: dict[str, str] = {}
    for path in paths:
        name = re.sub(r"\W", "_", path)
        name = f"${name}" if name[:1].isalpha() else f"$v{name}"
        while name in names.values():
            name += "_"
        names[path] = name
    return names

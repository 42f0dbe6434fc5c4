"""Rules in words, written as formulas.

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
from typing import NoReturn

from bylaw.rules.located import MapNode
from bylaw.rules.params import Context, Values
from bylaw.rules.temporal.events import Event
from bylaw.rules.temporal.forms import Form
from bylaw.rules.words import listing


class _Refused(Exception):
    """These parameters make no formula. Why has been reported already."""


def write_formula(form: Form, values: Values, node: MapNode, context: Context) -> str | None:
    """The formula for parameters that make this form; None where they do not fit each other."""
    try:
        return _Writer(values, node, context).write(form.needs)
    except _Refused:
        return None


class _Writer:
    def __init__(self, values: Values, node: MapNode, context: Context) -> None:
        self.values = values
        self.node = node
        self.context = context
        self.same = {path: f"${name}" for path, name in _variables(values.get("same", ()))}
        self.window = f"[<={values['within'].bound}]" if "within" in values else ""

    def write(self, keys: tuple[str, ...]) -> str:
        match keys:
            case ("before", "require"):
                return self.preceded("before", "require")
            case ("never", "unless"):
                return self.preceded("never", "unless")
            case ("after", "require"):
                return self.followed()
            case ("never", "after"):
                return self.never_after()
            case ("never", "until"):
                return self.never_until()
            case ("at_most", "of"):
                return self.at_most()
            case _:
                return f"G !{self.event('never').written()}"

    def preceded(self, late: str, early: str) -> str:
        return self.given(late, self.earlier(late, early))

    def followed(self) -> str:
        return self.given("after", f"{self.operator('F', 'X', 'after', 'require')} {self.tied('require')}")

    def never_after(self) -> str:
        return f"G ({self.tied('never')} -> !{self.earlier('never', 'after')})"

    def never_until(self) -> str:
        if self.same:
            return self.preceded("never", "until")
        return f"!{self.event('never').written()} W {self.event('until').written()}"

    def at_most(self) -> str:
        event = self.tied("of")
        return f"G ({event} -> count{self.window}({event}) <= {self.values['at_most']})"

    # parts

    def event(self, key: str) -> Event:
        event: Event = self.values[key]
        return event

    def given(self, key: str, then: str) -> str:
        """Every such event has what follows; the event fixes the variables."""
        tied = f"{self.tied(key)} & " if self.same else ""
        return f"G ({self.event(key).written()} -> {tied}{then})"

    def tied(self, key: str) -> str:
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
        return f"{self.operator('O', 'Y', late, early)} {self.tied(early)}"

    def ties(self) -> list[str]:
        return [f"args.{path} = {variable}" for path, variable in self.same.items()]

    def operator(self, letter: str, strict: str, one: str, other: str) -> str:
        """The operator, made strict where one position can be both events."""
        if self.values["over"] == "events" and not self.event(one).meets(self.event(other)):
            return f"{letter}{self.window}"
        if self.window:
            self.refuse_overlap(one, other)
        return f"{strict} {letter}"

    # problems

    def refuse_overlap(self, one: str, other: str) -> NoReturn:
        both = "one turn" if self.values["over"] == "turns" else "one event"
        self.context.problems.error(
            code="events-overlap",
            message=f"{both} can be {listing([one, other])} at once, so `within` cannot tell which came first",
            at=self.node.entries["within"].key,
            help="name tools that do not overlap, or the result of one of them; or leave `within` out",
        )
        raise _Refused

    def refuse_response(self, key: str, event: str, help: str) -> NoReturn:
        at = self.node.entries[key].key
        message = f"`{key}` does not go with a response, which `{event}` is"
        self.context.problems.error(code="unclear-temporal", message=message, at=at, help=help)
        raise _Refused


def _variables(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Each path with the name of its variable."""
    names: dict[str, str] = {}
    for path in paths:
        name = re.sub(r"\W", "_", path)
        name = name if name[:1].isalpha() else f"v{name}"
        while name in names.values():
            name += "_"
        names[path] = name
    return list(names.items())

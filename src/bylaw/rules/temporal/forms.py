"""Which parameters of `temporal` make a rule together: one form, and nothing of another."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.rules.fields import EXTENSION
from bylaw.rules.located import MapNode
from bylaw.rules.params import Context
from bylaw.rules.temporal.templates import EVENTS
from bylaw.rules.words import listing

_ALWAYS = ("over",)


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
    nearest = max(fitting, key=lambda form: _likeness(form, given))
    _refuse(node, given, nearest, context)
    return None


def _likeness(form: Form, given: frozenset[str]) -> tuple[int, int, int]:
    needs = frozenset(form.needs)
    return len(needs & given), -len(given - form.keys), -len(needs - given)


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
    return {"oneOf": [_form_schema(form) for form in FORMS]}


def _form_schema(form: Form) -> dict[str, Any]:
    names = {"anyOf": [{"enum": [*form.needs, *form.takes, *_ALWAYS]}, {"pattern": f"^{EXTENSION}"}]}
    which = {"properties": {"pattern": {"const": form.pattern}}} if form.pattern else {}
    return {"required": list(form.needs), "propertyNames": names, **which}

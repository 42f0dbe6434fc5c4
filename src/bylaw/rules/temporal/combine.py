"""The parameters of one rule, whichever form they are in → one formula."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.rules.located import MapNode
from bylaw.rules.params import Context, Values
from bylaw.rules.problems import Place, Problems
from bylaw.rules.temporal.check import check_formula
from bylaw.rules.temporal.forms import Form, choose_form
from bylaw.rules.temporal.parser import Parsed, parse_formula
from bylaw.rules.temporal.readable import write_formula
from bylaw.rules.temporal.report import Report
from bylaw.rules.temporal.scopes import GLOBAL, Scope
from bylaw.rules.temporal.templates import MOST_IN_STRETCH, write_pattern_formula


def combine(values: Values, node: MapNode, context: Context) -> Parsed | None:
    """The formula, checked; None where there is none, and why is reported."""
    form = choose_form(node, values.get("pattern"), context)
    if form is None:
        return None
    parsed = values["formula"] if form.needs == ("formula",) else _written(form, values, node, context)
    return parsed if parsed and check_formula(parsed, over=values["over"]) else None


def _written(form: Form, values: Values, node: MapNode, context: Context) -> Parsed | None:
    text = _pattern(values, node, context) if form.pattern else write_formula(form, values, node, context)
    if text is None:
        return None
    return _parse(text, node.entries[form.needs[0]].key, context)


def _parse(text: str, at: Place, context: Context) -> Parsed | None:
    """What is wrong with an event was reported where it stands, so only what is new is reported here."""
    quiet = parse_formula(text, Report(Problems(context.problems.source), lambda spot: at))
    report = Report(context.problems, lambda spot: at)
    return replace(quiet, report=report) if quiet else parse_formula(text, report)


def _pattern(values: Values, node: MapNode, context: Context) -> str | None:
    scope: Scope = values.get("scope", GLOBAL)
    count = values.get("n", 0)
    if scope.name in ("between", "after-until") and count > MOST_IN_STRETCH:
        context.problems.error(
            code="formula-too-deep",
            message=f"between two events `n` goes up to {MOST_IN_STRETCH}",
            at=node.entries["n"].value,
            help="write the rule with a smaller `n`, or with another scope",
        )
        return None
    events = {letter: values[letter] for letter in ("p", "s", "t") if letter in values}
    return write_pattern_formula(values["pattern"], scope.name, {**events, **scope.events}, count=count)

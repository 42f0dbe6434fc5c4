"""A guard rule: `id`, `when`, `then` and no `kind` → a Rule that demands something of every attempted call.

A rule that does less than it seems to is warned about. A window counter is judged after the call unless the rule says
`inline`, so it is false at the attempt. A rule that bounds an argument is false for a call that leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, CountOver, NotOf, Predicate, reach_of
from bylaw.model.demand import Attempt
from bylaw.model.rule import Action, Rule, Scope
from bylaw.rules.messages import listing, synonyms
from bylaw.rules.nodes import ListNode, MapNode, Node, Problems, plain
from bylaw.rules.params import Context
from bylaw.rules.paths import path_text
from bylaw.rules.predicates import NAMES, LocatedPredicate, When, read_when
from bylaw.rules.readers import Fields, report_wrong_type
from bylaw.rules.rule import (
    Enforcement,
    Ids,
    Item,
    read_enforcement,
    read_id,
    read_optional_text,
    read_rule,
    read_severity,
    read_tags,
)

_TRUE_WHEN_MISSING = frozenset({"!=", "not in", "not contains", "missing"})
_LOOKED_AT = 3
"""arguments that a warning names; a rule may have thousands"""
_INLINE = "add `inline: true` to have it decide calls too, or count with `call_count_in_run_gt`"


def warn_of_gaps(when: When, enforcement: Enforcement, problems: Problems) -> None:
    if not enforcement.then.restricts:
        return
    windows = [leaf for leaf in when.leaves if _is_window(leaf.predicate)]
    # `over: all` says that it looks at what has happened
    if windows and not enforcement.inline and reach_of(when.predicate) == "session":
        _warn_of_windows(when, windows, problems)
    _warn_of_omission(when, problems)


def _warn_of_windows(when: When, windows: list[LocatedPredicate], problems: Problems) -> None:
    negated = set(map(id, _under_not(when.predicate)))
    if under := next((leaf for leaf in windows if id(leaf.predicate) in negated), None):
        message = "a window counter under `not` keeps the rule from deciding any call: it is judged only afterwards"
        problems.warn(code="window-not-inline", message=message, at=under.at, help=_INLINE)
    elif _value(when.predicate, lambda leaf: False if _is_window(leaf) else None) is False:
        message = "a window counter is judged only afterwards, so this rule never decides a call"
        problems.warn(code="window-not-inline", message=message, at=windows[0].at, help=_INLINE)


def _under_not(predicate: Predicate, below: bool = False) -> list[Predicate]:
    match predicate:
        case AllOf(of=of) | AnyOf(of=of):
            return [leaf for one in of for leaf in _under_not(one, below)]
        case NotOf(of=inner):
            return _under_not(inner, True)
        case _:
            return [predicate] if below else []


def _is_window(predicate: Predicate) -> bool:
    return isinstance(predicate, CountOver) and predicate.over == "window"


def _warn_of_omission(when: When, problems: Problems) -> None:
    arguments = [(leaf, leaf.predicate) for leaf in when.leaves if isinstance(leaf.predicate, ArgumentIs)]
    tested = {test.path for _, test in arguments if test.op in ("missing", "present")}
    escaping = [
        (leaf, test)
        for leaf, test in arguments
        if test.path not in tested and (test.op in _TRUE_WHEN_MISSING) == leaf.negated
    ]
    if not escaping or _value(when.predicate, _truth_without_arguments) is not False:
        return
    shown = escaping[:_LOOKED_AT]
    for one in shown:  # is leaving out this one argument enough?
        if _value(when.predicate, partial(_truth_without_arguments, path=one[1].path)) is False:
            shown = [one]
            break
    leaf, test = shown[0]
    paths = list(dict.fromkeys(path_text(one.path) for _, one in shown))
    short = f"{{{test.name.partition(' ')[0]}: …}}"
    short = f"{{not: {short}}}" if leaf.negated else short
    problems.warn(
        code="escapes-by-omission",
        message=f"a call without {listing(paths)} escapes this rule",
        at=leaf.at,
        help=f"to match it too, write `any_of: [{short}, {{arg_missing: {{path: {paths[0]}}}}}]`",
    )


def _truth_without_arguments(predicate: Predicate, path: tuple[str | None, ...] | None = None) -> bool | None:
    """The truth of a predicate if its arguments are missing; with `path`, only that argument is."""
    if not isinstance(predicate, ArgumentIs) or path not in (None, predicate.path):
        return None
    return predicate.op in _TRUE_WHEN_MISSING


def _value(predicate: Predicate, judge: Callable[[Predicate], bool | None]) -> bool | None:
    """Kleene's: None where what `judge` knows of the leaves does not decide."""
    match predicate:
        case AllOf(of=of) | AnyOf(of=of):
            decisive = isinstance(predicate, AnyOf)
            values = [_value(one, judge) for one in of]
            return decisive if decisive in values else None if None in values else not decisive
        case NotOf(of=inner):
            value = _value(inner, judge)
            return None if value is None else not value
        case _:
            return judge(predicate)


_KEYS = ("id", "when", "then", "reason", "mode", "approvals", "approvers", "inline", "severity", "description", "tags")
_KEY_SYNONYMS = synonyms(
    {
        "then": "action decision do effect",
        "when": "condition conditions if match",
        "description": "desc",
        "tags": "labels",
        "severity": "level",
        "reason": "message why",
        "id": "name",
    }
)
_HINTS = {
    "params": "`params` belong to a rule with `kind`; a guard rule has `when` and `then`",
    "scope": "a guard rule holds in each session; remove `scope`",
}


def read_guard_rule(node: MapNode, context: Context, ids: Ids) -> Item | None:
    """The rule, or None where it cannot be used. Everything that is wrong with it is reported."""
    problems = context.problems
    fields = Fields(node, problems, what="a guard rule")
    id = read_id(fields, ids)
    entry = fields.entry("when")
    if entry is None:
        fields.missing(("when",), help="say which calls it is about: `when: {tool_name_in: [refund]}`, say")
    when = read_when(entry, problems) if entry else None
    enforcement = read_enforcement(fields, inline=True)
    severity = read_severity(fields, context.severity)
    description = read_optional_text(fields, "description")
    tags = read_tags(fields)
    fields.finish(synonyms=_KEY_SYNONYMS, hints=_HINTS, shown=_KEYS)
    if id is None or when is None or enforcement is None or severity is None or description is None or tags is None:
        return None
    reach = reach_of(when.predicate)
    if reach != "session" and _refuse_mixture(when, enforcement, problems):
        return None
    warn_of_gaps(when, enforcement, problems)
    rule = Rule(
        id=id,
        kind="guard",
        demand=Attempt(when.predicate, marks=enforcement.then is Action.ALLOW),
        severity=severity,
        scope=Scope.SESSION if reach == "session" else Scope.TRACE,
        description=description or enforcement.reason,
        tags=tags,
        params={"when": plain(node.entries["when"].value), "then": enforcement.then.value},
        span=node.head,
    )
    return Item(rule, enforcement)


def _refuse_mixture(when: When, enforcement: Enforcement, problems: Problems) -> bool:
    """Whether a window across sessions stands where it cannot be judged; that is reported."""
    counters = [(leaf, leaf.predicate) for leaf in when.leaves if isinstance(leaf.predicate, CountOver)]
    wide = next(leaf for leaf, counter in counters if counter.across != "session")
    assert isinstance(wide.predicate, CountOver)
    across = wide.predicate.across
    if enforcement.inline:
        message = f"a window over `{across}` is judged only afterwards, and `inline` asks for it at the call"
        help = "remove `inline`, or count in the session"
    elif all(counter.across == across for _, counter in counters):
        return False
    else:
        message = f"a window over `{across}` cannot stand beside a counter that reaches less or more far"
        help = "write two rules"
    problems.error(code="reach-not-inline", message=message, at=wide.at, help=help)
    return True


def read_items(node: ListNode, context: Context, ids: Ids, *, guarding: bool = False) -> list[Item]:
    """The usable rules of a list; everything wrong with the others is reported. `guarding` asks each for `then`."""
    items = [_read_item(item, context, ids, guarding) for item in node.items]
    return [item for item in items if item is not None]


def _read_item(node: Node, context: Context, ids: Ids, guarding: bool) -> Item | None:
    if not isinstance(node, MapNode):
        help = "write it as `- id: …` with its keys below"
        report_wrong_type(node, "a rule", "a mapping", context.problems, help=help)
        return None
    if "kind" not in node.entries and (guarding or _is_guard_rule(node)):
        return read_guard_rule(node, context, ids)
    if guarding and "then" not in node.entries:
        context.problems.error(
            code="missing-key",
            message="a rule of a guard needs the key `then`",
            at=node.first_key,
            help="write what happens to the call, `then: block`, say; or move the rule to the section `rules`",
        )
    return read_rule(node, context, ids)


def _is_guard_rule(node: MapNode) -> bool:
    if "then" in node.entries:
        return True
    when = node.entries.get("when")
    return when is not None and isinstance(when.value, MapNode) and not when.value.entries.keys().isdisjoint(NAMES)

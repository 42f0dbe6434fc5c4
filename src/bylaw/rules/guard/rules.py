"""A guard rule: `id`, `when`, `then` and no `kind` → a Rule that demands something of every attempted call.

A rule that does less than it seems to is warned about. A window counter is judged after the call unless the rule says
`inline`, so it is false at the attempt. A rule that bounds an argument is false for a call that leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable

from bylaw.model.demand import Attempt
from bylaw.model.guard_policy import Action
from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, CountOver, NotOf, Predicate, reach_of
from bylaw.model.rule import Rule, Scope
from bylaw.rules.behaviour import read_rule
from bylaw.rules.located import ListNode, MapNode, Node, plain
from bylaw.rules.messages import listing, synonyms
from bylaw.rules.params import Context
from bylaw.rules.paths import path_text
from bylaw.rules.predicates import NAMES, Leaf, When, read_when
from bylaw.rules.readers import Fields, report_wrong_type
from bylaw.rules.rule_fields import (
    Enforcement,
    Ids,
    Item,
    read_enforcement,
    read_id,
    read_optional_text,
    read_severity,
    read_tags,
)
from bylaw.rules.source import Problems

_TRUE_WHEN_MISSING = frozenset({"!=", "not in", "not contains", "missing"})
_LOOKED_AT = 3
"""arguments that a warning names; a rule may have thousands"""
_INLINE = "add `inline: true` to have it decide calls too, or count with `call_count_in_run_gt`"


def warn_of_gaps(when: When, enforcement: Enforcement, problems: Problems) -> None:
    if not enforcement.then.restricts:
        return
    if not enforcement.inline:
        _warn_of_windows(when, problems)
    _warn_of_omission(when, problems)


# windows


def _warn_of_windows(when: When, problems: Problems) -> None:
    windows = [leaf for leaf in when.leaves if _is_window(leaf.predicate)]
    if not windows or reach_of(when.predicate) != "session":  # `over: all` says that it looks at what has happened
        return
    if under := _first_under_not(when, windows):
        message = "a window counter under `not` keeps the rule from deciding any call: it is judged only afterwards"
        problems.warn(code="window-not-inline", message=message, at=under.at, help=_INLINE)
    elif _value(when.predicate, lambda leaf: False if _is_window(leaf) else None) is False:
        message = "a window counter is judged only afterwards, so this rule never decides a call"
        problems.warn(code="window-not-inline", message=message, at=windows[0].at, help=_INLINE)


def _first_under_not(when: When, windows: list[Leaf]) -> Leaf | None:
    negated = set(map(id, _under_not(when.predicate)))
    return next((leaf for leaf in windows if id(leaf.predicate) in negated), None)


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


# omission


def _warn_of_omission(when: When, problems: Problems) -> None:
    tested = {p.path for leaf in when.leaves if isinstance(p := leaf.predicate, ArgumentIs) and _asks_presence(p)}
    escaping = [leaf for leaf in when.leaves if _fails_when_missing(leaf, tested)]
    if not escaping or _value(when.predicate, _without_arguments) is not False:
        return
    alone = next((leaf for leaf in escaping[:_LOOKED_AT] if _decides_alone(leaf, when)), None)
    shown = [alone] if alone else escaping[:_LOOKED_AT]
    paths = list(dict.fromkeys(_path(leaf) for leaf in shown))
    problems.warn(
        code="escapes-by-omission",
        message=f"a call without {listing(paths)} escapes this rule",
        at=shown[0].at,
        help=f"to match it too, write `any_of: [{_shown(shown[0])}, {{arg_missing: {{path: {paths[0]}}}}}]`",
    )


def _fails_when_missing(leaf: Leaf, tested: set[tuple[str | None, ...]]) -> bool:
    predicate = leaf.predicate
    if not isinstance(predicate, ArgumentIs) or predicate.path in tested:
        return False
    return (predicate.op in _TRUE_WHEN_MISSING) == leaf.negated


def _asks_presence(predicate: ArgumentIs) -> bool:
    return predicate.op in ("missing", "present")


def _decides_alone(leaf: Leaf, when: When) -> bool:
    """Whether leaving out this one argument is enough."""
    assert isinstance(leaf.predicate, ArgumentIs)
    path = leaf.predicate.path

    def judge(one: Predicate) -> bool | None:
        return _without_arguments(one) if isinstance(one, ArgumentIs) and one.path == path else None

    return _value(when.predicate, judge) is False


def _without_arguments(predicate: Predicate) -> bool | None:
    return predicate.op in _TRUE_WHEN_MISSING if isinstance(predicate, ArgumentIs) else None


def _shown(leaf: Leaf) -> str:
    """The predicate in short, as it would stand in a group."""
    assert isinstance(leaf.predicate, ArgumentIs)
    short = f"{{{leaf.predicate.name.partition(' ')[0]}: …}}"
    return f"{{not: {short}}}" if leaf.negated else short


def _path(leaf: Leaf) -> str:
    assert isinstance(leaf.predicate, ArgumentIs)
    return path_text(leaf.predicate.path)


# three values


def _value(predicate: Predicate, judge: Callable[[Predicate], bool | None]) -> bool | None:
    """Kleene's: None where what `judge` knows of the leaves does not decide."""
    match predicate:
        case AllOf(of=of):
            return _all([_value(one, judge) for one in of])
        case AnyOf(of=of):
            return _negated(_all([_negated(_value(one, judge)) for one in of]))
        case NotOf(of=inner):
            return _negated(_value(inner, judge))
        case _:
            return judge(predicate)


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


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
    when = _read_when(fields)
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
        problems.error(
            code="reach-not-inline",
            message=f"a window over `{across}` is judged only afterwards, and `inline` asks for it at the call",
            at=wide.at,
            help="remove `inline`, or count in the session",
        )
        return True
    if all(counter.across == across for _, counter in counters):
        return False
    problems.error(
        code="reach-not-inline",
        message=f"a window over `{across}` cannot stand beside a counter that reaches less or more far",
        at=wide.at,
        help="write two rules",
    )
    return True


def _read_when(fields: Fields) -> When | None:
    entry = fields.entry("when")
    if entry is None:
        fields.missing(("when",), help="say which calls it is about: `when: {tool_name_in: [refund]}`, say")
        return None
    return read_when(entry, fields.problems)


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
        _report_no_action(node, context)
    return read_rule(node, context, ids)


def _is_guard_rule(node: MapNode) -> bool:
    if "then" in node.entries:
        return True
    when = node.entries.get("when")
    return when is not None and isinstance(when.value, MapNode) and not when.value.entries.keys().isdisjoint(NAMES)


def _report_no_action(node: MapNode, context: Context) -> None:
    context.problems.error(
        code="missing-key",
        message="a rule of a guard needs the key `then`",
        at=node.first_key,
        help="write what happens to the call, `then: block`, say; or move the rule to the section `rules`",
    )

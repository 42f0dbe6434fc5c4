"""Facts → candidate rules.

Orders that always held: B only after A, or after a certain result of A, for the same argument; or after A or C.
Limits that always held: how large an argument is, which values it takes, how often a tool is called in a session.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.guard.proposals.facts import EarlierEvent, Facts, PathFacts, ToolFacts, can_be_named, slug
from bylaw.guard.proposals.report import Proposal
from bylaw.text.redaction.redactor import redacted

# -- orders -----------------------------------------------------------------------------------------------------------

MOST_ALTERNATIVES = 3
MAIN_SHARE = 0.5
"""share of the calls that the first alternative has to explain"""
LEAST_SHARE = 0.02
"""share of the calls that each further one has to explain, so that a single call makes no alternative"""
LEAST_SPECIFICITY = 0.1

Signatures: TypeAlias = "Counter[frozenset[EarlierEvent]]"


class Order(Struct, frozen=True):
    """`tool` only after one of `after`."""

    tool: str
    after: tuple[EarlierEvent, ...]
    specificity: float


def propose_orders(facts: Facts, min_support: int) -> Iterator[Proposal]:
    found = [
        order
        for tool, known in sorted(facts.tools.items())
        if known.calls >= min_support and known.signatures is not None and can_be_named(tool)
        for order in _orders(tool, known, facts)
    ]
    for order in _drop_implied(found):
        known = facts.tools[order.tool]
        yield Proposal(
            kind="order",
            tools=(order.tool, *dict.fromkeys(one.tool for one in order.after)),
            says=_sentence(order),
            rule=_rule(order),
            calls=known.calls,
            sessions=known.sessions,
            specificity=order.specificity,
        )


def _orders(tool: str, known: ToolFacts, facts: Facts) -> Iterator[Order]:
    assert known.signatures is not None
    support: Counter[EarlierEvent] = Counter()
    for signature, count in known.signatures.items():
        for earlier in signature:
            # calls without the argument would escape the rule
            is_usable = earlier.path is None or known.paths[earlier.path].present == known.calls
            if is_usable and earlier.tool != tool and can_be_named(earlier.tool):
                support[earlier] += count
    seen: set[str] = set()
    for earlier in sorted(support, key=lambda one: (-support[one], *_preference(one))):
        if earlier.tool in seen or support[earlier] < MAIN_SHARE * known.calls:
            continue
        after = _alternatives(earlier, known.signatures, support, known.calls)
        if after is None:
            continue
        for i, one in enumerate(after):  # each as specific as possible, as long as they explain every call
            after = (*after[:i], _strongest(one, known.signatures, after), *after[i + 1 :])
        if _is_padded(after, known.signatures):
            continue
        specificity = 1 - _share_of_other_calls(tool, after, facts)
        if specificity >= LEAST_SPECIFICITY:
            seen.update(one.tool for one in after)
            yield Order(tool, after, specificity)


def _preference(earlier: EarlierEvent) -> tuple[int, bool, str, str, str]:
    """Among several that hold as often, the most specific; the names make the choice deterministic."""
    flag = "" if earlier.flag is None else f"{earlier.flag[0]} {earlier.flag[1]}"
    plainness = 2 if earlier.flag is None else 1 - earlier.flag[1]
    return plainness, earlier.path is None, earlier.tool, flag, earlier.path or ""


def _alternatives(
    first: EarlierEvent, signatures: Signatures, support: Counter[EarlierEvent], calls: int
) -> tuple[EarlierEvent, ...] | None:
    """The first and as few others as explain every call; None if that takes too many."""
    chosen, left = [first], {s: n for s, n in signatures.items() if first not in s}
    while left:
        if len(chosen) == MOST_ALTERNATIVES:
            return None
        explains: Counter[EarlierEvent] = Counter()
        for signature, count in left.items():
            for one in signature:
                if one in support and one.tool != first.tool and one.path in (None, first.path):
                    explains[one] += count
        best = min(explains, key=lambda one: (-explains[one], *_preference(one)), default=None)
        if best is None or explains[best] < max(2, LEAST_SHARE * calls):
            return None
        chosen.append(best)
        left = {s: n for s, n in left.items() if best not in s}
    return tuple(chosen)


def _is_padded(after: tuple[EarlierEvent, ...], signatures: Signatures) -> bool:
    """Whether fewer, less specific alternatives explain every call: then the others are not needed."""
    tools = [{one.tool for one in after if one is not left} for left in after]
    return len(after) > 1 and any(all(any(e.tool in few for e in s) for s in signatures) for few in tools)


def _strongest(one: EarlierEvent, signatures: Signatures, after: Sequence[EarlierEvent]) -> EarlierEvent:
    """The same tool, as specific as possible, as long as every call is explained."""
    others = [other for other in after if other is not one]
    paths = {other.path for other in after if other.path is not None}
    candidates = {e for s in signatures for e in s if e.tool == one.tool and (not paths or e.path in (None, *paths))}
    for candidate in sorted(candidates, key=_preference):
        if all(candidate in signature or any(other in signature for other in others) for signature in signatures):
            return candidate
    return one


def _share_of_other_calls(tool: str, after: Sequence[EarlierEvent], facts: Facts) -> float:
    """The share of calls of other tools that come after one of these too, so that it is not specific to this tool."""
    loose = {EarlierEvent(one.tool, one.flag) for one in after}
    total = explained = 0
    for name, known in facts.tools.items():
        if name == tool or name in {one.tool for one in after}:
            continue
        for signature, count in (known.signatures or {}).items():
            total += count
            explained += count if not loose.isdisjoint(signature) else 0
    return explained / total if total else 0.0


def _drop_implied(orders: Sequence[Order]) -> Iterator[Order]:
    """Without `B after C` if B comes only after A, and A only after C."""
    plain = {(order.tool, order.after[0].tool): order.after[0] for order in orders if len(order.after) == 1}
    for order in orders:
        needed = order.after[0]
        between = [a for (b, a) in plain if b == order.tool and (a, needed.tool) in plain and a != needed.tool]
        implied = False
        for a in between:
            near, far = plain[order.tool, a], plain[a, needed.tool]
            same = needed.path is None or needed.path == near.path == far.path
            implied |= same and needed.flag in (None, far.flag)
        if len(order.after) > 1 or not implied:
            yield order


# -- as a sentence and as a rule --------------------------------------------------------------------------------------


def _sentence(order: Order) -> str:
    return f"{order.tool} only after " + " or ".join(map(_describe_earlier, order.after))


def _describe_earlier(one: EarlierEvent) -> str:
    flag = ""
    if one.flag is not None:
        key, value = one.flag
        flag = f" that returned {f'{key}={value}' if key else value}".replace("True", "true").replace("False", "false")
    return one.tool + flag + (f" for the same {one.path}" if one.path else "")


def _rule(order: Order) -> dict[str, Any]:
    path = next((one.path for one in order.after if one.path is not None), None)
    now = _atom("tool", order.tool, _same(path))
    before = " | ".join(f"O {_earlier(one)}" for one in order.after)
    names = "-or-".join(dict.fromkeys(one.tool for one in order.after))
    return {
        "id": f"{slug(order.tool)}-after-{slug(names)}",
        "kind": "temporal",
        "params": {"formula": f"G ({now} -> {before})"},
        "scope": "session",
        "then": "block",
        "reason": _sentence(order),
    }


def _earlier(one: EarlierEvent) -> str:
    if one.flag is None:
        return _atom("tool", one.tool, _same(one.path))
    key, value = one.flag
    test = f"result{f'.{key}' if key else ''} = {'true' if value else 'false'}"
    return _atom("result", one.tool, (*_same(one.path), test))


def _same(path: str | None) -> tuple[str, ...]:
    return () if path is None else (f"args.{path} = $same",)


def _atom(kind: str, tool: str, tests: Iterable[str]) -> str:
    name = tool if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", tool) else f'"{tool}"'
    return f"{kind}({', '.join((name, *tests))})"


# -- limits -----------------------------------------------------------------------------------------------------------

MOST_CHOICES = 8
CALLS_A_VALUE = 10
"""calls for each value of a closed set, at least: with fewer, unseen values are likely"""
SHARED_BY = 3
"""tools: an argument that so many tools share is an identifier, not a choice"""
HARD_SHARE = 0.05
"""share of the calls at exactly the highest value, from which it is a limit and not only the highest so far"""
MARGIN = 0.25
HARD, SOFT = 0.6, 0.3
"""specificity of a bound"""
_IDENTIFIER = re.compile(
    r"(?i)(^|[_.])(id|ids|uuid|number|no|nr|code|phone|zip|postcode|date|year|time|ts|index|page)$|Id$"
)
"""the last word of a path whose numbers are identifiers, not quantities"""


def propose_limits(facts: Facts, min_support: int, schemas: Mapping[str, Any]) -> Iterator[Proposal]:
    shared = Counter(path for known in facts.tools.values() for path in known.paths)
    for tool, known in sorted(facts.tools.items()):
        if not can_be_named(tool):
            continue
        if known.calls >= min_support:
            for path, values in sorted(known.paths.items()):
                if values.present == known.calls and not _is_secret(path):
                    schema = _schema_at(schemas.get(tool), path)
                    yield from _propose_for_path(tool, path, values, known, schema, shared[path])
        if known.sessions >= min_support:
            yield _ceiling(tool, known)


def _propose_for_path(
    tool: str, path: str, values: PathFacts, known: ToolFacts, schema: Mapping[str, Any], shared: int
) -> Iterator[Proposal]:
    choices = _choices(values)
    if choices is not None and shared < SHARED_BY and not _IDENTIFIER.search(path):
        if "enum" not in schema and "const" not in schema:
            yield _value_set(tool, path, choices, known)
    elif values.numbers == values.present and not _IDENTIFIER.search(path) and "maximum" not in schema:
        yield _range(tool, path, values, known)


def _choices(values: PathFacts) -> list[Any] | None:
    """The values of a closed set: few, and none of them rare; None if it is not one."""
    found = values.values
    if found is None or not 2 <= len(found) <= MOST_CHOICES or values.present < CALLS_A_VALUE * len(found):
        return None
    plain = [value for _, value in found]
    if min(found.values()) < 2 or all(isinstance(value, bool) for value in plain):
        return None
    return sorted(plain, key=lambda value: (str(type(value)), value))


def _value_set(tool: str, path: str, choices: list[Any], known: ToolFacts) -> Proposal:
    rule = {
        "id": f"{slug(tool)}-{slug(path)}-values",
        "when": {"tool_name_in": [tool], "arg_not_in": {"path": path, "values": choices}},
        "then": "block",
        "reason": f"{path} of {tool} has always been one of {len(choices)} values",
    }
    says = f"{path} of {tool} is one of {', '.join(map(str, choices))}"
    return _proposal("values", tool, says, rule, known, 1 - len(choices) / (MOST_CHOICES + 1))


def _range(tool: str, path: str, values: PathFacts, known: ToolFacts) -> Proposal:
    hard = values.at_highest >= max(3, HARD_SHARE * values.present)
    bound = values.highest if hard else _add_margin(values.highest)
    bound = int(bound) if values.whole else bound
    rule = {
        "id": f"{slug(tool)}-{slug(path)}-limit",
        "when": {
            "tool_name_in": [tool],
            "any_of": [{"arg_gt": {"path": path, "value": bound}}, {"arg_missing": {"path": path}}],
        },
        "then": "block",
        "reason": f"{path} of {tool} has always been at most {bound:,}",
    }
    seen = "" if hard else f" ({_format_number(values.highest)} seen)"
    return _proposal("range", tool, f"{path} of {tool} is at most {bound:,}{seen}", rule, known, HARD if hard else SOFT)


def _add_margin(highest: float) -> float:
    """The highest value plus a margin, rounded up to two digits."""
    raised = highest + abs(highest) * MARGIN
    if not raised:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(raised))) - 1)
    return float(f"{math.ceil(raised / step) * step:.12g}")


def _format_number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _ceiling(tool: str, known: ToolFacts) -> Proposal:
    highest = max(known.per_session)
    hard = known.per_session[highest] >= max(3, HARD_SHARE * known.sessions)
    most = highest if hard else highest + max(1, round(highest * MARGIN))
    rule = {
        "id": f"{slug(tool)}-per-session",
        "when": {"tool_name_in": [tool], "call_count_in_session_gt": {"tool": tool, "value": most}},
        "then": "block",
        "reason": f"{tool} has never been called so often in a session",
    }
    seen = "" if hard else f" ({highest:,} seen)"
    says = f"{tool} at most {most:,} {'time' if most == 1 else 'times'} in a session{seen}"
    return _proposal("ceiling", tool, says, rule, known, (HARD if hard else SOFT) / (1 + most))


def _proposal(kind: Any, tool: str, says: str, rule: dict[str, Any], known: ToolFacts, specificity: float) -> Proposal:
    return Proposal(
        kind=kind,
        tools=(tool,),
        says=says,
        rule=rule,
        calls=known.calls,
        sessions=known.sessions,
        specificity=specificity,
    )


def _is_secret(path: str) -> bool:
    key = path.rpartition(".")[2]
    return bool(redacted({key: "x"}) != {key: "x"})


def _schema_at(schema: Any, path: str) -> Mapping[str, Any]:
    """The tool's own JSON Schema of the argument."""
    for key in path.split("."):
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}

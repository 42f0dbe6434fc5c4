"""Random guard rules, behaviour rules that restrict, and what an agent does under them; few names, so they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Rules = list[dict[str, Any]]

TOOLS = ["pay", "verify", "send"]
tools = st.sampled_from(TOOLS)
numbers = st.sampled_from([0, 1, 2, 5])
odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, "5", "1,500", "x", [5], {"k": 5}, 1.5, -1, [], [[2]], "", {}]
)
values = numbers | odd
arguments = st.none() | st.fixed_dictionaries(
    {}, optional={"n": values, "o": values, "l": st.lists(values, max_size=3)}
)
paths = st.sampled_from(["n", "o", "l.0", "l.*", "n.k", "l.*.k", "missing"])


def _argument(name: str) -> st.SearchStrategy[dict[str, Any]]:
    if name in ("arg_missing", "arg_present"):
        return st.fixed_dictionaries({"path": paths})
    if name in ("arg_in", "arg_not_in"):
        return st.fixed_dictionaries({"path": paths, "values": st.lists(values, min_size=1, max_size=3)})
    if name == "arg_regex":
        return st.fixed_dictionaries({"path": paths, "pattern": st.sampled_from(["5", "^x$", "[0-9],", "."])})
    wanted = numbers if name in ("arg_gt", "arg_gte", "arg_lt", "arg_lte") else values
    return st.fixed_dictionaries({"path": paths, "value": wanted})


_NAMES = ["eq", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "regex", "contains", "missing", "present"]
_counters = st.fixed_dictionaries({"value": st.integers(0, 3)}, optional={"tool": tools})
_windows = st.fixed_dictionaries(
    {"value": st.integers(0, 3), "windowSeconds": st.sampled_from([1, 5, 30])}, optional={"tool": tools}
)
_leaves: list[st.SearchStrategy[dict[str, Any]]] = [
    st.fixed_dictionaries({"tool_name_in": st.lists(tools, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"tool_name_regex": st.sampled_from(["^p", "y$", "z"])}),
    st.fixed_dictionaries({"call_count_in_run_gt": _counters}),
    st.fixed_dictionaries({"call_count_in_session_gt": _counters}),
    st.fixed_dictionaries({"call_count_in_window_gt": _windows}),
    *[st.fixed_dictionaries({f"arg_{name}": _argument(f"arg_{name}")}) for name in _NAMES],
]
whens: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(_leaves) | st.just({}),
    lambda inner: (
        st.fixed_dictionaries({"all_of": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"any_of": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"not": inner})
    ),
    max_leaves=4,
)
_FORMULAS = [
    "G (tool(pay) -> O result(verify))",
    "G (tool(pay, args.n = $n) -> O tool(verify, args.n = $n))",
    "G (tool(send) -> !O tool(pay))",
    "G (tool(pay) -> O[<=5s] tool(verify))",
    "G (tool(send, args.n = $n) -> O result(verify, args.n = $n))",
]
_params: list[st.SearchStrategy[dict[str, Any]]] = [
    st.fixed_dictionaries({"kind": st.just("no_call"), "params": st.fixed_dictionaries({"tool": tools})}),
    st.fixed_dictionaries({"kind": st.just("must_call_once"), "params": st.fixed_dictionaries({"tool": tools})}),
    st.fixed_dictionaries(
        {"kind": st.just("must_call_before"), "params": st.fixed_dictionaries({"first": tools, "second": tools})}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("temporal"), "params": st.fixed_dictionaries({"formula": st.sampled_from(_FORMULAS)})}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("temporal"),
            "params": st.fixed_dictionaries(
                {"at_most": st.integers(0, 3), "of": tools}, optional={"within": st.just("5s"), "same": st.just("n")}
            ),
        }
    ),
]


def _named(rules: Rules) -> Rules:
    return [{"id": f"r{i}", **rule} for i, rule in enumerate(rules)]


guard_rules: st.SearchStrategy[Rules] = st.lists(
    st.fixed_dictionaries({"when": whens, "then": st.just("block"), "shadow": st.just(True), "inline": st.just(True)}),
    min_size=1,
    max_size=4,
).map(_named)
behaviour_rules: st.SearchStrategy[Rules] = st.lists(
    st.one_of(_params).map(lambda rule: {**rule, "then": "block", "shadow": True}), min_size=1, max_size=4
).map(_named)
follow_ups: st.SearchStrategy[Rules] = st.lists(
    st.builds(
        lambda text, tool: {
            "kind": "must_followup",
            "params": {
                "trigger": [{"path": "response.text", "op": "contains", "value": text}],
                "must": {"kind": "tool_call", "tool_name": tool},
            },
            "scope": "session",
            "then": "block",
            "shadow": True,
        },
        st.sampled_from(["hi", "me"]),
        tools,
    ),
    min_size=1,
    max_size=3,
).map(_named)
"""judged where a response is over, so they never block"""
mixed_rules: st.SearchStrategy[Rules] = st.tuples(guard_rules, behaviour_rules).map(lambda two: _named_all(*two))


def _named_all(some: Rules, more: Rules) -> Rules:
    return [{**rule, "id": f"r{i}"} for i, rule in enumerate([*some, *more])]


gaps = st.sampled_from([0.0, 0.5, 1.0, 5.0, 40.0, -3.0])
"""seconds between two things, now and then backwards"""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), tools, arguments, st.sampled_from([None, "r1", "r2"]), gaps),
        st.tuples(st.just("call"), tools, arguments, st.none(), gaps),
        st.tuples(st.just("result"), st.integers(0, 5), st.sampled_from(["ok", {"n": 5}, '{"n": 5}', None]), gaps),
        st.tuples(st.just("response"), st.sampled_from(["hi", "pay me", ""]), gaps),
    ),
    max_size=14,
)

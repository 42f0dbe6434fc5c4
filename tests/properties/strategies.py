"""Random rules and random traces that meet: few tool names, few words, few values, so that rules fire both ways."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st

from bylaw.errors import InputError
from bylaw.rules import calls as call_params
from bylaw.rules import load_rules, params
from bylaw.rules.kinds import KINDS, Kind
from tests.support.yaml_files import load_yaml

TOOLS = ["look", "confirm", "refund", "refund_all", "delete"]
WORDS = ["order", "Refund", "quote", "no", "the", "ок", "éa", "1", "{", "STRASSE", "straße"]
VALUES: list[Any] = [None, True, False, 0, 1, 1.0, 2, 500, "1", "a", "A", [], [1], [True], {"k": 1}, {"k": 1.0}]

tool_names = st.sampled_from(TOOLS)
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
json_texts = st.sampled_from(['{"a": 1}', '{"a": "x"}', "NaN", "[1]", "", " ", '{"a": 1', "Infinity", "null"])
values = st.sampled_from(VALUES)

numbers = st.sampled_from([0, 1, 0.1, 0.2, -1, 500, "0.3", 1e308])
arguments = st.fixed_dictionaries(
    {}, optional={"amount": st.one_of(numbers, values), "order": st.one_of(st.sampled_from(["A", "B"]), values)}
)
calls = st.one_of(
    tool_names,
    st.fixed_dictionaries({"name": tool_names, "args": arguments}),
    st.fixed_dictionaries({"name": tool_names, "args": arguments}),
    st.fixed_dictionaries({"name": tool_names, "args": st.one_of(values, st.dictionaries(st.just("amount"), values))}),
    st.fixed_dictionaries({"name": tool_names, "raw": st.just("{broken")}),
)
chunks = st.one_of(
    texts,
    st.lists(texts, max_size=2),
    st.lists(st.builds(lambda t: {"text": t}, texts), max_size=2),
    st.lists(st.builds(lambda k, t: {k: t}, st.sampled_from(["body", "node", "title"]), texts), max_size=2),
    values,
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m1", "m2"]),
        "params": st.dictionaries(st.sampled_from(["amount", "a.b"]), values, max_size=2),
        "metadata": st.fixed_dictionaries({}, optional={"chunks": chunks}),
        "messages": st.lists(st.builds(lambda t: {"role": "user", "content": t}, texts), max_size=2),
    },
)
turns = st.fixed_dictionaries(
    {"session": st.sampled_from(["1", "2", "3"])},
    optional={
        "text": st.one_of(st.none(), texts, json_texts),
        "blocks": st.lists(st.sampled_from([*WORDS, "or", "der", "e", "\u0301a"]), min_size=2, max_size=3),
        "calls": st.lists(calls, max_size=3),
        "answered": st.lists(st.booleans(), max_size=3),
        "unlisted": st.sampled_from([False, False, False, True]),
        "stop": st.sampled_from(["end_turn", "tool_use", "max_tokens"]),
        "tokens": st.tuples(st.one_of(st.none(), st.integers(0, 40)), st.one_of(st.none(), st.integers(0, 40))),
        "latency": st.one_of(st.integers(0, 100), st.sampled_from([0.1, 0.2])),
        "model": st.sampled_from(["m2", "o3", "o3"]),
        "request": requests,
    },
)


def _with_blocks(turn: dict[str, Any]) -> dict[str, Any]:
    """`blocks` are the texts of a response with several."""
    blocks = turn.pop("blocks", None)
    if blocks is None or turn.get("text", "") is None:
        return turn
    content = [{"type": "text", "text": text} for text in blocks]
    return {**turn, "text": "\n".join(blocks), "content": content}


def _with_results(turn: dict[str, Any]) -> dict[str, Any]:
    """`answered` says which calls have a result before the next call."""
    answered, calls = turn.pop("answered", ()), turn.get("calls", ())
    results: list[int] = []
    placed = []
    for i, call in enumerate(calls):
        placed.append({**({"name": call} if isinstance(call, str) else call), "after": len(results)})
        results += [i] if i < len(answered) and answered[i] else []
    return {**turn, "calls": placed, "results": [{"of": i, "content": "ok"} for i in results]}


turns = turns.map(_with_blocks).map(_with_results)
ends = st.builds(lambda s, c: {"end": s, "complete": c}, st.sampled_from(["1", "2", "3"]), st.booleans())
traces = st.lists(st.one_of(turns, turns, turns, ends), max_size=12)


paths = st.sampled_from(
    [
        "request.params.amount",
        "request.params.a\\.b",
        "request.model",
        "request.messages.-1.content",
        "request.messages.*.content",
        "request.metadata.chunks",
        "response.text",
        "response.content",
        "response.content.0.type",
        "response.content.*.name",
        "response.tool_calls.*.name",
        "response.tool_calls.0.arguments.amount",
        "response.tool_calls.*.arguments",
        "response.usage.input_tokens",
        "response.latency_ms",
        "model",
        "stop_reason",
    ]
)
wanted = st.one_of(values, st.sampled_from([*TOOLS, *WORDS, "end_turn", "tool_use", "m1"]))
conditions = st.one_of(
    st.fixed_dictionaries(
        {"path": paths, "op": st.sampled_from(["==", "!=", "contains", "not_contains"]), "value": wanted}
    ),
    st.fixed_dictionaries(
        {"path": paths, "op": st.sampled_from([">", ">=", "<", "<="]), "value": st.sampled_from([0, 1, 1.5, 20, 500])}
    ),
    st.fixed_dictionaries(
        {"path": paths, "op": st.sampled_from(["in", "not_in"]), "value": st.lists(wanted, max_size=3)}
    ),
    st.fixed_dictionaries(
        {
            "path": paths,
            "op": st.sampled_from(["matches", "starts_with", "ends_with"]),
            "value": st.sampled_from([*TOOLS, *WORDS]),
        }
    ),
    st.fixed_dictionaries({"path": paths, "op": st.sampled_from(["exists", "missing"])}),
)
of_calls = st.one_of(
    st.fixed_dictionaries(
        {"arg_gt": st.just({"path": "amount", "value": 20})}, optional={"tool_name_in": st.sampled_from(TOOLS)}
    ),
    st.fixed_dictionaries({"not": st.fixed_dictionaries({"arg_eq": st.just({"path": "amount", "value": 1})})}),
    st.fixed_dictionaries({"arg_missing": st.just("amount")}),
)
clauses = st.recursive(
    st.one_of(conditions, conditions, of_calls),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"any_of": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"all_of": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=3,
)
condition_lists = st.lists(clauses, min_size=1, max_size=2)

tools = st.one_of(
    tool_names, st.lists(tool_names, min_size=1, max_size=2), st.sampled_from(["ref*", "?ook", "[cd]*", "[!l]*"])
)
patterns = st.sampled_from(["order", "refund", "q", "ок", "strasse", "o.d", "^Ref", r"\d", "a|e"])
text_params = st.fixed_dictionaries({"text": patterns}, optional={"regex": st.booleans(), "ignore_case": st.booleans()})
schemas = st.sampled_from(
    [{"type": "object"}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, True]
)
comparisons = st.one_of(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["==", "!=", "contains", "not_contains"]), "value": st.one_of(values, st.just("A"))}
    ),
    st.fixed_dictionaries({"op": st.sampled_from([">", ">=", "<", "<="]), "value": st.sampled_from([0, 0.2, 1, 500])}),
    st.fixed_dictionaries({"op": st.sampled_from(["in", "not_in"]), "value": st.lists(values, max_size=2)}),
    st.fixed_dictionaries({"op": st.sampled_from(["starts_with", "matches"]), "value": st.sampled_from(["A", "1"])}),
    st.fixed_dictionaries({"op": st.sampled_from(["exists", "missing"])}),
)
argument_paths = st.sampled_from(["amount", "order", "amount.k", "amount.*"])
on_arguments = st.builds(lambda path, test: {"path": path, **test}, argument_paths, comparisons)
wheres = st.one_of(
    st.lists(on_arguments, min_size=1, max_size=2),
    st.lists(on_arguments, min_size=1, max_size=2).map(lambda some: [{"any_of": some}]),
    on_arguments.map(lambda one: [{"not": one}]),
)
called = st.one_of(tools, st.fixed_dictionaries({"tool": tools}, optional={"where": wheres}))
forbidden = st.dictionaries(
    argument_paths,
    st.one_of(
        values.filter(lambda value: not isinstance(value, dict)), st.builds(lambda n: {">": n}, st.integers(0, 2))
    ),
    min_size=1,
    max_size=2,
)

musts = st.one_of(
    st.fixed_dictionaries({"kind": st.just("tool_call"), "tool_name": tools}, optional={"where": wheres}),
    text_params.map(lambda p: {"kind": "text_includes", **p}),
)

BY_TYPE: dict[int, st.SearchStrategy[Any]] = {
    id(params.TOOLS): tools,
    id(params.NAMES): st.sampled_from(["end_turn", ["end_turn", "tool_use"]]),
    id(params.TEXT): st.just("it is wrong"),
    id(params.PATTERN): patterns,
    id(params.COUNT): st.integers(0, 5),
    id(params.SHARE): st.sampled_from([0, 0.3, 0.5, 1]),
    id(params.FLAG): st.booleans(),
    id(params.PATH): paths,
    id(params.TRIGGER): condition_lists,
    id(params.SCHEMA): schemas,
    id(params.PATTERNS): st.lists(patterns, min_size=1, max_size=3),
    id(params.AMOUNT): st.sampled_from([0, 0.3, 1, 500]),
    id(params.PER): st.sampled_from(["turn", "scope"]),
    id(call_params.WHERE): wheres,
    id(call_params.CALLS): called,
    id(call_params.ARGUMENT): argument_paths,
    id(call_params.SAME): st.one_of(st.just("order"), st.just(["order", "amount.k"])),
    id(call_params.ARGUMENTS): forbidden,
}
BETTER: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("max_total_tokens", "n"): st.integers(0, 120),
    ("max_latency", "limit"): st.sampled_from([0.3, 20, 100]),
    ("max_cost", "limit"): st.sampled_from([0.00002, 0.0001, 0.0005]),
    ("must_be_grounded", "retrieval_path"): st.just("request.metadata.chunks"),
    ("must_followup", "must"): musts,
}
"""values that meet the traces more often than any value of the type does"""


def _is_accepted(kind: Kind, given: dict[str, Any]) -> bool:
    """Whether these parameters go together, as the kind says itself."""
    try:
        load_rules([{"id": "r", "kind": kind.name, "params": given}])
    except InputError:
        return False
    return True


def params_of(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    """Random parameters of a kind, by their types. One of another type keeps the value of the kind's example."""
    example = load_yaml(kind.example)[0]["params"]
    known = {
        param.name: BETTER.get((kind.name, param.name), BY_TYPE.get(id(param.type), st.just(example.get(param.name))))
        for param in kind.params
        if param.required or id(param.type) in BY_TYPE or param.name in example
    }
    required = {param.name: known.pop(param.name) for param in kind.params if param.required}
    return st.fixed_dictionaries(required, optional=known).filter(partial(_is_accepted, kind))


PARAMS = {name: params_of(kind) for name, kind in KINDS.items()}


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(PARAMS)))
    rule: dict[str, Any] = {
        "kind": kind,
        "params": draw(PARAMS[kind]),
    }
    if scope := draw(st.sampled_from(["trace", "session", None])):
        rule["scope"] = scope
    if draw(st.booleans()):
        rule["when"] = draw(condition_lists)
    return rule


rule_lists = st.lists(rules(), min_size=1, max_size=4).map(
    lambda found: [{"id": f"r{i}", **rule} for i, rule in enumerate(found)]
)

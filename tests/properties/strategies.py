"""Random rules and random traces that meet: few tool names, few words, few values, so that rules fire both ways."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bylaw.rules import params
from bylaw.rules.kinds import KINDS, Kind
from tests.support.yaml_files import load_yaml

TOOLS = ["look", "confirm", "refund", "refund_all", "delete"]
WORDS = ["order", "Refund", "quote", "no", "the", "ок", "éa", "1", "{", "STRASSE", "straße"]
VALUES: list[Any] = [None, True, False, 0, 1, 1.0, 2, 500, "1", "a", "A", [], [1], [True], {"k": 1}, {"k": 1.0}]

tool_names = st.sampled_from(TOOLS)
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
json_texts = st.sampled_from(['{"a": 1}', '{"a": "x"}', "NaN", "[1]", "", " ", '{"a": 1', "Infinity", "null"])
values = st.sampled_from(VALUES)

calls = st.one_of(
    tool_names,
    st.fixed_dictionaries({"name": tool_names, "args": st.one_of(values, st.dictionaries(st.just("amount"), values))}),
    st.fixed_dictionaries({"name": tool_names, "raw": st.just("{broken")}),
)
chunks = st.one_of(
    texts, st.lists(texts, max_size=2), st.lists(st.builds(lambda t: {"text": t}, texts), max_size=2), values
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
        "calls": st.lists(calls, max_size=3),
        "stop": st.sampled_from(["end_turn", "tool_use", "max_tokens"]),
        "tokens": st.tuples(st.one_of(st.none(), st.integers(0, 40)), st.one_of(st.none(), st.integers(0, 40))),
        "latency": st.integers(0, 100),
        "model": st.just("m2"),
        "request": requests,
    },
)
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
)
condition_lists = st.lists(conditions, min_size=1, max_size=2)

tools = st.one_of(
    tool_names, st.lists(tool_names, min_size=1, max_size=2), st.sampled_from(["ref*", "?ook", "[cd]*", "[!l]*"])
)
patterns = st.sampled_from(["order", "refund", "q", "ок", "strasse", "o.d", "^Ref", r"\d", "a|e"])
text_params = st.fixed_dictionaries({"text": patterns}, optional={"regex": st.booleans(), "ignore_case": st.booleans()})
schemas = st.sampled_from(
    [{"type": "object"}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, True]
)
musts = st.one_of(
    st.fixed_dictionaries({"kind": st.just("tool_call"), "tool_name": tools}),
    text_params.map(lambda p: {"kind": "text_includes", **p}),
)

BY_TYPE: dict[int, st.SearchStrategy[Any]] = {
    id(params.TOOLS): tools,
    id(params.NAMES): st.sampled_from(["end_turn", ["end_turn", "tool_use"]]),
    id(params.PATTERN): patterns,
    id(params.COUNT): st.integers(0, 5),
    id(params.SHARE): st.sampled_from([0, 0.3, 0.5, 1]),
    id(params.FLAG): st.booleans(),
    id(params.PATH): paths,
    id(params.TRIGGER): condition_lists,
    id(params.SCHEMA): schemas,
}
BETTER: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("max_total_tokens", "n"): st.integers(0, 120),
    ("must_be_grounded", "retrieval_path"): st.just("request.metadata.chunks"),
    ("must_followup", "must"): musts,
}
"""values that meet the traces more often than any value of the type does"""


def params_of(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    """Random parameters of a kind, by their types. One of another type keeps the value of the kind's example."""
    example = load_yaml(kind.example)[0]["params"]
    if kind.together:
        return st.just(example)
    known = {
        param.name: BETTER.get((kind.name, param.name), BY_TYPE.get(id(param.type), st.just(example.get(param.name))))
        for param in kind.params
        if param.required or id(param.type) in BY_TYPE or param.name in example
    }
    required = {param.name: known.pop(param.name) for param in kind.params if param.required}
    return st.fixed_dictionaries(required, optional=known)


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

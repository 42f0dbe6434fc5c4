"""The language of formulas: what is read as what, and what is accepted."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.model import temporal as m
from bylaw.model.demand import Temporal
from bylaw.model.rule import RuleSet
from bylaw.model.temporal import Formula, TextHas, Variable, Window
from bylaw.rules import parse_rules


def read(text: str) -> RuleSet:
    return parse_rules(json.dumps([{"id": "a", "kind": "temporal", "params": {"formula": text}}]), format="json")


def parse(text: str) -> Formula:
    ruleset = read(text)
    assert [d.message for d in ruleset.diagnostics] == []
    demand = ruleset.rules[0].demand
    assert isinstance(demand, Temporal)
    return demand.formula


def shape(formula: Formula) -> str:
    """The formula with all parentheses, and atoms by their names."""
    match formula:
        case m.ToolIs(names=names):
            return names[0]
        case m.Not(of=of):
            return f"!{shape(of)}"
        case m.Ahead(op=op, of=of) | m.Back(op=op, of=of):
            return f"{op}{shape(of)}"
        case m.Pair(op=op, left=left, right=right):
            return f"({shape(left)} {op} {shape(right)})"
        case m.And(left=left, right=right):
            return f"({shape(left)} & {shape(right)})"
        case m.Or(left=left, right=right):
            return f"({shape(left)} | {shape(right)})"
        case m.Implies(left=left, right=right):
            return f"({shape(left)} -> {shape(right)})"
        case m.Iff(left=left, right=right):
            return f"({shape(left)} <-> {shape(right)})"
    raise AssertionError(formula)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("!a & b", "(!a & b)"),
        ("G a -> b", "(Ga -> b)"),
        ("a U b & c", "((a U b) & c)"),
        ("a U b U c", "(a U (b U c))"),
        ("a S b W c R d", "(a S (b W (c R d)))"),
        ("a & b | c & d", "((a & b) | (c & d))"),
        ("a && b || c", "((a & b) | c)"),
        ("a -> b -> c", "(a -> (b -> c))"),
        ("a -> b <-> c -> d", "((a -> b) <-> (c -> d))"),
        ("a <-> b <-> c", "((a <-> b) <-> c)"),
        ("a & b & c", "((a & b) & c)"),
        ("! X N F G Y O H a", "!XNFGYOHa"),
        ("G(a->O b)", "G(a -> Ob)"),
        ("F a U b", "(Fa U b)"),
        ("X (a | b)", "X(a | b)"),
    ],
)
def test_operators_bind_by_precedence(text: str, wanted: str) -> None:
    written = "".join(f"tool({c})" if c in "abcd" else c for c in text)
    assert shape(parse(written)) == wanted


def test_texts_are_as_written_with_single_spaces() -> None:
    formula = parse('G  (tool( a,args.x\n = "b  c" )  ->  (text(/x  y/)\t|\n true))')
    assert formula.text == 'G (tool( a,args.x = "b  c" ) -> (text(/x  y/) | true))'
    assert isinstance(formula, m.Ahead)
    assert isinstance(formula.of, m.Implies)
    assert formula.of.text == 'tool( a,args.x = "b  c" ) -> (text(/x  y/) | true)'
    assert formula.of.right.text == "text(/x  y/) | true"
    assert isinstance(formula.of.left, m.ToolIs)
    assert formula.of.left.tests[0].text == 'args.x = "b  c"'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tool(a)", ("a",)),
        ("tool(a|b-c | d.e)", ("a", "b-c", "d.e")),
        ("tool(mcp:x/y_*)", ("mcp:x/y_*",)),
        ("tool(a[0-9]?[!x])", ("a[0-9]?[!x]",)),
        ("tool(\"a \\\"b\\\"\" | 'it''s')", ('a "b"', "it's")),
        ("tool(été)", ("été",)),
        ("tool(true)", ("true",)),
    ],
)
def test_names_of_tools_are_read(text: str, names: tuple[str, ...]) -> None:
    formula = parse(text)
    assert isinstance(formula, m.ToolIs)
    assert formula.names == names


@pytest.mark.parametrize(
    ("text", "root", "path", "op", "value"),
    [
        ("args.x = 5", "args", ("x",), "=", 5),
        ("args.x=-1.5e3", "args", ("x",), "=", -1500.0),
        ("args.a.0.b != ok", "args", ("a", "0", "b"), "!=", "ok"),
        ("args.a.*.b contains 2024-01-01", "args", ("a", None, "b"), "contains", "2024-01-01"),
        (r"args.a\.b = null", "args", ("a.b",), "=", None),
        (r"args.\* = x", "args", ("*",), "=", "x"),
        ('args."a b".c = "d\\n"', "args", ("a b", "c"), "=", "d\n"),
        ("args.a-b.-1 = true", "args", ("a-b", "-1"), "=", True),
        ('result.x in [1, a, "b", [null]]', "result", ("x",), "in", [1, "a", "b", [None]]),
        ("result.x not  in [a]", "result", ("x",), "not in", ["a"]),
        ('result = {"a": [1], "b": {}}', "result", (), "=", {"a": [1], "b": {}}),
        (r"result matches /a\/b\d/", "result", (), "matches", r"a/b\d"),
        ("result.x matches /a/i", "result", ("x",), "matches", "(?i)a"),
        ("args.x present", "args", ("x",), "present", None),
        ("args.x missing", "args", ("x",), "missing", None),
        ("error = false", "error", (), "=", False),
        ("error != true", "error", (), "!=", True),
    ],
)
def test_comparisons_are_read(text: str, root: str, path: tuple[str | None, ...], op: str, value: object) -> None:
    formula = parse(f"result(a, {text})")
    assert isinstance(formula, m.ResultOf)
    test = formula.tests[0]
    assert (test.root, test.path, test.op, test.value) == (root, path, op, value)
    assert type(test.value) is type(value)


def test_other_atoms_are_read() -> None:
    assert parse('text("a\\"b")') == m.Says(TextHas('a"b'), 'text("a\\"b")')
    assert parse("text(/a b/i)") == m.Says(TextHas("a b", regex=True, ignore_case=True), "text(/a b/i)")
    assert parse("user('x')") == m.UserSays(TextHas("x"), "user('x')")
    assert parse("agent(a* | b)") == m.AgentIs(("a*", "b"), "agent(a* | b)")
    assert parse("stop_reason(end_turn)") == m.StopsFor("end_turn", "stop_reason(end_turn)")
    assert parse("false") == m.Constant(False, "false")


def test_seen_and_count_are_read() -> None:
    inner = m.ResultOf(("a",), (), "result(a)")
    assert parse("seen(a)") == m.Seen(inner, None, "seen(a)")
    assert parse("seen[<=3t](result(a))") == m.Seen(inner, Window(3.0, "turns", "<=3t"), "seen[<=3t](result(a))")
    counted = parse("count[<= 5 m](tool(a)) >= 3")
    assert counted == m.Count(
        m.ToolIs(("a",), (), "tool(a)"), ">=", 3, Window(300.0, "seconds", "<= 5 m"), "count[<= 5 m](tool(a)) >= 3"
    )
    assert parse("seen(result)") == m.Seen(m.ResultOf(("result",), (), "result(result)"), None, "seen(result)")


@pytest.mark.parametrize(
    ("window", "bound", "unit"),
    [
        ("5", 5.0, "events"),
        ("5e", 5.0, "events"),
        ("3t", 3.0, "turns"),
        ("500ms", 0.5, "seconds"),
        ("30s", 30.0, "seconds"),
        ("1.5h", 5400.0, "seconds"),
        ("2d", 172800.0, "seconds"),
        ("0", 0.0, "events"),
    ],
)
def test_windows_are_read(window: str, bound: float, unit: str) -> None:
    for text in (f"O[<={window}] tool(a)", f"tool(a) S [<={window}] tool(b)", f"F [ <= {window} ] tool(a)"):
        formula = parse(text)
        assert isinstance(formula, m.Back | m.Pair | m.Ahead)
        assert formula.window is not None
        assert (formula.window.bound, formula.window.unit) == (bound, unit)


ACCEPTED = [
    "G (tool(a, args.x = $v) -> O tool(b, args.x = $v))",
    "G (tool(a, args.x = $v) -> !O[<=5] (tool(b, args.x = $v) & Y O tool(c, args.y = $v)))",
    "G (tool(a, args.x = $v, args.y = $w) -> O result(b, args.x = $v, result.y >= $w))",
    "G (tool(a, args.y = $w) -> O result(b, result.y >= $w))",
    "G (tool(a, args.x = $v) -> H (tool(b, args.x = $v) -> tool(b, args.ok = true)))",
    "G (tool(a, args.x = $v) -> H !tool(b, args.x = $v))",
    "G (tool(a, args.x = $v) -> !tool(c, args.x = $v) S tool(b, args.x = $v))",
    "G (tool(a, args.x = $v) -> (!tool(c, args.x = $v) & !tool(d)) S[<=5m] tool(b, args.x = $v))",
    "G (tool(a, args.x = $v) -> !(tool(c, args.x = $v) | tool(d)) S tool(b, args.x = $v))",
    "G (tool(a, args.x = $v) -> O (tool(b, args.x = $v) | result(c, args.y = $v)))",
    "G (tool(a, args.x = $v) -> count[<=5m](tool(a, args.x = $v)) <= 3)",
    "G (tool(a, args.x = $v) -> seen(b, args.x = $v, result.y > $v))",
    "G (tool(a, args.x = $v) -> Y !tool(b, args.x = $v))",
    "G (tool(a, args.x = $v) -> F (tool(b) & O tool(c, args.x = $v)))",
    "G (tool(a, args.x = $v) -> !tool(b, args.x = $v) U tool(c, args.x = $v))",
    "G ((tool(a, args.x = $v) | tool(b, args.y = $v)) -> F tool(c, args.x = $v))",
    "G (tool(a, args.x = $v) & Y O tool(b, args.x = $v) -> F tool(c, args.y > $v))",
    "G (tool(a, args.x = $v, args.y != $v) -> false)",
    "G (tool(a) -> O (tool(b) & F tool(c)))",
    "O (tool(a, args.x = $v) & Y O tool(b, args.x = $v))",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_bounded_formulas_are_accepted(text: str) -> None:
    assert parse(text).text == text


NOT_KEPT = [
    "O (true & tool(b, args.x = $v))",
    "O (tool(b) & tool(c, args.x = $v))",
    "O (tool(b, args.x = $v) & tool(b, args.y = $w))",
    "O (tool(b, args.x = $v) -> tool(c))",
    "O O !tool(b, args.x = $v)",
    "H (tool(b) -> tool(b, args.x = $v))",
    "count(tool(b, args.x = $v, args.y > $v)) < 3",
    "count(!tool(b, args.x = $v)) < 3",
    "tool(b, args.x = $v) S tool(c, args.x = $v)",
    "!tool(b, args.x = $v) S tool(c)",
    "!tool(b, args.x = $v) S tool(c, args.x = $v, args.y = $w)",
    "!tool(b, args.x > $v) S tool(c, args.x = $v)",
    "tool(b) S !tool(c, args.x = $v)",
]


@pytest.mark.parametrize("text", NOT_KEPT)
def test_unbounded_formulas_are_refused(text: str) -> None:
    around = f"G (tool(a, args.x = $v, args.y = $w) -> ({text}) & seen(a, args.x = $v, args.y = $w))"
    assert {d.code for d in read(around).diagnostics} == {"variable-not-kept"}


def test_variables_are_read() -> None:
    formula = parse("tool(a, args.x = $v, args.y > $v)")
    assert isinstance(formula, m.ToolIs)
    assert [test.value for test in formula.tests] == [Variable("v"), Variable("v")]


def test_params_are_the_text_itself() -> None:
    text = "G (tool(a)\n  -> true)"
    assert read(text).rules[0].params == {"formula": text, "over": "events"}


BOMBS = {
    "parentheses": "(" * 19_000,
    "negations": "!" * 19_000,
    "arrows": "tool(a) -> " * 1_500,
    "bars": " | ".join(["tool(a)"] * 1_900),
    "lists": "tool(a, args.x = " + "[" * 19_000,
    "blanks": "tool(a) " + "\n" * 19_000,
    "long": "a" * 200_000,
    "names": "tool(" + " | ".join(["a"] * 4_000) + ")",
    "tests": "tool(a, " + ", ".join(["args.x = 1"] * 1_600) + ")",
    "segments": "tool(a, args" + ".x" * 9_000 + " = 1)",
    "backslashes": 'text("' + "\\" * 19_000,
    "quotes": "text('" + "'" * 19_001,
    "slashes": "text(/" + "\\/" * 9_000,
    "digits": "F[<=" + "9" * 19_000 + "] tool(a)",
}


READABLE = {"blanks", "names"}
"""long, and valid"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_formula_is_read_or_refused_quickly(name: str) -> None:
    started = time.process_time()
    ruleset = read(BOMBS[name])
    assert time.process_time() - started < 10
    assert bool(ruleset.diagnostics) is (name not in READABLE)
    assert all(len(d.message) < 500 for d in ruleset.diagnostics)


PIECES = [
    *(
        "tool(a)",
        "tool(",
        "result(b, args.x = $v",
        "args.x = 1",
        "seen[<=3](c)",
        "count(",
        "text(/x/)",
        '"',
        "'",
        "/",
        "\\",
    ),
    *("G", "F", "O", "H", "Y", "X", "U", "S", "W", "R", "!", "&", "|", "->", "<->", "(", ")", "[<=5m]", "[", "]", ","),
    *("$v", "= $v", "> 3", "true", "always", "tol", "é", "\n", "in [1, 2]", "matches /(/"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from([" ", ""]))
def test_any_pieces_are_read_or_refused(pieces: list[str], between: str) -> None:
    text = between.join(pieces)
    ruleset = read(text)
    assert len(ruleset.rules) == (1 if ruleset.ok else 0)
    for diagnostic in ruleset.diagnostics:
        assert "\n" not in diagnostic.message
        assert "\n" not in (diagnostic.help or "")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("G !tool_call:delete_all", "G !tool(delete_all)"),
        ("tool_call:a->F stop_reason:end_turn", "tool(a) -> F stop_reason(end_turn)"),
        ("(tool_call:mcp:x/y-z)", "tool(mcp:x/y-z)"),
        ("F text_contains:thanks", 'F text("thanks")'),
        ("F (text_contains:$5,000.00)", 'F text("$5,000.00")'),
        ('F text_contains:"thank you"', 'F text("thank you")'),
        ("!tool_call:b W tool_call:'a tool'", 'tool("b") -> false W tool("a tool")'),
        ("tool_call:a&tool_call:b|stop_reason:x", "tool(a) & tool(b) | stop_reason(x)"),
    ],
)
def test_an_atom_with_a_colon_is_another_spelling(text: str, same: str) -> None:
    assert _atoms(parse(text)) == _atoms(parse(same))


def _atoms(formula: Formula) -> list[object]:
    """The atoms without their text."""
    if isinstance(formula, m.ToolIs | m.StopsFor | m.Says):
        return [msgspec.structs.replace(formula, text="")]
    return [atom for child in m.children(formula) for atom in _atoms(child)]


@pytest.mark.parametrize("text", ["tool_call:", "G tool_call: a", "text_contains:)", "stop_reason:''", "tool_cal:a"])
def test_an_atom_with_a_colon_needs_its_value(text: str) -> None:
    assert [d.is_error for d in read(text).diagnostics] == [True]

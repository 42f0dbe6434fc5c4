"""Parses atoms, which are true or false at one position.

    atom   = ("tool" | "result") "(" names { "," test } ")"
           | "stop_reason" "(" name ")" | "agent" "(" names ")"
           | ("text" | "user") "(" (string | pattern) ")"
           | ("tool_call" | "stop_reason" | "text_contains") ":" (string | word)
    names  = name { "|" name }
    name   = string | letters, digits and _ - . : / * ? [ ]

Strings and patterns are in `scanner`. The form with a colon is that of other tools.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NoReturn, TypeAlias, cast

from bylaw.model.temporal import (
    AgentIs,
    Atom,
    ResultOf,
    Says,
    StopsFor,
    Test,
    TestOperator,
    TextHas,
    ToolIs,
    UserSays,
    Variable,
)
from bylaw.rules.messages import as_json, did_you_mean, nearest_choice, quote, synonyms
from bylaw.rules.readers import unquoted_number_help
from bylaw.rules.temporal.scanner import (
    PIECE,
    FormulaSpan,
    StopParsing,
    Token,
    ValueParser,
    take_pattern,
    take_string,
)
from bylaw.text.dates import moment_of

# -- tests -------------------------------------------------------------------------------------------------------------

# One test inside an atom: `args.amount >= 500`, `result.status = "ok"`, `error = false`, `args.order_id = $o`.
#
#     test    = path operator value | path ("present" | "missing")
#     path    = root { "." segment }
#     segment = "*" | key | '"' any text '"'      where "\." is a dot, "\*" a star and "\\" a backslash in a key
#
# What a test says of itself is checked here; what it says in its place, in `check`.


ORDERING = frozenset({">", ">=", "<", "<="})
ROOTS = ("args", "result", "error")
MAX_SEGMENTS = 64

_SEGMENT = r'(?:"(?:\\.|[^"\\])*"|\*|(?:[\w\-@:/+#%]|\\[.*\\])+)'
PATH = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})*")
_SEGMENTS = re.compile(_SEGMENT)
_OPERATOR = re.compile(r"not\s+in\b|[=!<>~≤≥≠]+|[^\W\d]\w*")
OPERATORS = ("=", "!=", ">", ">=", "<", "<=", "in", "not in", "contains", "matches", "present", "missing")
OPERATOR_SYNONYMS = synonyms(
    {
        "=": "== === is eq equals",
        "!=": "<> ≠ ne is_not",
        ">=": "=> ≥ gte ge",
        ">": "gt",
        "<=": "=< ≤ lte le",
        "<": "lt",
        "not in": "not_in nin",
        "contains": "has includes",
        "matches": "like ~ =~ regex",
        "present": "exists",
        "missing": "absent",
    }
)
_ROOT_SYNONYMS = synonyms(
    {
        "args": "arg argument arguments input params",
        "result": "output results content response",
        "error": "is_error errors failed",
    }
)


class TestParser(ValueParser):
    def take_test(self, comma: Token) -> Test:
        """The test that must come after this comma."""
        path = self.scanner.take(PATH)
        if path is None:
            help = "a test is written `args.amount >= 500`"
            self.report.stop(comma, message="expected a test after `,`", help=help)
        root, keys = self._split(path)
        op = self._operator(path)
        value_at = self.scanner.start()
        linear = None
        if op.text in ORDERING and (computed := self.take_linear()):
            value, linear = computed
        else:
            value = self._value(op)
        self._check_value(op, value, self.scanner.since(value_at))
        if root == "error":
            self._check_error(op, value, self.scanner.since(path.start))
        operator = cast(TestOperator, op.text)
        return self.keep(Test(root, keys, operator, value, self.written(path.start), linear), path.start)

    # paths

    def _split(self, path: Token) -> tuple[Literal["args", "result", "error"], tuple[str | None, ...]]:
        raws = _SEGMENTS.findall(path.text)
        if len(raws) > MAX_SEGMENTS:
            self.report.stop(path, code="bad-path", message=f"the path has more than {MAX_SEGMENTS} parts")
        keys = tuple(_key(raw) for raw in raws[1:])
        if raws[0] not in ROOTS:
            self._unknown_root(path, raws)
        if raws[0] == "error" and keys:
            message = "nothing stands below `error`"
            self.report.error(path, code="unknown-path", message=message, help="write `error = true`")
        return cast(Literal["args", "result", "error"], raws[0]), keys

    def _unknown_root(self, path: Token, raws: list[str]) -> None:
        match = nearest_choice(raws[0], ROOTS, _ROOT_SYNONYMS)
        meant = ".".join([match, *raws[1:]]) if match else ""
        self.report.error(
            path,
            code="unknown-path",
            message=f"no call or result has {quote(raws[0])}",
            help=f"did you mean {quote(meant)}?" if meant else f"write {quote(f'args.{path.text}')}, or `result.…`",
        )

    # operators and values

    def _operator(self, path: Token) -> Token:
        token = self.scanner.take(_OPERATOR)
        if token is None:
            help = "write `error = true`" if path.text == "error" else "such as `= 5`, `in [1, 2]` or `present`"
            self.report.stop(path, message=f"expected a comparison after {quote(path.text)}", help=help)
        text = " ".join(token.text.split())
        if text not in OPERATORS:
            self.report.stop(
                token,
                message=f"{quote(text)} compares nothing",
                help=did_you_mean(text, OPERATORS, OPERATOR_SYNONYMS),
            )
        return Token(token.start, token.end, text)

    def _value(self, op: Token) -> Any:
        if op.text in ("present", "missing"):
            return None
        if op.text != "matches":
            return self.take_value(op)
        pattern = take_pattern(self.scanner, self.report) or self._refuse_pattern(op)
        return f"(?i){pattern.text}" if pattern.ignore_case else pattern.text

    def _refuse_pattern(self, op: Token) -> NoReturn:
        at = self.scanner.start()
        value = self.take_value(op)
        spot = self.scanner.since(at)
        if isinstance(value, Variable):
            self._variable_operator(op, value, spot)
            raise StopParsing
        self.report.stop(
            spot, message="`matches` takes a pattern between slashes", help=f"write {quote(f'matches /{value}/')}"
        )

    def _check_value(self, op: Token, value: Any, spot: FormulaSpan) -> None:
        if isinstance(value, Variable):
            if op.text not in ("=", "!=", *ORDERING):
                self._variable_operator(op, value, spot)
        elif op.text in ORDERING and not _is_ordered(value):
            self.report.error(
                spot,
                code="wrong-type",
                message=f"`{op.text}` takes a number, a date or a variable, not {quote(self.scanner.written(spot))}",
                help=unquoted_number_help(value),
            )
        elif op.text in ("in", "not in"):
            self._check_list(op, value, spot)

    def _check_list(self, op: Token, value: Any, spot: FormulaSpan) -> None:
        if not isinstance(value, list):
            written = self.scanner.written(spot)
            message = f"`{op.text}` takes a list, not {quote(written)}"
            self.report.error(spot, code="wrong-type", message=message, help=f"write {quote(f'[{written}]')}")
        elif not value:
            message = f"the list is empty, so `{op.text}` {'never' if op.text == 'in' else 'always'} holds"
            self.report.problems.warn(code="empty-value", message=message, at=self.report.place(spot))

    def _variable_operator(self, op: Token, value: Variable, spot: FormulaSpan) -> None:
        self.report.error(
            spot,
            code="variable-comparison",
            message=f"`{op.text}` cannot compare with `${value.name}`",
            help="a variable stands after `=`, `!=`, `<`, `<=`, `>` or `>=`",
        )

    def _check_error(self, op: Token, value: Any, spot: FormulaSpan) -> None:
        if op.text not in ("=", "!=") or not isinstance(value, bool):
            self.report.error(
                spot,
                code="wrong-type",
                message=f"`error` is true or false, so {quote(self.scanner.written(spot))} says nothing",
                help="write `error = true` or `error = false`",
            )


def _is_ordered(value: Any) -> bool:
    if isinstance(value, str):
        return moment_of(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(raw: str) -> str | None:
    if raw == "*":
        return None
    if raw.startswith('"'):
        try:
            return str(json.loads(raw, strict=False))
        except ValueError:
            return raw[1:-1]
    return re.sub(r"\\(.)", r"\1", raw)


# -- atoms -------------------------------------------------------------------------------------------------------------


ATOMS = ("tool", "result", "stop_reason", "text", "user", "agent")

NAME = re.compile(r"(?:[\w\-.:/*?\]]|\[!?)+")
_COMPARISON = re.compile(r"[=!<>]+|not\s+in\b|(?:in|contains|matches|present|missing)\b")
_FORMS = {
    "tool": "`tool(name)` or `tool(name, args.path = value)`",
    "result": "`result(name)` or `result(name, result.path = value)`",
    "stop_reason": "`stop_reason(end_turn)`",
    "text": '`text("…")` or `text(/…/)`',
    "user": '`user("…")` or `user(/…/)`',
    "agent": "`agent(name)`",
    "seen": "`seen(name)` or `seen(name, result.path = value)`",
    "count": "`count(formula) > 3`",
}

_PREFIX = re.compile(r"(?:tool_call|stop_reason|text_contains):")
_PREFIXED_NAME = re.compile(r"(?:(?!->)(?:[\w\-.:/*?\]]|\[!?))+")
_PREFIXED_TEXT = re.compile(r"(?:(?!->)[^\s()&|\"'])+")

_Called: TypeAlias = tuple[tuple[str, ...], tuple[Test, ...]]


class AtomParser(TestParser):
    def take_atom(self, word: Token) -> Atom:
        """The atom whose first word was just taken."""
        return self.keep(self._inside(word, self.open(word)), word.start)

    def take_prefixed(self) -> Atom | None:
        """The atom in the form `tool_call:name` that comes next, if one does."""
        prefix = self.scanner.take(_PREFIX)
        if prefix is None:
            return None
        value = take_string(self.scanner, self.report)
        if value is None:
            form = _PREFIXED_TEXT if prefix.text == "text_contains:" else _PREFIXED_NAME
            word = self.scanner.peek(form)
            if word is None or word.start > prefix.end:
                meant = "`tool(name)`" if prefix.text == "tool_call:" else f"`{prefix.text}name`"
                help = f"write {meant}; a value with spaces needs quotes"
                self.report.stop(prefix, message=f"expected a value after `{prefix.text}`", help=help)
            self.scanner.take(form)
            value = word.text
        if not value:
            self.report.stop(self.scanner.since(prefix.start), code="empty-value", message="the value is empty")
        text = self.written(prefix.start)
        atoms: dict[str, Atom] = {
            "tool_call:": ToolIs((value,), (), text),
            "stop_reason:": StopsFor(value, text),
            "text_contains:": Says(TextHas(value), text),
        }
        return self.keep(atoms[prefix.text], prefix.start)

    def open(self, word: Token) -> Token:
        opening = self.scanner.take_one_of("(")
        if opening is None:
            message = f"{quote(word.text)} stands without parentheses"
            self.report.stop(word, message=message, help=f"write {_FORMS[word.text]}")
        return opening

    def close(self, word: Token, opening: Token) -> None:
        if self.scanner.take_one_of(")"):
            return
        token, last = self.scanner.peek(PIECE), self.scanner.last
        if token is None or last is None:
            message = f"this `(` of `{word.text}` is never closed"
            self.report.stop(opening, message=message, help="close it with `)`")
        wanted = "`,` or `)`" if word.text in ("tool", "result", "seen") else "`)`"
        help = "close it with `)`; a name with spaces needs quotes" if token.start > last.end else None
        self.report.stop(token, message=f"expected {wanted} before {quote(token.text)}", help=help)

    def result_inside(self, word: Token, opening: Token) -> ResultOf:
        """What stands in `seen(…)`: a name and tests, or `result(…)` around them."""
        start = self.scanner.start()
        inner = self.scanner.take(_RESULT)
        if inner:
            word, opening = Token(start, start + 6, "result"), Token(inner.end - 1, inner.end, "(")
        names, tests = self._called(word, opening)
        if inner:
            self.close(word, opening)
        text = self.written(start)
        return self.keep(ResultOf(names, tests, text if inner else f"result({text})"), start)

    def _inside(self, word: Token, opening: Token) -> Atom:
        if word.text in ("tool", "result"):
            names, tests = self._called(word, opening)
            text = self._end(word, opening)
            return ToolIs(names, tests, text) if word.text == "tool" else ResultOf(names, tests, text)
        if word.text in ("text", "user"):
            probe = self._probe(word, opening)
            text = self._end(word, opening)
            return Says(probe, text) if word.text == "text" else UserSays(probe, text)
        names = self._names(word, opening)
        spot = self.scanner.since(opening.end)
        if word.text == "stop_reason" and len(names) > 1:
            help = f"write {quote(' | '.join(f'stop_reason({name})' for name in names))}"
            self.report.error(spot, code="formula-syntax", message="`stop_reason` takes one reason", help=help)
        text = self._end(word, opening)
        return StopsFor(names[0], text) if word.text == "stop_reason" else AgentIs(names, text)

    def _end(self, word: Token, opening: Token) -> str:
        self.close(word, opening)
        return self.written(word.start)

    # what stands inside

    def _called(self, word: Token, opening: Token) -> _Called:
        names = self._names(word, opening)
        if comparison := self.scanner.peek(_COMPARISON):
            self.report.stop(
                comparison,
                message=f"{quote(comparison.text)} stands where the name of a tool ends",
                help=f"name the tool first: `{word.text}(*, args.path = value)` is any tool",
            )
        tests = []
        while comma := self.scanner.take_one_of(","):
            tests.append(self.take_test(comma))
        return names, tuple(tests)

    def _names(self, word: Token, opening: Token) -> tuple[str, ...]:
        names = [self._name(word, opening)]
        while bar := self.scanner.take_one_of("|", "||"):
            names.append(self._name(word, bar))
        return tuple(names)

    def _name(self, word: Token, after: Token) -> str:
        quoted = self._quoted("name")
        if quoted is not None:
            return quoted
        name = self.scanner.take(NAME)
        if name is None:
            any_tool = "; `*` is any tool" if word.text in ("tool", "result", "seen") else ""
            help = f"write {_FORMS[word.text]}{any_tool}"
            self.report.stop(
                FormulaSpan(word.start, after.end), message=f"expected a name after `{after.text}`", help=help
            )
        return name.text

    def _quoted(self, what: str) -> str | None:
        start = self.scanner.start()
        text = take_string(self.scanner, self.report)
        if text == "":
            self.report.stop(self.scanner.since(start), code="empty-value", message=f"the {what} is empty")
        return text

    def _probe(self, word: Token, opening: Token) -> TextHas:
        text = self._quoted("text")
        if text is not None:
            return TextHas(text)
        pattern = take_pattern(self.scanner, self.report)
        if pattern is None:
            bare = self.scanner.peek(NAME)
            help = f"write `{word.text}({as_json(bare.text)[1:-1]})`" if bare else f"write {_FORMS[word.text]}"
            self.report.stop(bare or opening, message=f"`{word.text}` takes text in quotes or a pattern", help=help)
        return pattern


_RESULT = re.compile(r"result\s*\(")

"""One test inside an atom: `args.amount >= 500`, `result.status = "ok"`, `error = false`, `args.order_id = $o`.

    test    = path operator value | path ("present" | "missing")
    path    = root { "." segment }
    segment = "*" | key | '"' any text '"'      where "\\." is a dot, "\\*" a star and "\\\\" a backslash in a key

What a test says of itself is checked here; what it says in its place, in `check`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NoReturn, cast

from bylaw.model.temporal import Test, TestOperator, Variable
from bylaw.rules.messages import did_you_mean, near, quote, synonyms
from bylaw.rules.readers import unquoted_number_help
from bylaw.rules.temporal.literals import Values, take_pattern
from bylaw.rules.temporal.scanner import Nodes, Report, Scanner, Spot, Stop, Token
from bylaw.text.dates import moment_of

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


class Tests:
    def __init__(self, scanner: Scanner, nodes: Nodes, report: Report) -> None:
        self.scanner = scanner
        self.nodes = nodes
        self.report = report
        self.values = Values(scanner, nodes, report)

    def take(self, comma: Token) -> Test:
        """The test that must come after this comma."""
        path = self.scanner.take(PATH)
        if path is None:
            help = "a test is written `args.amount >= 500`"
            self.report.stop(comma, message="expected a test after `,`", help=help)
        root, keys = self._split(path)
        op = self._operator(path)
        value_at = self.scanner.start()
        linear = None
        if op.text in ORDERING and (computed := self.values.take_linear()):
            value, linear = computed
        else:
            value = self._value(op)
        value_spot = self.scanner.since(value_at)
        self._check_value(op, value, value_spot)
        if root == "error":
            self._check_error(op, value, self.scanner.since(path.start))
        spot = self.scanner.since(path.start)
        operator = cast(TestOperator, op.text)
        return self.nodes.keep(Test(root, keys, operator, value, self.scanner.written(spot), linear), spot)

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
        match = near(raws[0], ROOTS, _ROOT_SYNONYMS)
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
            return self.values.take(op)
        pattern = take_pattern(self.scanner, self.report) or self._refuse_pattern(op)
        return f"(?i){pattern.text}" if pattern.ignore_case else pattern.text

    def _refuse_pattern(self, op: Token) -> NoReturn:
        at = self.scanner.start()
        value = self.values.take(op)
        spot = self.scanner.since(at)
        if isinstance(value, Variable):
            self._variable_operator(op, value, spot)
            raise Stop
        self.report.stop(
            spot, message="`matches` takes a pattern between slashes", help=f"write {quote(f'matches /{value}/')}"
        )

    def _check_value(self, op: Token, value: Any, spot: Spot) -> None:
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

    def _check_list(self, op: Token, value: Any, spot: Spot) -> None:
        if not isinstance(value, list):
            written = self.scanner.written(spot)
            message = f"`{op.text}` takes a list, not {quote(written)}"
            self.report.error(spot, code="wrong-type", message=message, help=f"write {quote(f'[{written}]')}")
        elif not value:
            message = f"the list is empty, so `{op.text}` {'never' if op.text == 'in' else 'always'} holds"
            self.report.problems.warn(code="empty-value", message=message, at=self.report.place(spot))

    def _variable_operator(self, op: Token, value: Variable, spot: Spot) -> None:
        self.report.error(
            spot,
            code="variable-comparison",
            message=f"`{op.text}` cannot compare with `${value.name}`",
            help="a variable stands after `=`, `!=`, `<`, `<=`, `>` or `>=`",
        )

    def _check_error(self, op: Token, value: Any, spot: Spot) -> None:
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

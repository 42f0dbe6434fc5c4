"""What was read → rules of the engine, written as they would stand in a rule file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.comply.prompt.model import Aspect

_PLAIN_NAME = re.compile(r"[\w\-.:/*?]+")

ArgTest: TypeAlias = "tuple[str, str, Any]"
"""parameter, operator, value; the value of `present` and `missing` is None"""


class Draft(Struct, frozen=True):
    """An engine rule without its id and severity."""

    kind: str
    params: dict[str, Any]
    aspect: Aspect


def atom(tools: Sequence[str], tests: Sequence[ArgTest] = (), *, of: str = "tool", joined: Sequence[str] = ()) -> str:
    """`tool(a | b, args.amount > 5, args.order_id = $order_id)`."""
    names = " | ".join(name if _PLAIN_NAME.fullmatch(name) else json.dumps(name) for name in tools)
    parts = [names, *(written_test(test) for test in tests), *(f"args.{_segment(p)} = ${_variable(p)}" for p in joined)]
    return f"{of}({', '.join(parts)})"


def written_test(test: ArgTest) -> str:
    param, operator, value = test
    if operator == "matches":
        return f"args.{_segment(param)} matches /{value}/i"
    path = ".".join(_segment(part) for part in param.split("."))
    return f"args.{path} {operator}" + ("" if value is None else f" {json.dumps(value, ensure_ascii=False)}")


def _segment(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else json.dumps(name)


def _variable(param: str) -> str:
    return re.sub(r"\W", "_", param)


def pattern(literal: str, *, before: str = "", after: str = "") -> str:
    """A pattern between slashes that finds this text, in any case; each blank fits any run of blanks."""
    inside = literal_pattern(literal).replace("/", r"\/")
    return f"/{before}{inside}{after}/i"


def literal_pattern(literal: str) -> str:
    """A backslash is written as its number: two of them before a letter are taken for a slip of the pen."""
    return r"\s+".join(re.escape(part).replace("\\\\", r"\x5c") for part in literal.split())


def formula(text: str, aspect: Aspect, *, over: str | None = None) -> Draft:
    return Draft("temporal", {"formula": text} | ({"over": over} if over else {}), aspect)


def never(tools: Sequence[str], tests: Sequence[ArgTest] = ()) -> Draft:
    if tests:
        return formula(f"G !{atom(tools, tests)}", "argument")
    return Draft("no_call", {"tool": tools[0] if len(tools) == 1 else list(tools)}, "call")


def before(
    first: Sequence[str], second: Sequence[str], *, tests: Sequence[ArgTest] = (), joined: Sequence[str] = ()
) -> Draft:
    """Every call of `second` (with these arguments) has a call of `first` before it, on the same `joined` arguments."""
    if not tests and not joined and "*" not in (*first, *second):
        return Draft("must_call_before", {"first": _one_or_list(first), "second": _one_or_list(second)}, "order")
    left, right = atom(second, tests, joined=joined), atom(first, joined=joined)
    return formula(f"G ({left} -> O {right})", "order")


def _one_or_list(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def not_after(later: Sequence[str], earlier: Sequence[str]) -> Draft:
    return formula(f"G ({atom(later)} -> !O {atom(earlier)})", "order")


def followed(trigger: str, by: Sequence[str]) -> Draft:
    """What triggers is at some point followed by a call."""
    return formula(f"G ({trigger} -> F {atom(by)})", "order")


def called(tools: Sequence[str]) -> Draft:
    return formula(f"F {atom(tools)}", "call")


def nothing_but(tools: Sequence[str]) -> Draft:
    return formula(f"G (tool(*) -> {atom(tools)})", "call")


def holds(tools: Sequence[str], tests: Sequence[ArgTest]) -> Draft:
    """Calls that give the parameter give it a value that passes."""
    given = atom(tools, [(tests[0][0].split(".")[0], "present", None)])
    return formula(f"G ({given} -> {atom(('*',), tests)})", "argument")


def longer_than(tools: Sequence[str], param: str, number: int) -> Draft:
    return formula(f"G !{atom(tools, [(f'{param}.{number}', 'present', None)])}", "argument")


def at_most(tools: Sequence[str], number: int, *, per_turn: bool = False, joined: Sequence[str] = ()) -> Draft:
    window = "[<=0t]" if per_turn else ""
    one = atom(tools, joined=joined)
    return formula(f"G ({one} -> count{window}({one}) <= {number})", "count")


def exactly(tools: Sequence[str], number: int) -> list[Draft]:
    if number == 1:
        return [Draft("must_call_once", {"tool": _one_or_list(tools)}, "count")]
    return [at_most(tools, number), at_least(tools, number)]


def at_least(tools: Sequence[str], number: int) -> Draft:
    return formula(f"F (count({atom(tools)}) >= {number})", "count")


class Field(Struct, frozen=True):
    """A field of results, the value wanted or not wanted, and the arguments that tie the result to the call."""

    name: str
    values: tuple[Any, ...]
    joined: tuple[str, ...]
    is_negated: bool = False

    def known(self) -> str:
        return atom(("*",), of="result", joined=self.joined)[:-1] + f", result.{_segment(self.name)} present)"

    def latest(self) -> str:
        """The latest result that holds the field holds one of these values."""
        wanted = f"in {json.dumps(list(self.values), ensure_ascii=False)}"
        value = atom(("*",), of="result", joined=self.joined)[:-1] + f", result.{_segment(self.name)} {wanted})"
        latest = f"(!{self.known()} S {value})"
        return f"!{latest}" if self.is_negated else latest


def never_in_state(tools: Sequence[str], field: Field) -> Draft:
    """Vacuous where the field never said so: then nothing was forbidden."""
    call = atom(tools, joined=field.joined)
    return formula(f"G (({call} & O {field.known()} & {field.latest()}) -> false)", "state")


def only_in_state(tools: Sequence[str], field: Field) -> Draft:
    """Judged only where the field was seen at all."""
    call = atom(tools, joined=field.joined)
    return formula(f"G (({call} & O {field.known()}) -> {field.latest()})", "state")

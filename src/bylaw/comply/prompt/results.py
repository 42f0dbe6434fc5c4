"""What results of other tools must have shown when the guarded call is made, as formulas.

`contrary` formulas say that the latest result contradicts the condition. Where a result cannot be compared (the tool
returns something else than the sentence is about), there is none, and `open` says so: that a thing was looked up does
not show that it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import ToolSpec
from bylaw.comply.prompt.comparisons import NOW, OPPOSITE, SWAPPED, Comparison, Sum, read_sum, subtract_days
from bylaw.comply.prompt.lookups import MENTION, OF_IT, Lookup, Lookups, find_lookups, shows_field
from bylaw.comply.prompt.returns import answer_of, described_fields, listed_fields
from bylaw.comply.prompt.vocabulary import Tools, any_case, stems, word_set

NOT_SHOWN = "results do not show whether it holds, only that it was looked up"
_NEGATIVE = any_case(r"\b(?:not|no|never|none|nor|without|cannot|isn't|hasn't|doesn't|free of)\b")
_EMPTY = any_case(r"\bempty\b")
_HOW_OFTEN = any_case(r"\b(?:once|twice|again|times|a (?:second|third) time)\b")
_MODAL = any_case(r"\b(?:must|should|shall|has to|have to|needs? to|can|may|is|are)\b")
_OR = any_case(r"\bor\b")
_TRUTH = any_case(r"\b(?:set to|of|is|be|to|as|equals?|=)\s+[\"']?(true|false|yes|no)\b(?!\s+[a-z])")
_NULL = 'result in ["None", "null", ""]'
_ONE_OF = any_case(r"\b(?:must|should|has to|is|are) (?:be |have )?(?:either |one of |any of |in )+(?P<values>.+)$")
_IS_VALUE = any_case(
    r"\b(?:must|should|has to) (?:be|equal|have (?:the )?(?:status|state|value)(?: of)?|read)\s+(?P<values>[\"'`].+)$"
)
_HAS_VALUE = any_case(
    r"\b(?:must|should|has to) have (?:the |an? )?[\"'`]?\w+[\"'`]? (?:of|as|set to|equal to)\s+(?P<values>[\"'`].+)$"
)
_VALUE = re.compile(r"[\"'`\u201c\u2018]([^\"'`\u201d\u2019]{1,40})[\"'`\u201d\u2019]")
_PREDICATE = any_case(r"\b(?:be|been|is|are|was)\s+(?:already |currently |still |an? )?(?P<word>[a-z]{4,})\b")
_STATES = word_set(
    """delivered cancelled canceled completed closed refunded returned paid expired active inactive pending open shipped
    approved confirmed suspended frozen locked processing valid invalid verified unlocked enabled disabled"""
)
"""values of a `status`; `placed` is none, since an order that was delivered was placed too"""
_FINAL = _STATES - {"shipped", "approved", "confirmed", "paid", "verified", "completed"}
"""states that no other state implies: `must have been shipped` holds for an order that was delivered"""
_EXPIRY = sorted(
    word_set("expiration_date expiry_date expires expires_at expires_on expiration expiry valid_until end_date end")
)
_FILLERS = frozenset(
    stems("must valid value amount total number current user date time day today have has had end ends expiration")
)
_AGE = any_case(r"\byears? old\b|\bof age\b|\b(?:older|younger) than\b")
_DATED = any_case(r"\b(?:dates?|times?|days?|expir\w*|ends?|deadline|due)\b|_date\b|_time\b")
_LEAST_LIKENESS = 0.6
"""of a tool that was not found by its whole name, for its `false` to count as the contrary"""
_MOST_PATHS = 3
"""fields that are tried for a value of an object whose fields are not known"""
_LONGEST_VALUE = 3
"""words of a phrase that can still be one value; `credit limit minus credit balance` has to be computed"""


class RequiredResult(Struct, frozen=True):
    """The tests that results must pass."""

    contrary: tuple[str, ...] = ()
    """formulas at the call: each says that the latest result of one tool contradicts the condition"""
    names: tuple[str, ...] = ()
    """arguments of the call that they use beside the keys"""
    later: tuple[str, ...] = ()
    """whole formulas, for two results of which either may come last"""
    more: Lookups | None = None
    """other tools whose results are needed too"""
    is_likely: bool = False
    """by the words of a status"""
    open: str | None = None


class ResultReader:
    """Reads sentences about results of these tools at a call of the action."""

    def __init__(self, lookups: Lookups, action: ToolSpec, tools: Tools) -> None:
        self._lookups = lookups
        self._action = action
        self._tools = tools

    def read(self, text: str, comparison: Comparison | None) -> RequiredResult:
        if comparison is None:
            shown = self._read_values(text) or self._read_flag(text) or self._read_fact(text)
        elif comparison.is_date:
            shown = self._read_date(text, comparison)
        else:
            shown = self._read_comparison(text, comparison)
        return self._add_missing_fields(shown)

    def _add_missing_fields(self, shown: RequiredResult) -> RequiredResult:
        """A record that has none of the fields that are looked at shows nothing: the rule is unknown there.

        A record cannot be compared with a number, so `result < 0` is unknown for it; for a single value it does not
        matter, since a path into it is unknown already.
        """
        more = []
        for lookup in self._lookups.any_of if shown.contrary else ():
            call = arguments(lookup.tool, lookup.same)
            tested = [test for one in shown.contrary for test in re.findall(rf"result\({re.escape(call)}, (.*?) ", one)]
            fields = dict.fromkeys(test for test in tested if re.fullmatch(r"result\.[a-zA-Z_]\w*", test))
            if fields and "result" not in tested and not self._is_plain(lookup):
                missing = ", ".join(f"{field} missing" for field in fields)
                more.append(f"(!result({call}) S result({call}, {missing}, result < 0))")
        return replace(shown, contrary=(*shown.contrary, *more))

    def _quoted_fields(self, text: str) -> list[str]:
        """The quoted subject of the sentence that is no argument: a field of a record."""
        before = _MODAL.split(text, maxsplit=1)[0]
        params = {*self._action.params, *(own for lookup in self._lookups.any_of for own, _ in lookup.same)}
        return [name for name in MENTION.findall(before) if name not in params and name.isidentifier()]

    def _is_plain(self, lookup: Lookup) -> bool:
        """Whether results are known to be single values: the word `balance` in a description says little."""
        tool = self._tools.specs[lookup.tool]
        return tool.answer not in ("", "object") or (not tool.answer and answer_of(tool) in ("boolean", "list"))

    # -- facts ---------------------------------------------------------------------------------------------------------

    def _read_flag(self, text: str) -> RequiredResult | None:
        """`the policy's "is_active" must be true`."""
        literal, fields = _TRUTH.search(text), self._quoted_fields(text)
        if literal is None or len(fields) != 1 or any(self._is_plain(lookup) for lookup in self._lookups.any_of):
            return None
        is_wanted = (literal[1].lower() in ("true", "yes")) != bool(_NEGATIVE.search(text[: literal.start(1)]))
        contrary = "false" if is_wanted else "true"
        return RequiredResult(tuple(latest(one, [f"result.{fields[0]} = {contrary}"]) for one in self._lookups.any_of))

    def _read_fact(self, text: str) -> RequiredResult:
        """`the account must exist`: a tool that shows it did not answer the contrary."""
        if _HOW_OFTEN.search(text):
            return RequiredResult(open=NOT_SHOWN)
        is_negative = bool(_NEGATIVE.search(text))
        if literal := _TRUTH.search(text):
            is_negative ^= literal[1].lower() in ("false", "no")
        found = [self._contrary_of_fact(lookup, text, is_negative) for lookup in self._lookups.any_of]
        tests = [one for one in found if one]
        by_status = [one for lookup in self._lookups.any_of if (one := self._status(lookup, text, is_negative))]
        if not tests and not by_status:
            return RequiredResult(open=NOT_SHOWN)
        is_whole = all(found) or bool(by_status)
        return RequiredResult((*tests, *by_status), is_likely=bool(by_status), open=None if is_whole else NOT_SHOWN)

    def _contrary_of_fact(self, lookup: Lookup, text: str, is_negative: bool) -> str | None:
        tool = self._tools.specs[lookup.tool]
        match answer_of(tool):
            case "boolean":
                if not self._lookups.is_named and (is_negative or self._lookups.likeness < _LEAST_LIKENESS):
                    return None
                denies = not {"not", "no", "non"}.isdisjoint(tool.name.split("_"))
                return latest(lookup, ["result = true" if is_negative != denies else "result = false"])
            case "list" if _EMPTY.search(text):
                return latest(lookup, ["result = []"] if is_negative else ["result.0 present"])
            case "list":
                if MENTION.search(text) and not self._is_about_keys(text):
                    return None
                return latest(lookup, ["result.0 present" if is_negative else "result = []"])
            case "number":
                return latest(lookup, ["result > 0"]) if is_negative else None
        if is_negative:
            paths = [f"{path} > 0" for path in self._paths(text, lookup)]
            return latest(lookup, paths) if self._is_about_keys(text) else None
        word = _PREDICATE.search(text)
        fields = [word["word"].lower(), f"is_{word['word'].lower()}"] if word and not _OR.search(text) else []
        if answer_of(tool) == "object" or not self._lookups.is_named:
            return latest(lookup, [f"result.{field} = false" for field in fields]) if fields else None
        return latest(lookup, [_NULL] if answer_of(tool) == "text" else ["result = false", _NULL])

    def _status(self, lookup: Lookup, text: str, is_negative: bool) -> str | None:
        """`the order must have been delivered`: its `status` is another one, or with `not` that one."""
        word = _PREDICATE.search(text)
        state = word["word"].lower() if word else ""
        if state not in _FINAL or answer_of(self._tools.specs[lookup.tool]) in ("boolean", "number", "list"):
            return None
        call = arguments(lookup.tool, lookup.same)
        fields = [f"result.{field}" for field in ("status", "state")]
        if is_negative:
            return latest(lookup, [f"{field} matches /^{state[:-1]}/i" for field in fields])
        states = state[:-1]
        if word and _OR.search(text):  # any word of the list is fine
            states = "|".join(one[:-1] for one in re.findall(r"[a-z]{4,}", text[word.start("word") :].lower()))
        differs = [
            f"(result({call}, {field} present) & !result({call}, {field} matches /{states}/i))" for field in fields
        ]
        return f"(!result({call}) S ({' | '.join(differs)}))"

    def _read_values(self, text: str) -> RequiredResult | None:
        """`the credit status must be either "good" or "excellent"`."""
        found = _IS_VALUE.search(text) or _HAS_VALUE.search(text) or _ONE_OF.search(text)
        values = _VALUE.findall(found["values"]) if found else []
        if (
            found is None
            or not values
            or _NEGATIVE.search(text)
            or any(value in self._action.params for value in values)
        ):
            return None
        pattern = "|".join(re.escape(value) for value in values).replace("/", r"\/")
        contrary = []
        for lookup in self._lookups.any_of:
            call = arguments(lookup.tool, lookup.same)
            kind = answer_of(self._tools.specs[lookup.tool])
            paths = self._paths(text[: found.start("values")], lookup)
            differs = [
                f"(result({call}, {path} present) & !result({call}, {path} matches /^(?:{pattern})$/i))"
                for path in paths
            ]
            if differs and kind not in ("boolean", "number", "list"):
                contrary.append(f"(!result({call}) S ({' | '.join(differs)}))")
        return RequiredResult(tuple(contrary), open=None if contrary else NOT_SHOWN)

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _read_comparison(self, text: str, comparison: Comparison) -> RequiredResult:
        """`the balance must be at least 300`, or at least the value of another argument, or of another result."""
        contrary = OPPOSITE[comparison.sign]
        if comparison.number is not None:
            if (total := read_sum(comparison.left)) is not None:
                return self._read_sum(total, contrary, comparison.number)
            tests = [self._contrary_of_number(lookup, text, comparison) for lookup in self._lookups.any_of]
            return _require_tests(tests)
        if comparison.sign in ("=", "!="):
            return RequiredResult(open=NOT_SHOWN)
        if (name := self._argument_in(comparison.right)) is not None:
            share = "" if comparison.share is None else f"{comparison.share:g} * "
            return _require_tests(self._compare_values(comparison.left, f"{contrary} {share}${name}"), name)
        name = self._argument_in(comparison.left)
        if name is not None and (comparison.share is not None or 0 < len(stems(comparison.right)) <= _LONGEST_VALUE):
            test = f"{SWAPPED[contrary]} ${name}" + (f" / {comparison.share:g}" if comparison.share else "")
            return _require_tests(self._compare_values(comparison.right, test), name)
        if comparison.share is None and (other := self._find_other_tool(comparison.right)):
            return self._two_results(comparison.left, contrary, other)
        return RequiredResult(open=NOT_SHOWN)

    def _contrary_of_number(self, lookup: Lookup, text: str, comparison: Comparison) -> str | None:
        number, contrary = comparison.number, OPPOSITE[comparison.sign]
        match answer_of(self._tools.specs[lookup.tool]):
            case "boolean" if comparison.wants_some or comparison.wants_none:
                return latest(lookup, ["result = false" if comparison.wants_some else "result = true"])
            case "boolean":
                return None
            case "list" if isinstance(number, int) and contrary in ("<", "<=", ">", ">=") and number >= 0:
                index = number - 1 if contrary in ("<", ">=") else number
                call = arguments(lookup.tool, lookup.same)
                if index < 0:
                    return None
                if contrary in (">", ">="):
                    return latest(lookup, [f"result.{index} present"])
                return f"(!result({call}) S (result({call}) & !result({call}, result.{index} present)))"
        signs = ("<", ">") if contrary == "!=" else (contrary,)  # `!=` is also true of a field that is missing
        return latest(lookup, [f"{path} {sign} {number}" for path in self._paths(text, lookup) for sign in signs])

    def _read_sum(self, total: Sum, contrary: str, number: float) -> RequiredResult:
        """`the sum of A and B must not exceed 18`: A and B are results, or one is an argument."""
        sign = "+" if total.is_difference else "-"
        for own, other in ((total.first, total.second), (total.second, total.first)):
            name = self._argument_in(other)
            if name is not None and not (total.is_difference and own is total.second):
                if self._action.params.get(name, {}).get("type") not in ("number", "integer", None):
                    return RequiredResult(open=NOT_SHOWN)
                return _require_tests(self._compare_values(own, f"{contrary} {number:g} {sign} ${name}"), name)
        shown = self._find_other_tool(total.second)
        if shown is None:
            return RequiredResult(open=NOT_SHOWN)
        if total.is_difference:
            return self._two_results(total.first, contrary, shown, f"{{}} + {number:g}", f"{{}} - {number:g}")
        return self._two_results(total.first, contrary, shown, f"{number:g} - {{}}", None)

    def _find_other_tool(self, text: str) -> Lookup | None:
        """The tool that shows another value, by all words of its name."""
        found = find_lookups(text, self._action.name, self._tools)
        if found is None or not found.is_named or len(found.any_of) != 1:
            return None
        one = found.any_of[0]
        is_own = any(lookup.tool == one.tool for lookup in self._lookups.any_of)
        is_value = answer_of(self._tools.specs[one.tool]) not in ("boolean", "list", "object")
        return one if is_value and not is_own else None

    def _two_results(
        self, text: str, contrary: str, other: Lookup, forward: str = "{}", backward: str | None = "{}"
    ) -> RequiredResult:
        """The latest of one tool against the latest of another: `backward` is what the other is compared with.

        A formula at the call sees the case in which the first tool answered last; one that looks ahead from the answer
        of the first tool sees the other case.
        """
        test = f"{contrary} {forward}" if backward is None else f"{SWAPPED[contrary]} {backward}"
        that = f"result({arguments(other.tool, other.same)})"
        seen, later = list[str](), list[str]()
        for lookup in self._lookups.any_of:
            if not {name for _, name in other.same} <= {name for _, name in lookup.same}:
                continue  # the engine would have to store what it saw for every pair of keys
            this = arguments(lookup.tool, lookup.same)
            call = arguments(self._action.name, tuple((name, name) for _, name in lookup.same))
            for number, path in enumerate(self._values(text, lookup), len(seen)):
                value = f"$shown{number or ''}"
                fixed = f"result({this}, {path} = {value})"
                against = f"result({arguments(other.tool, other.same)}, result {test.format(value)})"
                kept = f"(!{that} | {against}) & !result({this})"
                seen.append(f"(!result({this}) S ({fixed} & (!{that} S {against})))")
                later.append(f"G ({fixed} -> !((!result({this}) | {fixed}) U ({against} & (({kept}) U tool({call})))))")
        more = None if other.tool in self._tools.clocks else Lookups((other,), self._lookups.tier)
        return RequiredResult(tuple(seen), later=tuple(later), more=more, open=None if seen else NOT_SHOWN)

    def _values(self, text: str, lookup: Lookup) -> list[str]:
        """Where one value may be that another result is compared with."""
        paths = self._date_paths(text, lookup) if _DATED.search(text) else self._paths(text, lookup)
        tool = self._tools.specs[lookup.tool]
        if answer_of(tool) != "object":
            return paths[:1]
        return [path for path in paths if shows_field(tool, path.removeprefix("result."))] or paths[:_MOST_PATHS]

    # -- dates ---------------------------------------------------------------------------------------------------------

    def _read_date(self, text: str, comparison: Comparison) -> RequiredResult:
        """`the insurance must end on or after today's date`, in either order."""
        left, right, contrary = comparison.left, comparison.right, OPPOSITE[comparison.sign]
        if not NOW.search(right) and NOW.search(left):
            left, right, contrary = right, left, SWAPPED[contrary]
        name = self._argument_in(right)
        if name is None and (name := self._argument_in(left)) is not None:
            left, right, contrary = right, left, SWAPPED[contrary]
        if name is not None:
            return _require_tests(self._compare_dates(left, contrary, f"${name}"), name)
        if not NOW.search(right):
            other = self._find_other_tool(right)
            return self._two_results(left, contrary, other) if other else RequiredResult(open=NOT_SHOWN)
        if self._tools.today is not None:
            return _require_tests(
                self._compare_dates(left, contrary, f'"{subtract_days(self._tools.today, comparison.days)}"')
            )
        if len(self._tools.clocks) != 1 or not all(self._date_paths(left, lookup) for lookup in self._lookups.any_of):
            return RequiredResult(open="the day of the talk is not known")
        clock = Lookup(self._tools.clocks[0], ())
        ago = f" + {comparison.days}" if comparison.days else ""
        found = self._two_results(left, contrary, clock, backward="{}" + ago)
        null = [latest(lookup, [_NULL]) for lookup in self._lookups.any_of if contrary in ("<", "<=")]
        return RequiredResult((*found.contrary, *null), later=found.later)

    def _compare_dates(self, text: str, contrary: str, value: str) -> list[str | None]:
        found: list[str | None] = []
        for lookup in self._lookups.any_of:
            tests = [f"{path} {contrary} {value}" for path in self._date_paths(text, lookup)]
            is_record = answer_of(self._tools.specs[lookup.tool]) == "object"  # which cannot be compared with a text
            tests += [_NULL] if tests and contrary in ("<", "<=") and not is_record else []
            found.append(latest(lookup, tests) if tests else None)
        return found

    def _date_paths(self, text: str, lookup: Lookup) -> list[str]:
        kind = answer_of(self._tools.specs[lookup.tool])
        if kind in ("boolean", "number", "list"):
            return []
        words = [
            word for word in re.findall(r"[a-z]+", text.lower()) if not set(stems(word)) <= _FILLERS and stems(word)
        ]
        quoted = [name for name in MENTION.findall(text) if name not in self._action.params]
        fields = quoted or [f"{word}{end}" for word in words for end in ("_date", "_time", "_at", "")]
        if not quoted and re.search(r"expir|\bends?\b", text):
            fields = [*_EXPIRY, *fields]
        return [*(["result"] if kind != "object" else []), *(f"result.{field}" for field in dict.fromkeys(fields))]

    # -- paths ---------------------------------------------------------------------------------------------------------

    def _compare_values(self, text: str, test: str) -> list[str | None]:
        """The latest value that the text speaks of passes the test."""
        return [
            latest(lookup, [f"{path} {test}" for path in self._paths(text, lookup)])
            if answer_of(self._tools.specs[lookup.tool]) not in ("boolean", "list")
            else None
            for lookup in self._lookups.any_of
        ]

    def _is_about_keys(self, text: str) -> bool:
        """Whether the only things that the sentence names are the keys that the tools are called with."""
        named = {name for name in MENTION.findall(text) if name in self._action.params}
        return all({name for _, name in lookup.same} == named for lookup in self._lookups.any_of)

    def _argument_in(self, text: str) -> str | None:
        """An argument of the call that the text quotes and that is not only a key."""
        keys = {name for lookup in self._lookups.any_of for pair in lookup.same for name in pair}
        quoted = (one for one in MENTION.finditer(text) if one[1] in self._action.params and one[1] not in keys)
        return next((one[1] for one in quoted if not OF_IT.search(text[: one.start()])), None)

    def _paths(self, text: str, lookup: Lookup) -> list[str]:
        """Where in a tool's result the value may be: the whole of it, or a field.

        Fields are those that the sentence quotes, pairs of words that stand together, and in results that are objects
        also single words.
        """
        tool = self._tools.specs[lookup.tool]
        kind = answer_of(tool)
        if (quoted := self._quoted_fields(text)) and not self._is_plain(lookup):
            return [f"result.{field}" for field in quoted]
        if kind in ("number", "text", "boolean"):
            return ["result"]
        params = {*tool.params, *self._action.params}
        words = re.findall(r"[a-z]+|[,.;]", re.sub(r"['\u2019]s\b", "", MENTION.sub(" , ", text)).lower())
        own = [word for word in words if word.isalpha() and stems(word) and not set(stems(word)) <= _FILLERS]
        pairs = [f"{left}_{right}" for left, right in pairwise(words) if left in own and right in own]
        said = frozenset(stems(text))
        shown = (*tool.fields, *listed_fields(tool))
        named = [field for field in shown if said.issuperset(stems(field)) and re.fullmatch(r"\w+", field)]
        age = ["age"] if _AGE.search(text) else []
        fields = dict.fromkeys((*MENTION.findall(text), *named, *described_fields(tool, said), *pairs, *own, *age))
        found = [f"result.{field}" for field in fields if field not in params]
        return found if kind == "object" else ["result", *found]


def _require_tests(tests: Sequence[str | None], *names: str) -> RequiredResult:
    found = tuple(test for test in tests if test)
    return RequiredResult(found, names, open=None if found and len(found) == len(tests) else NOT_SHOWN)


def latest(lookup: Lookup, tests: Sequence[str]) -> str:
    """The latest result for these arguments passes one of the tests."""
    call = arguments(lookup.tool, lookup.same)
    passed = " | ".join(f"result({call}, {test})" for test in tests)
    return f"(!result({call}) S ({passed}))"


def arguments(tool: str, same: tuple[tuple[str, str], ...]) -> str:
    return ", ".join((tool, *(f"args.{own} = ${name}" for own, name in same)))

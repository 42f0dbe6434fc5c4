"""`when` of a guard rule → a Predicate.

    group     = mapping of predicates, all of which must hold
    predicate = "all_of": [group, …] | "any_of": [group, …] | "not": group
              | "tool_name_in": names | "tool_name_regex": pattern
              | "arg_…": argument or a list of them | "call_count_…": counter or a list of them

A group with nothing in it makes the whole rule match nothing: what is left after an edit must not match everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from bylaw.model.predicate import AllOf, AnyOf, Nothing, NotOf, Predicate, ToolIn, ToolMatches
from bylaw.rules.fields import EXTENSION, Fields
from bylaw.rules.guard.arguments import OPERATORS, read_argument
from bylaw.rules.guard.counters import OVER, read_counter
from bylaw.rules.guard.words import PREDICATE_WORDS
from bylaw.rules.located import Entry, ListNode, Located, MapNode, Node
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_text, read_texts, report_wrong_type
from bylaw.rules.regexes import check_pattern
from bylaw.rules.words import quote

MAX_DEPTH = 32
GROUPS = ("all_of", "any_of", "not")
NAMES = ("tool_name_in", "tool_name_regex", *OPERATORS, *OVER, *GROUPS)

_SHOWN = ("tool_name_in", "tool_name_regex", "arg_…", "call_count_…", *GROUPS)


class Leaf(Struct, frozen=True):
    """One predicate that holds no others, and where it stands."""

    predicate: Predicate
    at: Located
    negated: bool
    """under an odd number of `not`"""


class When(Struct, frozen=True):
    predicate: Predicate
    leaves: tuple[Leaf, ...] = ()
    """in the order they are written"""


def read_when(entry: Entry, problems: Problems) -> When | None:
    """The predicate of a whole `when`; None where any of it is unusable."""
    reader = _Reader(problems)
    predicate = reader.group(entry.value, "when", entry.key, depth=0, negated=False)
    if predicate is None:
        return None
    return When(Nothing()) if reader.empty else When(predicate, tuple(reader.leaves))


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.leaves: list[Leaf] = []
        self.empty = False

    def group(self, node: Node, name: str, at: Located, *, depth: int, negated: bool) -> Predicate | None:
        """A mapping of predicates. `at` is where to point when there is nothing in it."""
        if depth > MAX_DEPTH:
            message = f"the predicates are nested more than {MAX_DEPTH} levels deep"
            self.problems.error(code="too-deep", message=message, at=at)
            return None
        if not isinstance(node, MapNode):
            self._not_a_group(node, name)
            return None
        entries = {key: entry for key, entry in node.entries.items() if not key.startswith(EXTENSION)}
        if not entries:
            return self._nothing(name, at)
        read = [self._entry(key, entry, depth, negated) for key, entry in entries.items() if key in NAMES]
        self._report_unknown(node, name)
        return _joined(read, AllOf) if len(read) == len(entries) else None

    def _entry(self, key: str, entry: Entry, depth: int, negated: bool) -> Predicate | None:
        if key == "not":
            inner = self.group(entry.value, key, entry.key, depth=depth + 1, negated=not negated)
            return inner and NotOf(inner)
        if key in GROUPS:
            return self._groups(key, entry, depth, negated)
        if key in OPERATORS:
            return self._each(key, entry, negated, read_argument)
        if key in OVER:
            return self._each(key, entry, negated, read_counter)
        return self._leaf(self._tool(key, entry.value), entry.key, negated)

    def _groups(self, key: str, entry: Entry, depth: int, negated: bool) -> Predicate | None:
        node = entry.value
        if not isinstance(node, ListNode):
            help = f"write it as `{key}: [{{…}}, {{…}}]`, or start each with `- `"
            report_wrong_type(node, quote(key), "a list of mappings", self.problems, help=help)
            return None
        if not node.items:
            return self._nothing(key, entry.key)
        inner = [self.group(item, key, item, depth=depth + 1, negated=negated) for item in node.items]
        return _joined(inner, AllOf if key == "all_of" else AnyOf)

    def _each(
        self, key: str, entry: Entry, negated: bool, read: Callable[[str, Node, Problems], Predicate | None]
    ) -> Predicate | None:
        """One predicate, or several of one name: a mapping cannot hold a key twice."""
        node = entry.value
        if not isinstance(node, ListNode):
            return self._leaf(read(key, node, self.problems), entry.key, negated)
        if not node.items:
            return self._nothing(key, entry.key)
        return _joined([self._leaf(read(key, item, self.problems), item, negated) for item in node.items], AllOf)

    def _tool(self, key: str, node: Node) -> Predicate | None:
        if key == "tool_name_in":
            names = read_texts(node, key, self.problems)
            return None if names is None else ToolIn(names)
        pattern = read_text(node, key, self.problems)
        return ToolMatches(pattern) if pattern is not None and check_pattern(pattern, node, self.problems) else None

    def _leaf(self, predicate: Predicate | None, at: Located, negated: bool) -> Predicate | None:
        if predicate is not None:
            self.leaves.append(Leaf(predicate, at, negated))
        return predicate

    # what is wrong

    def _nothing(self, name: str, at: Located) -> Predicate:
        self.empty = True
        self.problems.warn(
            code="matches-nothing",
            message=f"{quote(name)} is empty here, so the rule matches nothing",
            at=at,
            help="say what the rule is to match, or remove the rule",
        )
        return Nothing()

    def _not_a_group(self, node: Node, name: str) -> None:
        help = "write it as `{tool_name_in: […], arg_gt: {path: …, value: …}}`"
        if isinstance(node, ListNode):
            help = "join what it lists under `all_of:` or `any_of:`"
        report_wrong_type(node, quote(name), "a mapping of predicates", self.problems, help=help)

    def _report_unknown(self, node: MapNode, name: str) -> None:
        fields = Fields(node, self.problems, what=quote(name), noun="predicate", code="unknown-predicate")
        for key in NAMES:
            fields.take(key)
        if {"path", "op"} <= node.entries.keys():
            fields.take("path"), fields.take("op"), fields.take("value")
            self._report_condition(node)
        fields.finish(synonyms=PREDICATE_WORDS, shown=_SHOWN)

    def _report_condition(self, node: MapNode) -> None:
        self.problems.error(
            code="unknown-predicate",
            message="this is a condition on a turn, which a guard rule does not take",
            at=node.first_key,
            help="write it as `arg_gt: {path: amount, value: 500}`: the path starts at the call's arguments",
        )


def _joined(read: Sequence[Predicate | None], join: type[AllOf] | type[AnyOf]) -> Predicate | None:
    good = tuple(predicate for predicate in read if predicate is not None)
    if len(good) != len(read):
        return None
    return good[0] if len(good) == 1 else join(good)

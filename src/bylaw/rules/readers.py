"""Located nodes as typed values: the one reader of rules, guards, contracts and parameters.

A reader of one value reports an unusable value and returns None, which is never a valid value. `Fields` reads a
mapping whose keys are known: take the expected ones, then `finish` reports what is missing and what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from bylaw.rules.messages import as_json, did_you_mean, listing, nearest_choice, quote
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, Problems, ScalarNode, plain

EXTENSION = "x-"
"""keys that begin so are the user's own and never read"""

_TYPOS = 20
"""more unknown keys than this in one mapping are no typing errors"""

_T = TypeVar("_T")
_NOTHING: Mapping[str, str] = {}


class Fields:
    """One mapping while it is read. `what` names it in messages: "a rule", "a condition"; `noun` names its keys."""

    def __init__(
        self, node: MapNode, problems: Problems, *, what: str, noun: str = "key", code: str = "unknown-key"
    ) -> None:
        self.node = node
        self.problems = problems
        self.what = what
        self.noun = noun
        self.code = code
        self._left = {key: entry for key, entry in node.entries.items() if not key.startswith(EXTENSION)}
        self._known: dict[str, None] = {}
        self._missing: dict[tuple[str, ...], str | None] = {}

    def entry(self, key: str) -> Entry | None:
        """Take the key and its value, if given."""
        self._known[key] = None
        return self._left.pop(key, None)

    def take(self, key: str) -> Node | None:
        """Take the value of a key that may be absent."""
        entry = self.entry(key)
        return entry.value if entry else None

    def require(self, key: str, *, help: str | None = None) -> Node | None:
        """Take the value of a key that must be there."""
        node = self.take(key)
        if node is None:
            self.missing((key,), help=help)
        return node

    def take_one_of(self, keys: tuple[str, ...]) -> Entry | None:
        """Take the entry of a key that has several names. More than one of them is an error, at the later ones."""
        found = [entry for key in keys if (entry := self.entry(key))]
        found.sort(key=lambda entry: entry.key.start)
        for extra in found[1:]:
            names = quote(str(extra.key.value)), quote(str(found[0].key.value))
            self.problems.error(
                code="duplicate-parameter",
                message=f"{names[0]} and {names[1]} give the same parameter",
                at=extra.key,
                help="keep one of them",
                related=(self.problems.related(found[0].key, "first given here"),),
            )
        return found[0] if found else None

    def has_one_of(self, keys: tuple[str, ...]) -> bool:
        """Whether the mapping has exactly one of these keys."""
        return sum(key in self.node.entries for key in keys) == 1

    def read(self, key: str, read: Callable[[Node, str, Problems], _T | None], default: _T) -> _T | None:
        """Take and read the value of a key: `default` where it is absent, None where it is unusable."""
        node = self.take(key)
        return default if node is None else read(node, key, self.problems)

    def missing(self, keys: tuple[str, ...], *, help: str | None = None) -> None:
        """Note that one of `keys` had to be there."""
        self._missing[keys] = help

    def finish(
        self,
        *,
        synonyms: Mapping[str, str] = _NOTHING,
        hints: Mapping[str, str] = _NOTHING,
        shown: Iterable[str] | None = None,
        accepted: Iterable[str] = (),
    ) -> None:
        """Report what is missing and every key that was not taken. `accepted` keys are read elsewhere, or by nobody.

        `hints` are help lines for keys that belong elsewhere; `shown` are the choices named where none is near. A key
        that is missing because it was misspelt is reported once, as unknown.
        """
        for key in accepted:
            self.take(key)
        meant = {nearest_choice(key, self._known, synonyms) for key in islice(self._left, _TYPOS) if key not in hints}
        for keys, help in self._missing.items():
            if meant.isdisjoint(keys):
                message = f"{self.what} needs the {self.noun} {listing(keys, last='or')}"
                self.problems.error(code="missing-key", message=message, at=self.node.first_key, help=help)
        for key, entry in self._left.items():
            choices = self._known if nearest_choice(key, self._known, synonyms) or shown is None else shown
            self.problems.error(
                code=self.code,
                message=f"unknown {self.noun} {quote(key)} in {self.what}",
                at=entry.key,
                help=hints.get(key) or did_you_mean(key, choices, synonyms),
            )


def closed_object(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys, keys of the user's own, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "patternProperties": {f"^{EXTENSION}": {}},
        "required": required,
        "additionalProperties": False,
    }


_DIGITS = re.compile(r"[0-9][0-9_, ]*")
_YES = {"true": "true", "yes": "true", "on": "true", "1": "true"}
_NO = {"false": "false", "no": "false", "off": "false", "0": "false"}


def read_text(node: Node, name: str, problems: Problems) -> str | None:
    """Text that is not empty, and that every YAML tool reads as text."""
    if not isinstance(node, ScalarNode) or node.value is None:
        report_wrong_type(node, quote(name), "text", problems)
        return None
    if isinstance(node.value, bool) or isinstance(node.legacy, bool):
        read_as = "is a boolean" if isinstance(node.value, bool) else "is a boolean to many YAML tools"
        _report_unquoted(node, name, problems, code="unquoted-boolean", read_as=read_as)
        return None
    if not isinstance(node.value, str):
        _report_unquoted(node, name, problems, code="unquoted-number", read_as="is a number")
        return None
    if not node.value:
        problems.error(code="empty-value", message=f"{quote(name)} is empty", at=node)
        return None
    return node.value


def read_texts(node: Node, name: str, problems: Problems) -> tuple[str, ...] | None:
    """A text, or a list of them that is not empty."""
    if not isinstance(node, ListNode):
        one = read_text(node, name, problems)
        return None if one is None else (one,)
    if not node.items:
        problems.error(code="empty-value", message=f"{quote(name)} is an empty list", at=node)
        return None
    return complete([read_text(item, name, problems) for item in node.items])


def complete(read: Sequence[_T | None]) -> tuple[_T, ...] | None:
    """All of them; None where any is unusable."""
    good = tuple(one for one in read if one is not None)
    return good if len(good) == len(read) else None


class Choice(Struct, frozen=True):
    """The words that a key takes. `message` is about any other, which goes into its braces: "unknown severity {}"."""

    key: str
    choices: tuple[str, ...]
    code: str
    message: str
    synonyms: Mapping[str, str] = {}

    def read(self, node: Node, problems: Problems, *, help: str | None = None) -> str | None:
        text = read_text(node, self.key, problems)
        if text is None or text in self.choices:
            return text
        advice = help or did_you_mean(text, self.choices, self.synonyms)
        problems.error(code=self.code, message=self.message.format(quote(text)), at=node, help=advice)
        return None


def read_number(node: Node, name: str, wanted: str, problems: Problems, *, above: float | None = None) -> Any:
    """A number that is not in quotes; `above` excludes itself and everything below."""
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and (above is None or value > above):
        warn_if_ambiguous(node, problems)
        return value
    report_wrong_type(node, quote(name), wanted, problems, help=unquoted_number_help(value))
    return None


def unquoted_number_help(value: object) -> str | None:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", value):
        return f"write `{value}`, without quotes"
    return None


def read_count(node: Node, name: str, problems: Problems) -> int | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        report_wrong_type(node, quote(name), "a whole number from 0 up", problems, help=_count_help(value))
        return None
    warn_if_ambiguous(node, problems)
    return value


def read_share(node: Node, name: str, problems: Problems) -> float | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        report_wrong_type(node, quote(name), "a number from 0 to 1", problems, help=_share_help(value))
        return None
    return float(value)


def read_flag(node: Node, name: str, problems: Problems) -> bool | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, bool):
        meant = (_YES | _NO).get(str(value).lower())
        help = f"write `{meant}`, without quotes" if meant else None
        report_wrong_type(node, quote(name), "`true` or `false`", problems, help=help)
        return None
    return value


def read_map(node: Node, name: str, problems: Problems) -> MapNode | None:
    if not isinstance(node, MapNode):
        report_wrong_type(node, quote(name), "a mapping", problems)
        return None
    return node


def read_json(node: Node, problems: Problems) -> object:
    """Any value, with a warning for each scalar that other tools would read differently."""
    warn_if_ambiguous(node, problems)
    return plain(node)


def report_wrong_type(node: Node, what: str, wanted: str, problems: Problems, *, help: str | None = None) -> None:
    """`what` is a name in backticks, or a phrase such as "a rule"."""
    problems.error(code="wrong-type", message=f"{what} takes {wanted}, not {_describe(node)}", at=node, help=help)


def warn_if_ambiguous(node: Node, problems: Problems) -> None:
    """Warn of each unquoted scalar under `node` that YAML 1.1 tools read as something else."""
    if isinstance(node, ListNode):
        for item in node.items:
            warn_if_ambiguous(item, problems)
    elif isinstance(node, MapNode):
        for entry in node.entries.values():
            warn_if_ambiguous(entry.value, problems)
    elif node.legacy is not None:
        _warn_ambiguous(node, problems)


def _warn_ambiguous(node: ScalarNode, problems: Problems) -> None:
    if isinstance(node.legacy, bool):
        other = f"`{str(node.legacy).lower()}`"
        ours, theirs = "text", f"the boolean {other}"
        help = f"write {as_json(node.raw)} for the text, {other} for the boolean"
    else:
        ours, theirs = f"{node.value}", f"{node.legacy}"
        help = f"write `{node.value}`"
    problems.warn(
        code="ambiguous-scalar",
        message=f"{quote(node.raw)} is read as {ours} here; other YAML tools read {theirs}",
        at=node,
        help=help,
    )


def _report_unquoted(node: ScalarNode, name: str, problems: Problems, *, code: str, read_as: str) -> None:
    problems.error(
        code=code,
        message=f"{quote(name)} takes text, but {quote(node.raw)} without quotes {read_as}",
        at=node,
        help=f"put it in quotes: {as_json(node.raw)}",
    )


def _count_help(value: object) -> str | None:
    if isinstance(value, float) and value.is_integer() and value >= 0:
        return f"write `{int(value)}`"
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        digits = re.sub("[^0-9]", "", value)
        return f"write {quote(digits)}, without quotes" if digits == value else f"write {quote(digits)}"
    return None


def _share_help(value: object) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value <= 100:
        return f"for {value:g} % write `{value / 100:g}`"
    if isinstance(value, str) and re.fullmatch(r"0?\.[0-9]{1,17}|[01]", value):
        return f"write `{value}`, without quotes"
    return None


def _describe(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return f"a {node.kind()}"
    if node.value is None:
        return "nothing"
    text = node.value if isinstance(node.value, str) else node.raw
    return f"the {node.kind()} {quote(text)}"

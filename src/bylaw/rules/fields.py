"""A mapping whose keys are known: take what is expected, then `finish` reports what is missing and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from bylaw.rules.located import Entry, MapNode, Node
from bylaw.rules.problems import Problems
from bylaw.rules.words import did_you_mean, listing, near, quote

EXTENSION = "x-"
"""keys that begin so are the user's own and never read"""

_TYPOS = 20
"""more unknown keys than this in one mapping are no typing errors"""

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

    def missing(self, keys: tuple[str, ...], *, help: str | None = None) -> None:
        """Note that one of `keys` had to be there."""
        self._missing[keys] = help

    def finish(
        self,
        *,
        synonyms: Mapping[str, str] = _NOTHING,
        hints: Mapping[str, str] = _NOTHING,
        shown: Iterable[str] | None = None,
    ) -> None:
        """Report what is missing and every key that was not taken.

        `hints` are help lines for keys that belong elsewhere; `shown` are the choices named where none is near. A key
        that is missing because it was misspelt is reported once, as unknown.
        """
        meant = {near(key, self._known, synonyms) for key in islice(self._left, _TYPOS) if key not in hints}
        for keys, help in self._missing.items():
            if meant.isdisjoint(keys):
                self._report_missing(keys, help)
        for key, entry in self._left.items():
            choices = self._known if near(key, self._known, synonyms) or shown is None else shown
            self.problems.error(
                code=self.code,
                message=f"unknown {self.noun} {quote(key)} in {self.what}",
                at=entry.key,
                help=hints.get(key) or did_you_mean(key, choices, synonyms),
            )

    def _report_missing(self, keys: tuple[str, ...], help: str | None) -> None:
        self.problems.error(
            code="missing-key",
            message=f"{self.what} needs the {self.noun} {listing(keys, last='or')}",
            at=self.node.first_key,
            help=help,
        )

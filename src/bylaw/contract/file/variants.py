"""A mapping of which one key decides what the others may be: a fault by its `mode`, an invariant by its `type`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bylaw.rules.fields import Fields
from bylaw.rules.located import MapNode, Node
from bylaw.rules.params import Context, Param, ParamType, Values, take_params
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.words import listing


@dataclass(frozen=True)
class Variant:
    """One mapping as it was read."""

    tag: str
    values: Values
    node: MapNode


@dataclass(frozen=True)
class Variants:
    what: str
    """names the mapping in messages: "a tool fault" """
    key: str
    """the key that decides"""
    tag: ParamType
    kinds: Mapping[str, tuple[Param, ...]]
    """what each kind takes"""
    common: tuple[Param, ...]
    """what all of them take"""
    needs: tuple[str, ...] = ()
    """of these common keys at least one must be there"""
    needs_help: str | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    """keys of the files of others that change nothing here, and why"""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    """help for keys that stand in the wrong place"""

    def read(self, node: Node, context: Context, *, tag: str | None = None, alone: bool = False) -> Variant | None:
        """The mapping; None where any of it is unusable. `tag` is given where it stands elsewhere; `alone` leaves
        out what all kinds take."""
        if not isinstance(node, MapNode):
            report_wrong_type(node, self.what, "a mapping", context.problems, help=f"write it as `- {self.key}: …`")
            return None
        fields = Fields(node, context.problems, what=self.what)
        tag = tag if tag is not None else self._read_tag(fields, context)
        common = () if alone else self.common
        if tag is None:
            self._read_untagged(fields, common, context)
            return None
        if not alone:
            self.require_one(fields)
        fields.what = f"{self.what} of {self.key} `{tag}`"
        values = take_params(fields, (*common, *self.kinds[tag]), context)
        self._finish(fields)
        return None if values is None else Variant(tag, values, node)

    def require_one(self, fields: Fields) -> None:
        if self.needs and fields.node.entries.keys().isdisjoint(self.needs):
            fields.missing(self.needs, help=self.needs_help)

    def _read_tag(self, fields: Fields, context: Context) -> str | None:
        node = fields.require(self.key, help=f"write one of {listing(self.kinds, last='or')}")
        return None if node is None else self.tag.read(node, self.key, context)

    def _read_untagged(self, fields: Fields, common: tuple[Param, ...], context: Context) -> None:
        """Report what is wrong with the common keys; of the others nobody can tell."""
        take_params(fields, common, context)
        for name in self._homes:
            fields.take(name)
        self._finish(fields)

    def _finish(self, fields: Fields) -> None:
        for key, why in self.unused.items():
            if entry := fields.entry(key):
                fields.problems.warn(
                    code="key-not-used", message=f"`{key}` of {self.what} is not used: {why}", at=entry.key
                )
        belongs = {name: f"`{name}` belongs to {listing(homes)}" for name, homes in self._homes.items()}
        fields.finish(synonyms=self.synonyms, hints={**belongs, **self.hints})

    @cached_property
    def _homes(self) -> dict[str, list[str]]:
        """Each parameter's name, and the kinds that take it."""
        homes: dict[str, list[str]] = {}
        for tag, params in self.kinds.items():
            for name in (name for param in params for name in param.spellings):
                homes.setdefault(name, []).append(tag)
        return homes

"""The rule kinds, one file each: parameters, documentation, an example, and the demand that the kind lowers to.

A kind is found by its file. Its module has

    a docstring          the kind's page: what it demands, when it is vacuous, what it reports, what `when` does to it
    PARAMS               its parameters
    EXAMPLE              one rule in YAML
    lower(values)        the parameters → a demand

and, where it needs them,

    SYNONYMS             other words that people use for the kind, separated by blanks
    complete(values, node, context)    checks all parameters together; reports what does not fit and then returns None
    TOGETHER             what `complete` checks, in JSON Schema
    COUNT_LIMIT          the parameter that limits a count, and has no influence on what is counted: a guard keeps its
                         count if only this parameter changes
    DEFINITIONS          further definitions that the JSON Schemas of its parameters refer to

A module is imported when a rule uses the kind: a rule file with two kinds does not pay for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.model.demand import Demand
from bylaw.rules.nodes import MapNode
from bylaw.rules.params import Context, Param, Values

Complete: TypeAlias = Callable[[Values, MapNode, Context], Values | None]


class Kind(Struct, frozen=True):
    name: str
    doc: str
    params: tuple[Param, ...]
    example: str
    lower: Callable[[Values], Demand]
    complete: Complete
    together: Mapping[str, Any] = {}
    definitions: Mapping[str, Any] = {}
    synonyms: tuple[str, ...] = ()
    count_limit: str | None = None

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0].rstrip(".")

    def page(self) -> str:
        """The kind's documentation in Markdown."""
        table = "| parameter | | is |\n|---|---|---|"
        for param in self.params:
            optional = "" if param.default is None else f"default `{str(param.default).lower()}`"
            names = " or ".join(f"`{name}`" for name in param.spellings)
            table += f"\n| {names} | {'required' if param.required else optional} | {param.doc} |"
        return f"# {self.name}\n\n{self.doc}\n\n{table}\n\n```yaml\n{self.example}```\n"


class _Kinds(Mapping[str, Kind]):
    """Name → kind, for every module of this package, sorted by name."""

    def __init__(self) -> None:
        self._loaded: dict[str, Kind | None] = dict.fromkeys(sorted(module.name for module in iter_modules(__path__)))

    def __getitem__(self, name: str) -> Kind:
        kind = self._loaded[name]
        if kind is None:
            kind = self._loaded[name] = _load(name)
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    def __contains__(self, name: object) -> bool:
        return name in self._loaded


KINDS: Mapping[str, Kind] = _Kinds()


def kind_synonyms() -> dict[str, str]:
    """Words that people use for a kind → the kind. Imports every kind."""
    return {word: name for name, kind in KINDS.items() for word in kind.synonyms}


def _load(name: str) -> Kind:
    module = import_module(f"{__name__}.{name}")
    return Kind(
        name,
        (module.__doc__ or "").strip(),
        module.PARAMS,
        module.EXAMPLE,
        module.lower,
        getattr(module, "complete", lambda values, node, context: values),
        getattr(module, "TOGETHER", {}),
        getattr(module, "DEFINITIONS", {}),
        tuple(getattr(module, "SYNONYMS", "").split()),
        getattr(module, "COUNT_LIMIT", None),
    )

"""A rule kind: what its file declares, and the page that documents it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from bylaw.model.demand import Demand
from bylaw.rules.located import MapNode
from bylaw.rules.params import Context, Param, Values

Complete: TypeAlias = Callable[[Values, MapNode, Context], Values | None]


class KindModule(Protocol):
    """What the file of a kind holds, beside the docstring that documents it.

    A kind whose parameters depend on each other also has `complete` and `TOGETHER`; see `Kind`.
    """

    __name__: str
    EXAMPLE: str

    @property
    def PARAMS(self) -> tuple[Param, ...]: ...
    @property
    def lower(self) -> Callable[[Values], Demand]: ...


@dataclass(frozen=True)
class Kind:
    name: str
    doc: str
    """what it demands, when it is vacuous, what it reports, and what `when` does to it"""
    params: tuple[Param, ...]
    example: str
    """one rule in YAML"""
    lower: Callable[[Values], Demand]
    complete: Complete = lambda values, node, context: values
    """looks at all parameters together, once each is read; reports what does not fit and then returns None"""
    together: Mapping[str, Any] = field(default_factory=dict)
    """what it checks, in JSON Schema"""

    @classmethod
    def of(cls, module: KindModule) -> Kind:
        name = module.__name__.rpartition(".")[2]
        return cls(
            name,
            (module.__doc__ or "").strip(),
            module.PARAMS,
            module.EXAMPLE,
            module.lower,
            getattr(module, "complete", cls.complete),
            getattr(module, "TOGETHER", {}),
        )

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0].rstrip(".")

    def page(self) -> str:
        """The kind's documentation in Markdown."""
        rows = [row for param in self.params for row in _rows(param)]
        table = ["| parameter | | is |", "|---|---|---|", *rows]
        parts = [f"# {self.name}", self.doc, "\n".join(table), f"```yaml\n{self.example}```"]
        return "\n\n".join(parts) + "\n"


def _rows(param: Param) -> Iterator[str]:
    optional = "" if param.default is None else f"default `{str(param.default).lower()}`"
    need = "required" if param.required else optional
    names = " or ".join(f"`{name}`" for name in param.spellings)
    yield f"| {names} | {need} | {param.doc} |"

"""States as JSON and back. Only the few types that a temporal state is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import astuple

from bylaw.engine.evidence import bare
from bylaw.engine.temporal.frame import Position
from bylaw.model.verdict import EventRef

_PLAIN = (type(None), bool, int, float, str)


class Codec:
    def __init__(self, structs: Iterable[type[Struct]], *, excerpts: bool = True) -> None:
        self._structs = {struct.__name__: struct for struct in structs}
        self._excerpts = excerpts

    def dump(self, value: Any) -> Any:
        if isinstance(value, Position):
            value = value.place()
        if isinstance(value, _PLAIN):
            return _dump_infinity(value)
        if isinstance(value, tuple | list):
            return ["t" if isinstance(value, tuple) else "l", *map(self.dump, value)]
        if isinstance(value, frozenset):
            return ["s", *map(self.dump, value)]
        if isinstance(value, Map):
            return ["m", *([self.dump(k), self.dump(v)] for k, v in value.items())]
        if type(value) is EventRef and not self._excerpts:
            value = bare(value)
        return [type(value).__name__, *map(self.dump, astuple(value))]

    def load(self, data: Any) -> Any:
        if not isinstance(data, list):
            return data
        tag, *rest = data
        if tag == "m":
            return Map({self.load(key): self.load(value) for key, value in rest})
        if tag == "inf":
            return float(rest[0])
        values = [self.load(one) for one in rest]
        if tag in ("t", "l", "s"):
            return {"t": tuple, "l": list, "s": frozenset}[tag](values)
        return self._structs[tag](*values)


def _dump_infinity(value: Any) -> Any:
    """JSON has no infinity."""
    return ["inf", str(value)] if isinstance(value, float) and value in (float("inf"), float("-inf")) else value

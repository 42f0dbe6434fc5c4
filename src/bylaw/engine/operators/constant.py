"""`Constant`: every value observed at a path equals the first one observed. Absent and null are not observations."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.engine.conditions import compile_paths
from bylaw.engine.evidence import as_json, bare, ref, shorten
from bylaw.engine.monitor import NOTHING, VACUOUS, Conclusion, Ended, Found, Monitor, Step, Watches, ok_if_complete
from bylaw.model.condition import Path
from bylaw.model.events import Event, Response
from bylaw.model.values import json_equal
from bylaw.model.verdict import EventRef


class Anchor(Struct, frozen=True, array_like=True):
    value: Any
    where: EventRef


class Constant(Monitor):
    """State: the first observation."""

    initial: Anchor | None = None
    state_type = Anchor | None
    watches = Watches(responses=True)

    def __init__(self, path: Path) -> None:
        self._path = path.text
        self._read = compile_paths(path)

    def step(self, anchor: Anchor | None, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return anchor, NOTHING
        for value in self._read(event):
            if value is None or (anchor is not None and value is anchor.value):
                continue
            if anchor is None:
                anchor = Anchor(value, ref(event, self._says(value)))
            elif not json_equal(value, anchor.value):
                return anchor, (self._changed(anchor, value, event),)
        return anchor, NOTHING

    def _says(self, value: Any) -> str:
        return shorten(f"{self._path} = {as_json(value)}")

    def _changed(self, anchor: Anchor, value: Any, event: Response) -> Found:
        message = f"`{self._path}` changed from {shorten(as_json(anchor.value), 60)} to {shorten(as_json(value), 60)}"
        evidence = (anchor.where, ref(event, self._says(value)))
        return Found(message, event.origin.session, event.turn, evidence)

    def dump(self, anchor: Anchor | None, excerpts: bool = True) -> Anchor | None:
        return anchor if excerpts or anchor is None else Anchor(anchor.value, bare(anchor.where))

    def end(self, anchor: Anchor | None, ended: Ended) -> Conclusion:
        return ok_if_complete(ended) if anchor is not None or not ended.complete else VACUOUS

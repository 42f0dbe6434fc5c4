"""The parts of a file that is imported, and an account of which were read.

A part is a value with its place, such as `contract.invariants[0].type`. Reading a part accounts for it. `close` names
every part that nobody has read, so a key that an importer does not know is never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from bylaw.rules.files import UnusableFile, read_text_file
from bylaw.rules.loader import parse_documents
from bylaw.rules.nodes import Problems, Source, Unreadable, plain


class Part:
    """`notes` gets a line for each part that is left out. The first step of the path is the name of the file."""

    def __init__(self, value: Any, notes: list[str], path: tuple[str | int, ...] = ("",)) -> None:
        self.value = value
        self.path = path
        self.is_settled = False
        """converted, or named in a note, with everything inside"""
        self._is_opened = len(path) == 1
        """read key by key, or item by item"""
        self._notes = notes

    @property
    def place(self) -> str:
        name, *rest = self.path
        shown = f"{name}: " if name and rest else str(name)
        for number, step in enumerate(rest):
            shown += f"[{step}]" if isinstance(step, int) else f".{step}" if number else step
        return shown

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, Mapping)

    @cached_property
    def _inner(self) -> dict[str | int, Part]:
        pairs = self.value.items() if self.is_mapping else enumerate(self.value if isinstance(self.value, list) else ())
        steps = ((str(key) if self.is_mapping else key, one) for key, one in pairs)
        return {step: Part(one, self._notes, (*self.path, step)) for step, one in steps}

    def take(self) -> Any:
        """The whole value, which is now accounted for."""
        self.is_settled = True
        return self.value

    def take_name(self) -> str:
        """A text or a number as text; empty for anything else, which remains to be accounted for."""
        return str(self.take()) if isinstance(self.value, str | int | float) else ""

    def take_description(self) -> dict[str, str]:
        """The key `description` with its value, if that is a text."""
        return {"description": self["description"].take()} if isinstance(self["description"].value, str) else {}

    def leave_out(self, why: str) -> None:
        self.is_settled = True
        self._notes.append(f"`{self.place}` was left out: {why}")

    def __getitem__(self, key: str) -> Part:
        """The value of a key; one that is not there is None."""
        return self.entries().get(key) or Part(None, self._notes, (*self.path, key))

    def entries(self) -> dict[str, Part]:
        """The values of a mapping, each to be read on its own; anything else but null is left out."""
        return {str(key): part for key, part in self._inner.items()} if self._open(Mapping, "mapping") else {}

    def items(self) -> list[Part]:
        """The items of a list, each to be read on its own; anything else but null is left out, and empty items."""
        parts = list(self._inner.values()) if self._open(list, "list") else []
        for part in parts:
            if part.value is None and not part.is_settled:
                part.leave_out("it is empty")
        return [part for part in parts if part.value is not None]

    def explain(self, reasons: Mapping[str, str]) -> None:
        """Leave out the keys of a mapping that have a reason here and were not read."""
        for key, why in reasons.items() if self.is_mapping else ():
            if self[key].value is not None and not self[key].is_settled:
                self[key].leave_out(why)

    def close(self, why: str) -> None:
        """Name every part that was not read."""
        if not self.is_settled and not self._is_opened:
            self.leave_out(why)
        for part in () if self.is_settled else self._inner.values():
            part.close(why)

    def _open(self, kind: type, name: str) -> bool:
        if isinstance(self.value, kind):
            self._is_opened = True
            return True
        if self.value is None:
            self.take()
        elif not self.is_settled:
            self.leave_out(f"it is no {name}")
        return False


def read_data(path: Path, name: str) -> Any:
    """The data of a YAML or JSON file, with the limits that all files have. Raises UnusableFile."""
    problems = Problems(Source(name, read_text_file(path, name, regular=True)))
    try:
        documents = parse_documents(problems.source, problems, "json" if name.endswith(".json") else "yaml")
    except Unreadable:
        documents = []
    errors = [problem for problem in problems.all if problem.is_error]
    if errors:
        raise UnusableFile(errors[0])
    return plain(documents[0]) if documents else None


def unused_name(name: str, taken: Sequence[str]) -> str:
    """The name, with a number where it is taken."""
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found

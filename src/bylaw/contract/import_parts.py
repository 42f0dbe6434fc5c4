"""The parts of a file that is imported, and an account of which were read.

A part is a value with its place, such as `contract.invariants[0].type`. Reading a part accounts for it. `Account.close`
names every part that nobody has read, so a key that an importer does not know is never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.loader import parse_documents
from bylaw.rules.located import Problems, Source, Unreadable, plain

_Path: TypeAlias = tuple[str | int, ...]
"""not a text, because a key may itself hold a dot"""


class Account:
    """Which parts were converted or named, and the notes for the user."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.settled: set[_Path] = set()
        """converted, or named in a note, with everything inside"""
        self.opened: set[_Path] = set()
        """read key by key, or item by item"""
        self._files: list[Part] = []

    def file(self, value: Any, name: str = "") -> Part:
        """The content of a file; the one that is imported needs no name."""
        part = Part(value, (name,), self)
        self._files.append(part)
        self.opened.add(part.path)
        return part

    def close(self, why: str) -> None:
        """Name every part that was not read."""
        waiting = self._files[::-1]
        while waiting:
            part = waiting.pop()
            if part.path in self.settled:
                continue
            if part.path in self.opened:
                waiting += reversed(part.entries().values() if part.is_mapping else part.items())
            else:
                part.leave_out(why)


class Part:
    def __init__(self, value: Any, path: _Path, account: Account) -> None:
        self.value = value
        self.path = path
        self._account = account

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

    @property
    def is_settled(self) -> bool:
        return self.path in self._account.settled

    def take(self) -> Any:
        """The whole value, which is now accounted for."""
        self._account.settled.add(self.path)
        return self.value

    def take_name(self) -> str:
        """A text or a number as text; empty for anything else, which remains to be accounted for."""
        return str(self.take()) if isinstance(self.value, str | int | float) else ""

    def leave_out(self, why: str) -> None:
        self._account.settled.add(self.path)
        self._account.notes.append(f"`{self.place}` was left out: {why}")

    def __getitem__(self, key: str) -> Part:
        """The value of a key; one that is not there is None."""
        return self.entries().get(key) or Part(None, (*self.path, key), self._account)

    def entries(self) -> dict[str, Part]:
        """The values of a mapping, each to be read on its own; anything else but null is left out."""
        given = self.value if self._is_a(Mapping, "mapping") else {}
        return {str(key): Part(one, (*self.path, str(key)), self._account) for key, one in given.items()}

    def items(self) -> list[Part]:
        """The items of a list, each to be read on its own; anything else but null is left out, and empty items."""
        given = self.value if self._is_a(list, "list") else []
        parts = [Part(one, (*self.path, number), self._account) for number, one in enumerate(given)]
        for part in parts:
            if part.value is None and not part.is_settled:
                part.leave_out("it is empty")
        return [part for part in parts if part.value is not None]

    def explain(self, reasons: Mapping[str, str]) -> None:
        """Leave out the keys of a mapping that have a reason here and were not read."""
        for key, why in reasons.items() if self.is_mapping else ():
            if self[key].value is not None and not self[key].is_settled:
                self[key].leave_out(why)

    def _is_a(self, kind: type, name: str) -> bool:
        if isinstance(self.value, kind):
            self._account.opened.add(self.path)
            return True
        if self.value is None:
            self.take()
        elif not self.is_settled:
            self.leave_out(f"it is no {name}")
        return False


def read_data(path: Path, name: str) -> Any:
    """The data of a YAML or JSON file, with the limits that all files have. Raises NotRead."""
    problems = Problems(Source(name, read_text_file(path, name, regular=True)))
    try:
        documents = parse_documents(problems.source, problems, "json" if name.endswith(".json") else "yaml")
    except Unreadable:
        documents = []
    errors = [problem for problem in problems.all if problem.is_error]
    if errors:
        raise NotRead(errors[0])
    return plain(documents[0]) if documents else None


def unused_name(name: str, taken: Sequence[str]) -> str:
    """The name, with a number where it is taken."""
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found

"""Attributes that are replaced for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patches:
    """Remembers what stood where, and puts it back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Sets `owner.name` to what `make` makes of the original. An owner without such an attribute is left alone."""
        original = vars(owner).get(name)
        if original is None or any(holder is owner and held == name for holder, held, _ in self._undo):
            return
        self._undo.append((owner, name, original))
        setattr(owner, name, make(original))

    def add(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute that the owner itself does not have."""
        if name not in vars(owner):
            self._undo.append((owner, name, _ABSENT))
            setattr(owner, name, value)

    def __len__(self) -> int:
        return len(self._undo)

    def undo(self, *, down_to: int = 0) -> None:
        """Puts back what was replaced last, until so many are left."""
        while len(self._undo) > down_to:
            owner, name, original = self._undo.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


_ABSENT = object()

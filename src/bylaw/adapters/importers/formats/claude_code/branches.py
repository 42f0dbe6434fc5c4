"""A session is a tree: a user may go back and take another way. Which lines stand on a way that was left?

The way that counts leads from the root to the last line. Off it stand also lines that do count: results of calls that
ran in parallel, each below the line of its call, and further lines of a response that is on the way.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from bylaw.adapters.importers.records.jsontext import REFUSED

_SPOKEN = ("user", "assistant")


class _Message(Struct, gc=False):
    id: str | None = None
    content: Raw = Raw()


class _Skim(Struct, gc=False):
    type: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    logicalParentUuid: str | None = None
    isSidechain: bool | None = None
    message: _Message | None = None


_skim = msgspec.json.Decoder(_Skim).decode


class Branches:
    """What is known of a file's tree after one look at all of its lines."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._parents: dict[str, str | None] = {}
        self._left: set[str] = set()
        self._known_roots: dict[str, str] | None = None
        spoken: list[tuple[str, str, str | None, bool]] = []
        for line in lines:
            try:
                found = _skim(line)
            except REFUSED:
                continue  # told when the file is read
            if found.uuid is None:
                continue
            self._parents[found.uuid] = found.parentUuid or found.logicalParentUuid
            if found.type in _SPOKEN and not found.isSidechain:
                message = found.message
                result = message is not None and found.type == "user" and b"tool_result" in bytes(message.content)
                spoken.append((found.uuid, found.type, None if message is None else message.id, result))
        self._leave(spoken)

    def is_left(self, uuid: str | None) -> bool:
        """Whether a line stands on a way that was left."""
        return uuid in self._left

    def root_of(self, uuid: str) -> str:
        """The first line of the tree that a line is part of."""
        if self._known_roots is None:
            self._known_roots = self._roots()
        return self._known_roots.get(uuid, uuid)

    def _leave(self, spoken: list[tuple[str, str, str | None, bool]]) -> None:
        followed = [parent for parent in self._parents.values() if parent is not None]
        if len(followed) == len(set(followed)):
            return  # no line has two that follow it
        roots = self._roots()
        kept: set[str] = set()
        for leaf in {roots[uuid]: uuid for uuid, _, _, _ in spoken}.values():
            step: str | None = leaf
            while step is not None and step in self._parents and step not in kept:
                kept.add(step)
                step = self._parents[step]
        responses = {message for uuid, kind, message, _ in spoken if uuid in kept and message is not None}
        for uuid, _, message, result in spoken:  # parents stand before their children
            if message in responses or (result and self._parents[uuid] in kept):
                kept.add(uuid)
        self._left = {uuid for uuid, _, _, _ in spoken if uuid not in kept}

    def _roots(self) -> dict[str, str]:
        roots: dict[str, str] = {}
        for uuid in self._parents:
            path = [uuid]
            seen = {uuid}
            while path[-1] not in roots:
                parent = self._parents[path[-1]]
                if parent is None or parent not in self._parents or parent in seen:
                    roots[path[-1]] = path[-1]
                    break
                path.append(parent)
                seen.add(parent)
            root = roots[path[-1]]
            roots.update(dict.fromkeys(path, root))
        return roots

"""What tools looked like when they were approved, so that one that changes later is noticed.

A model follows the descriptions of its tools, so a server that changes them after it was approved can give it orders. A
tool is approved when it is first seen. If it looks different later, the client goes on seeing what was approved, and
calls of the tool wait until a person approves the change. Approved definitions are in the guard's store, or without one
in a folder with a file for each server.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import convert, to_builtins
from msgspec.structs import replace

from bylaw.guard.integrations.json_files import editing, read_object, replace_file
from bylaw.guard.stores.ports import GuardStore, each_followed
from bylaw.guard.stores.records import EventRow, ToolPin
from bylaw.model.canonical import canonical_json

_MOST_TOOLS = 10_000
"""on one page of a list"""
_MOST_NAMES = 100_000
"""tools that are remembered; an agent may call any number of names that do not exist"""
_SCHEMA = "bylaw.mcp-tools/1"


class Pins(Protocol):
    """Where approved definitions are stored."""

    can_wait: bool
    """whether a person who approves a change is noticed while a call waits"""

    def read(self, server: str) -> dict[str, ToolPin]:
        """The pins of a server, by the names of its tools."""
        ...

    def write(self, pins: Sequence[tuple[ToolPin, str]]) -> None:
        """Each with what has happened to it: `first seen`, `changed`, `as before` or `approved`."""
        ...

    def servers(self) -> list[str]: ...


class StoredPins:
    """Pins in the guard's store, and in its audit."""

    can_wait = True

    def __init__(self, store: GuardStore, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

    def read(self, server: str) -> dict[str, ToolPin]:
        return {pin.tool: pin for pin in each_followed(self._store, ToolPin) if pin.server == server}

    def servers(self) -> list[str]:
        return sorted({pin.server for pin in each_followed(self._store, ToolPin)})

    def write(self, pins: Sequence[tuple[ToolPin, str]]) -> None:
        now = self._clock()
        with self._store.transaction("") as transaction:
            for pin, what in pins:
                known = transaction.followed(ToolPin, pin.id)
                transaction.put_followed(replace(pin, at=now, version=0 if known is None else known.version))
                digest = digest_of(pin.waiting) if pin.waiting is not None else pin.digest
                data = {"tool": pin.tool, "server": pin.server, "what": what, "by": pin.by, "digest": digest}
                transaction.append_to_both(EventRow("", "tool", now, data))


class PinFolder:
    """A JSON file for each server."""

    can_wait = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, server: str) -> dict[str, ToolPin]:
        """Raises FileProblem or ValidationError."""
        found, _ = read_object(self.folder / f"{server}.json")
        return {name: convert(pin, ToolPin) for name, pin in found.get("tools", {}).items()}

    def servers(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def write(self, pins: Sequence[tuple[ToolPin, str]]) -> None:
        for server in {pin.server for pin, _ in pins}:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self.folder / f"{server}.json"
            with editing(file):  # if a pin were lost, its tool would count as new and be approved
                known = self.read(server) | {pin.tool: replace(pin, at=time.time()) for pin, _ in pins}
                tools = {name: to_builtins(known[name]) for name in sorted(known)}
                text = json.dumps({"schema": _SCHEMA, "tools": tools}, indent=2, ensure_ascii=False)
                replace_file(file, text + "\n", mode=0o600)


def definition_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but the name. No other member is known to be harmless: clients load `icons`, and `_meta` and members
    of later versions may say what a model or a user gets to see."""
    return {member: value for member, value in tool.items() if member != "name"}


def digest_of(definition: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(definition)).hexdigest()


def approve(pins: Pins, found: Iterable[ToolPin], by: str) -> None:
    """The tools may be used as they look now."""
    changed = []
    for pin in found:
        if (now := pin.waiting) is not None:
            approved = replace(pin, digest=digest_of(now), definition=now, waiting=None, status="approved", by=by)
            changed.append((approved, "approved"))
    pins.write(changed)


class ToolCheck:
    """Compares the tools that servers list with those that were approved."""

    def __init__(self, pins: Pins, split: Callable[[str], tuple[str, str]]) -> None:
        """`split`: the server and the name there of a tool, by the name that the client uses."""
        self.pins, self._split = pins, split
        self._is_approved: dict[str, bool] = {}
        self._lock = threading.Lock()

    def listed(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        """The tools as the client may see them. A tool that is listed twice, or that has no name, is left out."""
        if len(tools) > _MOST_TOOLS:
            raise ValueError(f"the server lists {len(tools):,} tools at once, more than {_MOST_TOOLS:,}")
        with self._lock:
            known: dict[str, dict[str, ToolPin]] = {}
            shown: dict[str, dict[str, Any]] = {}
            changes: list[tuple[ToolPin, str]] = []
            for tool in tools:
                if not isinstance(tool, dict) or not isinstance(name := tool.get("name"), str) or name in shown:
                    continue
                server, own = self._split(name)
                if server not in known:
                    known[server] = self.pins.read(server)
                shown[name], change = self._compare(tool, server, own, known[server].get(own))
                if change is not None:
                    changes.append(change)
            if changes:
                self.pins.write(changes)
            return list(shown.values())

    def _compare(
        self, tool: dict[str, Any], server: str, own: str, pin: ToolPin | None
    ) -> tuple[dict[str, Any], tuple[ToolPin, str] | None]:
        definition = definition_of(tool)
        digest = digest_of(definition)
        self._is_approved[tool["name"]] = pin is None or pin.digest == digest
        if pin is None:
            new = ToolPin(id=f"{server}/{own}", server=server, tool=own, digest=digest, definition=definition)
            return tool, (new, "first seen")
        if pin.digest == digest:
            restored = replace(pin, waiting=None, status="approved")
            return tool, None if pin.waiting is None else (restored, "as before")
        approved = {"name": tool["name"], **pin.definition}
        if pin.waiting is not None and digest_of(pin.waiting) == digest:
            return approved, None
        return approved, (replace(pin, waiting=definition, status="changed"), "changed")

    def problem(self, tool: str, *, wait: float = 0.0) -> str | None:
        """Why a call of the tool may not run; None if it looks as it was approved. `wait`: seconds to wait for that.

        A tool that nobody has listed is compared with nothing: its description has not come through here either.
        """
        if self._is_approved.get(tool):
            return None
        until, (server, own) = time.monotonic() + wait, self._split(tool)
        while (pin := self.pins.read(server).get(own)) is not None and pin.waiting is not None:
            if not self.pins.can_wait or time.monotonic() >= until:
                return f"the tool `{tool}` has changed since it was approved (`bylaw guard mcp approve {server}/{own}`)"
            time.sleep(0.05)
        if len(self._is_approved) < _MOST_NAMES:
            self._is_approved[tool] = True
        return None

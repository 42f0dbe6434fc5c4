"""Puts the proxy before the servers in the configuration file of a client, and takes it out again.

Each server becomes a command `bylaw guard mcp … -- COMMAND` or `bylaw guard mcp … --url URL`. Headers of a URL go into
the environment of that command. The text before is stored beside the file; as long as nobody else has changed the file,
undoing writes it back byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.json import encode

from bylaw.guard.integrations.json_files import FileProblem, read_object, render, replace_file, write_object
from bylaw.guard.integrations.mcp.servers import URL_KEYS, plain_name, server_tables

_HEADER_VARIABLE = "BYLAW_MCP_HEADER_"


class Wrapped(Struct, frozen=True):
    """What was done to a file."""

    path: Path
    changed: tuple[str, ...]
    """servers that were changed"""
    already: tuple[str, ...] = ()
    restored: bool = False
    """whether the file is as it was before, byte for byte"""


class _Backup(Struct):
    """Stored beside the file: how it was before, and what was written then."""

    before: str = ""
    """the text before"""
    written: str = ""
    """digest of the text that was written"""
    entries: list[tuple[dict[str, Any], dict[str, Any]]] = []
    """servers as they were written, and as they were before"""
    schema: str = "bylaw.mcp-wrap/1"

    def original(self, entry: Any) -> Any:
        return next((before for written, before in self.entries if written == entry), None) or _unwrapped(entry)

    def is_of(self, text: str) -> bool:
        """Whether nobody has changed the text since it was written."""
        return self.written == hashlib.sha256(text.encode("utf-8")).hexdigest()


def backup_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.bylaw-backup")


def wrap(path: Path, options: Sequence[str], *, names: Collection[str] = ()) -> Wrapped:
    """Put `bylaw guard mcp OPTIONS` before the servers, or before those with these names. Raises FileProblem."""
    config, text, backup = _read(path)
    if unknown := set(names) - {name for table in server_tables(config) for name in table}:
        raise FileProblem(f"`{path}` has no server `{min(unknown)}`")
    new = _Backup(before=_text_before(text, backup))
    changed: list[str] = []
    already: list[str] = []
    for table in server_tables(config):
        for name, entry in table.items():
            before = backup.original(entry)
            if names and name not in names:
                continue
            table[name] = _wrapped(name, before, options, path)
            new.entries.append((table[name], before))
            (already if table[name] == entry else changed).append(name)
    if changed:
        # the backup first: a file that was changed without one could not be undone exactly
        replace_file(backup_of(path), encode(new).decode(), mode=0o600)
        write_object(path, config, text)
        new.written = hashlib.sha256(path.read_bytes()).hexdigest()
        replace_file(backup_of(path), encode(new).decode())
    return Wrapped(path, tuple(changed), tuple(already))


def unwrap(path: Path) -> Wrapped:
    """Take the proxy out. Raises FileProblem."""
    config, text, backup = _read(path)
    changed = []
    for table in server_tables(config):
        for name, entry in table.items():
            table[name] = backup.original(entry)
            if table[name] != entry:
                changed.append(name)
    restored = bool(changed) and backup.is_of(text)
    if restored:
        replace_file(path, backup.before)
    elif changed:
        write_object(path, config, text)
    if changed:
        backup_of(path).unlink(missing_ok=True)
    return Wrapped(path, tuple(changed), restored=restored)


def _text_before(text: str, backup: _Backup) -> str:
    """The text without the proxy."""
    if backup.is_of(text):
        return backup.before
    config = json.loads(text)
    for table in server_tables(config):
        for name, entry in table.items():
            table[name] = backup.original(entry)
    return text if config == json.loads(text) else render(config, text)


def _read(path: Path) -> tuple[dict[str, Any], str, _Backup]:
    if not path.is_file():
        raise FileProblem(f"there is no file `{path}`")
    config, _ = read_object(path)
    text = path.read_bytes().decode("utf-8")  # with its line ends
    if not any(True for _ in server_tables(config)):
        raise FileProblem(f"`{path}` has no servers: neither `mcpServers` nor `servers`")
    try:
        return config, text, convert(read_object(backup_of(path))[0], _Backup)
    except ValidationError:
        raise FileProblem(f"`{backup_of(path)}` is not a backup of bylaw") from None


def _program() -> list[str]:
    """With its path: clients that are started from a desktop have a short PATH."""
    found = shutil.which("bylaw")
    return [found] if found is not None else [sys.executable, "-m", "bylaw"]


def _wrapped(name: str, entry: Any, options: Sequence[str], path: Path) -> dict[str, Any]:
    command, *first = _program()
    arguments = [*first, "guard", "mcp", *options, "--name", plain_name(name)]
    url = next((key for key in URL_KEYS if key in entry), None) if isinstance(entry, dict) else None
    if url is None:
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("command"), str)
            or not isinstance(entry.get("args", []), list)
        ):
            raise FileProblem(f"`{path}`: the server `{name}` has neither a command nor a URL")
        return {**entry, "command": command, "args": [*arguments, "--", entry["command"], *entry.get("args", [])]}
    headers = entry.get("headers", {})
    variables = {}
    for header, value in headers.items() if isinstance(headers, dict) else ():
        variable = _HEADER_VARIABLE + re.sub(r"[^A-Z0-9]", "_", header.upper())
        variables[variable] = value
        arguments += ["--header", f"{header}=ENV:{variable}"]
    rest = {key: value for key, value in entry.items() if key not in (url, "headers", "type")}
    kind = {"type": "stdio"} if "type" in entry else {}
    environment = {"env": {**entry.get("env", {}), **variables}} if variables or "env" in entry else {}
    return {**kind, "command": command, "args": [*arguments, "--url", entry[url]], **rest, **environment}


def _unwrapped(entry: Any) -> Any:
    """The entry as it was before; itself if it is not ours."""
    arguments = entry.get("args") if isinstance(entry, dict) else None
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        return entry
    program = [Path(str(entry.get("command"))).stem, *arguments[:4]]
    if program[:3] != ["bylaw", "guard", "mcp"] and program[1:5] != ["-m", "bylaw", "guard", "mcp"]:
        return entry
    if "--" in arguments:
        command, *rest = [*arguments[arguments.index("--") + 1 :], ""]
        return {**entry, "command": command, "args": rest[:-1]}
    return _unwrapped_url(entry, arguments) if "--url" in arguments[:-1] else entry


def _unwrapped_url(entry: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    environment = dict(entry.get("env", {}))
    headers = {}
    for place, name in enumerate(arguments[:-1]):
        if name == "--header":
            header, _, variable = arguments[place + 1].partition("=ENV:")
            headers[header] = environment.pop(variable, "")
    plain: dict[str, Any] = {"type": "http"} if "type" in entry else {}
    plain["url"] = arguments[arguments.index("--url") + 1]
    plain |= {"headers": headers} if headers else {}
    rest = {name: one for name, one in entry.items() if name not in ("command", "args", "type", "env")}
    return {**plain, **rest, **({"env": environment} if environment else {})}

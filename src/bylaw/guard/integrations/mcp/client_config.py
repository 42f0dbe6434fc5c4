"""Puts the proxy before the servers in the configuration file of a client, and takes it out again.

Each server becomes a command `bylaw guard mcp … -- COMMAND` or `bylaw guard mcp … --url URL`. Headers of a URL go into
the environment of that command. The text before is stored beside the file; as long as nobody else has changed the file,
undoing writes it back byte for byte.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.json import encode

from bylaw.guard.integrations.json_files import FileProblem, editing, read_object, render, replace_file, write_object
from bylaw.guard.integrations.mcp.http import HttpServer
from bylaw.guard.integrations.mcp.servers import URL_KEYS, ServerProblem, plain_names, server_tables, url_of

_HEADER_VARIABLE = "BYLAW_MCP_HEADER_"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_KINDS = ("type", "transport", "transportType")
"""where clients say whether a server is a command or a URL"""
_REPLACED = ("command", "args", "env", "headers", *_KINDS, *URL_KEYS)
_ABOUT_URLS = re.compile("auth|header|token|credential", re.IGNORECASE)
"""keys that are about requests to a URL: a client ignores them in a command"""


class WrapResult(Struct, frozen=True):
    """The changes to a file."""

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
        return next((before for written, before in self.entries if written == entry), None) or _unwrap_entry(entry)

    def restore(self, config: dict[str, Any]) -> list[str]:
        """Take the proxy out of all entries. Returns the servers that this changes."""
        changed = []
        for table in server_tables(config):
            for name, entry in table.items():
                table[name] = self.original(entry)
                if table[name] != entry:
                    changed.append(name)
        return changed

    def is_of(self, text: str) -> bool:
        """Whether the text is unchanged since it was written."""
        return self.written == hashlib.sha256(text.encode("utf-8")).hexdigest()


def backup_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.bylaw-backup")


def wrap(path: Path, options: Sequence[str], *, names: Collection[str] = ()) -> WrapResult:
    """Put `bylaw guard mcp OPTIONS` before the servers, or before those with these names. Raises FileProblem."""
    with editing(path):
        config, text, backup = _read(path)
        shown = plain_names({name for table in server_tables(config) for name in table})
        if unknown := set(names) - set(shown):
            raise FileProblem(f"`{path}` has no server `{min(unknown)}`")
        new = _Backup(before=_text_before(text, backup))
        changed: list[str] = []
        already: list[str] = []
        for table in server_tables(config):
            for name, entry in table.items():
                before = backup.original(entry)
                if names and name not in names:
                    continue
                start = [*_program(), "guard", "mcp", *options, "--name", shown[name]]
                try:
                    table[name] = _wrap_entry(before, start)
                except ValueError as problem:
                    raise FileProblem(f"`{path}`: the server `{name}`: {problem}") from None
                new.entries.append((table[name], before))
                (already if table[name] == entry else changed).append(name)
        if changed:
            # the backup first: a file that was changed without one could not be undone exactly
            replace_file(backup_of(path), encode(new).decode(), mode=0o600)
            write_object(path, config, text)
            new.written = hashlib.sha256(path.read_bytes()).hexdigest()
            replace_file(backup_of(path), encode(new).decode())
        return WrapResult(path, tuple(changed), tuple(already))


def unwrap(path: Path) -> WrapResult:
    """Take the proxy out. Raises FileProblem."""
    with editing(path):
        config, text, backup = _read(path)
        changed = backup.restore(config)
        restored = bool(changed) and backup.is_of(text)
        if restored:
            replace_file(path, backup.before)
        elif changed:
            write_object(path, config, text)
        if changed:
            backup_of(path).unlink(missing_ok=True)
        return WrapResult(path, tuple(changed), restored=restored)


def _text_before(text: str, backup: _Backup) -> str:
    """The text without the proxy."""
    if backup.is_of(text):
        return backup.before
    config = json.loads(text)
    return render(config, text) if backup.restore(config) else text


def _read(path: Path) -> tuple[dict[str, Any], str, _Backup]:
    if not path.is_file():
        raise FileProblem(f"there is no file `{path}`")
    config, text = read_object(path)
    if not any(True for _ in server_tables(config)):
        raise FileProblem(f"`{path}` has no servers: neither `mcpServers` nor `servers`")
    try:
        return config, text, convert(read_object(backup_of(path))[0], _Backup)
    except ValidationError:
        raise FileProblem(f"`{backup_of(path)}` is not a backup of bylaw") from None


def _program() -> list[str]:
    """The command of Bylaw with its path: clients that are started from a desktop have a short PATH."""
    found = shutil.which("bylaw")
    return [found] if found is not None else [sys.executable, "-m", "bylaw"]


def _wrap_entry(entry: Any, start: Sequence[str]) -> dict[str, Any]:
    """The entry with the proxy before its server. Raises ValueError, also for what the proxy could not pass on."""
    if not isinstance(entry, dict):
        raise ServerProblem("it has neither a command nor a URL")
    program, *arguments = start
    url = url_of(entry)
    own = [] if entry.get("args") is None else entry["args"]
    if not isinstance(own, list):
        raise ServerProblem("its `args` are no list")
    if url is None:
        return {**entry, "command": program, "args": [*arguments, "--", entry["command"], *own]}
    if not url.startswith("${"):  # the client expands variables
        HttpServer(url if "${" not in url or not _HTTP.match(url) else "http://x/")
    rest = {key: value for key, value in entry.items() if key not in _REPLACED}
    lost = [key for key, value in rest.items() if _ABOUT_URLS.search(key) and value not in (None, False)]
    if lost := ["args"] * bool(own) + lost:
        raise ServerProblem(f"it has `{lost[0]}`, which the guard cannot pass on to a URL")
    environment = _texts(entry, "env")
    for header, value in _texts(entry, "headers").items():
        if not _TOKEN.fullmatch(header):
            raise ServerProblem(f"`{header}` is not the name of a header")
        plain = _HEADER_VARIABLE + re.sub(r"[^A-Z0-9]", "_", header.upper())
        numbered = (f"{plain}_{number}" for number in itertools.count(2))
        variable = next(one for one in itertools.chain([plain], numbered) if one not in environment)
        environment[variable] = value
        arguments += ["--header", f"{header}=ENV:{variable}"]
    kinds = {key: "stdio" for key in _KINDS if key in entry}
    more = {"env": environment} if environment else {}
    return {**kinds, **rest, "command": program, "args": [*arguments, "--url", url], **more}


def _texts(entry: dict[str, Any], key: str) -> dict[str, str]:
    found = {} if entry.get(key) is None else entry[key]
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ServerProblem(f"its `{key}` is not an object of texts")
    return dict(found)


def _unwrap_entry(entry: Any) -> Any:
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
    environment = dict(entry["env"]) if isinstance(entry.get("env"), dict) else {}
    headers = {}
    for place, name in enumerate(arguments[:-1]):
        if name == "--header":
            header, _, variable = arguments[place + 1].partition("=ENV:")
            headers[header] = environment.pop(variable, "")
    plain: dict[str, Any] = {key: "http" for key in _KINDS if key in entry}
    plain["url"] = arguments[arguments.index("--url") + 1]
    plain |= {"headers": headers} if headers else {}
    rest = {name: one for name, one in entry.items() if name not in ("command", "args", "env", *_KINDS)}
    return {**plain, **rest, **({"env": environment} if environment else {})}

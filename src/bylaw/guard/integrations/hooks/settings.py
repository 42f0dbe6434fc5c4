"""Puts the hook into the settings file of a client, and takes it out again.

Only our own entries are added or removed; the order of everything else stays. Entries are recognised by their command,
so that installing twice changes nothing. The command ends with `|| exit 2`: if `bylaw` cannot be started, clients would
take any other exit code for a hook that does not object.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.guard.integrations.hooks.payloads import MOMENTS, Client
from bylaw.guard.integrations.json_files import FileProblem, read_object, write_object

Scope: TypeAlias = Literal["project", "user"]
_OURS = re.compile(r"\bbylaw(?:\.exe)?['\"]? hook\b")
_KEPT = ("root", "policy", "store", "agent")
_SERVE = "--serve"
"""in the command for the start of a session: start the service"""
NAMELESS: tuple[Client, ...] = ("codex", "copilot")
"""clients that do not name the project in the environment, so that the command has to"""


class Dialect(Struct, frozen=True):
    """How a client is told to run hooks."""

    file: str
    """below the folder of the project or of the user"""
    events: tuple[str, ...]
    user_file: str | None = None
    """if it is not the same"""
    is_flat: bool = False
    """whether an event lists commands, and not groups of them with a matcher"""
    names_event: bool = False
    """whether the command has to name the event, since the payload does not"""
    version: int | None = None


DIALECTS: dict[Client, Dialect] = {
    "claude-code": Dialect(
        ".claude/settings.json", ("PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionStart", "SessionEnd")
    ),
    "codex": Dialect(".codex/hooks.json", ("PreToolUse", "PostToolUse", "SessionStart")),
    "gemini": Dialect(".gemini/settings.json", ("BeforeTool", "AfterTool", "SessionStart", "SessionEnd")),
    "cursor": Dialect(
        ".cursor/hooks.json",
        ("preToolUse", "postToolUse", "postToolUseFailure", "sessionStart", "sessionEnd"),
        is_flat=True,
        version=1,
    ),
    "copilot": Dialect(
        ".github/hooks/bylaw.json",
        ("preToolUse", "postToolUse", "postToolUseFailure", "sessionStart", "sessionEnd"),
        user_file=".copilot/hooks/bylaw.json",
        is_flat=True,
        names_event=True,
        version=1,
    ),
}


def settings_file(client: Client, scope: Scope, folder: Path) -> Path:
    """`folder`: of the project, or of the user."""
    dialect = DIALECTS[client]
    return folder / (dialect.user_file or dialect.file if scope == "user" else dialect.file)


def install(client: Client, path: Path, *, serve: bool | None = None, **given: str | None) -> bool:
    """`given`: `root`, `policy`, `store` and `agent`. `serve`: whether a session starts the service. Those that are not
    given stay as the command that is there has them. Returns whether the file has changed. Raises FileProblem."""
    settings, text = read_object(path)
    dialect = DIALECTS[client]
    if dialect.version is not None:
        settings.setdefault("version", dialect.version)
    hooks = _hooks(settings, path)
    found = [entry for event in dialect.events for entry in _entries(hooks, event, path) if _is_ours(entry)]
    program, options = _command_of(found[0]) if found else ("bylaw hook", {})
    options |= {key: value for key, value in given.items() if value}
    if serve is None:
        serve = any(_SERVE in _text_of(entry).split() for entry in found)
    for event in dialect.events:
        entries = _entries(hooks, event, path)
        places = [place for place, entry in enumerate(entries) if _is_ours(entry)]
        is_start = serve and MOMENTS[event.lower()] == "start"
        wanted = _entry(client, event, _command(program, client, event, options, [_SERVE] if is_start else []))
        if not places:
            entries.append(wanted)
        else:
            entries[places[0]] = wanted
            for place in reversed(places[1:]):
                del entries[place]
    return write_object(path, settings, text)


def uninstall(client: Client, path: Path) -> bool:
    """Returns whether the file has changed. What only we have put there is removed with our entries."""
    if not path.exists():
        return False
    settings, text = read_object(path)
    hooks = _hooks(settings, path)
    found = False
    for event in list(hooks):
        entries = _entries(hooks, event, path)
        left = [entry for entry in map(_without_ours, entries) if entry is not None]
        if left != entries:
            found = True
            hooks[event] = left
            if not left:
                del hooks[event]
    if not found:
        return False
    if not hooks:
        del settings["hooks"]
    if not settings.keys() - {"version"}:
        path.unlink()
        return True
    return write_object(path, settings, text)


def installed_events(client: Client, path: Path) -> tuple[str, ...]:
    """The events that run our hook. Raises FileProblem."""
    if not path.exists():
        return ()
    settings, _ = read_object(path)
    hooks = _hooks(settings, path)
    return tuple(event for event in hooks if any(map(_is_ours, _entries(hooks, event, path))))


def _command(program: str, client: Client, event: str, options: Mapping[str, str], more: list[str]) -> str:
    words = ["--client", client, *more]
    if DIALECTS[client].names_event:
        words += ["--event", event]
    for option in _KEPT:
        if option in options:
            words += [f"--{option}", options[option]]
    return f"{program} {shlex.join(words)} || exit 2"


def _command_of(entry: Any) -> tuple[str, dict[str, str]]:
    """The program of the command that is there, and its options, also those that a person has added."""
    text = _text_of(entry)
    ours = _OURS.search(text)
    assert ours is not None
    try:
        words = shlex.split(text[ours.end() :])
    except ValueError:  # an open quote
        words = []
    found, names = {}, {"-p": "policy", **{f"--{option}": option for option in _KEPT}}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, mark, value = word.partition("=")
        if name in names:
            found[names[name]] = value if mark else following
    return text[: ours.end()], found


def _text_of(entry: Any) -> str:
    """Our command in an entry of ours."""
    hook = entry["hooks"][0] if isinstance(entry.get("hooks"), list) else entry
    return str(next(hook[key] for key in ("command", "bash") if isinstance(hook.get(key), str)))


def _entry(client: Client, event: str, command: str) -> dict[str, Any]:
    is_gate = MOMENTS[event.lower()] == "before"
    match client:
        case "cursor":
            return {"command": command, **({"failClosed": True} if is_gate else {})}
        case "copilot":
            return {"type": "command", "bash": command, "powershell": command, "timeoutSec": 60}
        case "gemini":
            return {"hooks": [{"name": "bylaw", "type": "command", "command": command, "timeout": 60_000}]}
        case "claude-code":
            hook = {"type": "command", "command": command, "timeout": 60}
            matcher = {"matcher": "*"} if "Tool" in event else {}
            return {**matcher, "hooks": [{**hook, **({"onFailure": "block"} if is_gate else {})}]}
        case _:
            return {"hooks": [{"type": "command", "command": command, "timeout": 60}]}


def _is_ours(entry: Any) -> bool:
    """A group is ours only if it holds nothing else; a group that a person has added us to is left in place."""
    if isinstance(entry, dict) and isinstance(entry.get("hooks"), list):
        return bool(entry["hooks"]) and all(map(_is_our_command, entry["hooks"]))
    return _is_our_command(entry)


def _without_ours(entry: Any) -> Any:
    """None if nothing is left."""
    if isinstance(entry, dict) and isinstance(entry.get("hooks"), list):
        left = [hook for hook in entry["hooks"] if not _is_our_command(hook)]
        if left == entry["hooks"]:
            return entry
        return {**entry, "hooks": left} if left else None
    return None if _is_our_command(entry) else entry


def _is_our_command(hook: Any) -> bool:
    commands = [hook.get(key) for key in ("command", "bash")] if isinstance(hook, dict) else []
    return any(isinstance(one, str) and _OURS.search(one) for one in commands)


def _hooks(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    hooks = settings.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise FileProblem(f"`hooks` in `{path}` is not an object")
    return hooks


def _entries(hooks: dict[str, Any], event: str, path: Path) -> list[Any]:
    entries = hooks.setdefault(event, [])
    if not isinstance(entries, list):
        raise FileProblem(f"`hooks.{event}` in `{path}` is not a list")
    return entries

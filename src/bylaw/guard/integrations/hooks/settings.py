"""Puts the hook into the settings file of a client, and takes it out again.

Only our own entries are added or removed; the order of everything else stays. Entries are recognised by their command,
so that installing twice changes nothing. A command that only mentions the hook, such as `echo bylaw hook`, is not ours.
An event is guarded only if its entry is what installing would write: most other entries let calls run unasked. The
command ends with `|| exit 2`: if `bylaw` cannot be started, clients would take any other exit code for a hook that does
not object.

The text before is stored beside the file only if removing our entries would not lead back to it, as for a file that
holds `{}` or has another layout. Without the stored text, a file in which nothing else is left was made by `install`,
and is deleted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.guard.integrations.hooks.payloads import MOMENTS, Client
from bylaw.guard.integrations.json_files import FileProblem, editing, read_object, render, replace_file, write_object

Scope: TypeAlias = Literal["project", "user"]
_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"|;&<>()#`])+"""
_OURS = re.compile(
    rf"""\s*(?:\w+={_WORD}?\s+)*
    (?:(?:env|uv\s+run|uvx)\s+(?:(?:\w+={_WORD}|--(?:project|directory|python|with|from)\s+{_WORD}|--[\w-]+(?:={_WORD})?)\s+)*)?
    (?P<program>{_WORD})(?P<module>(?:\s+-[A-Za-z]+)*?\s+-m\s+bylaw)?\s+hook(?=[\s;|&]|$)
    (?!\s+(?:install|uninstall|status|serve)\b)""",
    re.VERBOSE,
)
"""what our command begins with"""
_PYTHON = re.compile(r"py(?:thon)?[\d.]*(?:\.exe)?")
_NAME = "bylaw"
"""of our hook, where hooks have names"""
_KEPT = ("root", "policy", "store", "agent")
_SERVE = "--serve"
"""in the command for the start of a session: start the service"""
NAMELESS: tuple[Client, ...] = ("codex", "copilot")
"""clients that do not name the project in the environment, so that the command has to"""


class Dialect(Struct, frozen=True):
    """The hook settings of one client."""

    file: str
    """below the folder of the project or of the user"""
    events: tuple[str, ...]
    user_file: str | None = None
    """if it is not the same"""
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
        version=1,
    ),
    "copilot": Dialect(
        ".github/hooks/bylaw.json",
        ("preToolUse", "postToolUse", "postToolUseFailure", "sessionStart", "sessionEnd"),
        user_file=".copilot/hooks/bylaw.json",
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
    given stay as the command that is there has them. Returns whether the file has changed. Raises FileProblem,
    OSError."""
    with suppress(OSError):  # `read_object` reports what is wrong
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    with editing(path):
        existed = path.exists()
        settings, text = read_object(path)
        before = deepcopy(settings)
        _install(client, settings, path, serve, given)
        if not _remove(deepcopy(before), path):
            left = deepcopy(settings)
            _remove(left, path)
            if existed and (_is_empty(left) or render(left, render(settings, text)) != text):
                replace_file(_text_before(path), text)
            else:  # of an installation that was removed by hand
                _text_before(path).unlink(missing_ok=True)
        return write_object(path, settings, text)


def _text_before(path: Path) -> Path:
    """Where the text before is stored. MCP servers in the same file have a backup of another name."""
    return path.with_name(f"{path.name}.before-bylaw-hook")


def _install(
    client: Client, settings: dict[str, Any], path: Path, serve: bool | None, given: Mapping[str, str | None]
) -> None:
    dialect = DIALECTS[client]
    if dialect.version is not None:
        settings.setdefault("version", dialect.version)
    hooks = _hooks(settings, path)
    found = [text for event in dialect.events for entry in _entries(hooks, event, path) for text in _our_texts(entry)]
    program, options = _command_of(found[0]) if found else ("bylaw hook", {})
    options |= {key: value for key, value in given.items() if value}
    if serve is None:
        serve = any(_SERVE in text.split() for text in found)
    for event in dialect.events:
        is_start = serve and MOMENTS[event.lower()] == "start"
        wanted = _entry(client, event, _command(program, client, event, options, [_SERVE] if is_start else []))
        entries = _entries(hooks, event, path)
        place = next((place for place, entry in enumerate(entries) if _our_texts(entry)), len(entries))
        # a group in which a person has put our command beside another one keeps the other one
        later = [left for entry in entries[place:] for left in _remove_our_commands(entry)]
        hooks[event] = [*entries[:place], wanted, *later]


def uninstall(client: Client, path: Path) -> bool:
    """Returns whether the file has changed. It is as it was before, except for what others have changed since. Raises
    FileProblem, OSError."""
    with editing(path):
        settings, text = read_object(path)
        if not _remove(settings, path):
            return False
        stored = _text_before(path)
        if not stored.exists():
            if not _is_empty(settings):
                return write_object(path, settings, text)
            path.unlink()
            return True
        before, text_before = read_object(stored)
        _install(client, before, path, None, {})
        _remove(before, path)
        if before == settings:
            replace_file(path, text_before)
        else:
            write_object(path, settings, text)
        stored.unlink()
        return True


def _remove(settings: dict[str, Any], path: Path) -> bool:
    """Take our entries out, and the lists that are empty without them. Returns whether there were any."""
    hooks = _hooks(settings, path)
    found = False
    for event, entries in list(hooks.items()):
        if not isinstance(entries, list):  # a setting beside the events
            continue
        left = [one for entry in entries for one in _remove_our_commands(entry)]
        if left != entries:
            found = True
            hooks[event] = left
            if not left:
                del hooks[event]
    if not hooks:
        del settings["hooks"]
    return found


def _is_empty(settings: Mapping[str, Any]) -> bool:
    return not settings.keys() - {"version"}


def installed_events(client: Client, path: Path) -> dict[str, bool]:
    """The events that run our hook, and whether their entry is what `install` would write now. Raises FileProblem."""
    if not path.exists():
        return {}
    settings, _ = read_object(path)
    wanted = deepcopy(settings)
    _install(client, wanted, path, None, {})
    hooks = _hooks(settings, path)
    ours = (event for event in DIALECTS[client].events if any(map(_our_texts, _entries(hooks, event, path))))
    return {event: hooks[event] == wanted["hooks"][event] for event in ours}


def switches(client: Client, path: Path, home: Path) -> list[str]:
    """The settings that turn hooks off, in this file and in those that the client reads beside it."""
    files = [path, settings_file(client, "user", home)]
    if client == "claude-code":
        files += [path.with_name("settings.local.json")]
    return [f"`{key}` in `{file}`" for file in dict.fromkeys(files) for key in _switches(read_object(file)[0])]


def _switches(settings: Mapping[str, Any]) -> list[str]:
    found = [key for key in ("disableAllHooks", "allowManagedHooksOnly") if settings.get(key)]
    for section, switch in (("hooksConfig", "enabled"), ("hooks", "enabled"), ("tools", "enableHooks")):
        if _within(settings, section, switch) is False:
            found.append(f"{section}.{switch}")
    for section in ("hooksConfig", "hooks"):
        names = _within(settings, section, "disabled")
        if isinstance(names, list) and any(name == _NAME or _is_our_text(name) for name in names):
            found.append(f"{section}.disabled")
    return found


def _within(settings: Mapping[str, Any], section: str, key: str) -> Any:
    inner = settings.get(section)
    return inner.get(key) if isinstance(inner, dict) else None


def _command(program: str, client: Client, event: str, options: Mapping[str, str], more: list[str]) -> str:
    words = ["--client", client, *more]
    if DIALECTS[client].names_event:
        words += ["--event", event]
    for option in _KEPT:
        if option in options:
            words += [f"--{option}", options[option]]
    return f"{program} {shlex.join(words)} || exit 2"


def _command_of(text: str) -> tuple[str, dict[str, str]]:
    """The program of our command that is there, and its options, also those that a person has added."""
    ours = _OURS.match(text)
    assert ours is not None
    lexer = shlex.shlex(text[ours.end() :], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for word in lexer:
            if not set(word) - set("();<>|&"):  # the end of our command
                break
            words.append(word)
    except ValueError:  # an open quote
        words = []
    found, names = {}, {"-p": "policy", **{f"--{option}": option for option in _KEPT}}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, mark, value = word.partition("=")
        if name in names:
            found[names[name]] = value if mark else following
    return text[: ours.end()], found


def _entry(client: Client, event: str, command: str) -> dict[str, Any]:
    is_gate = MOMENTS[event.lower()] == "before"
    match client:
        case "cursor":
            return {"command": command, **({"failClosed": True} if is_gate else {})}
        case "copilot":
            return {"type": "command", "bash": command, "powershell": command, "timeoutSec": 60}
        case "gemini":
            return {"hooks": [{"name": _NAME, "type": "command", "command": command, "timeout": 60_000}]}
        case "claude-code":
            hook = {"type": "command", "command": command, "timeout": 60}
            matcher = {"matcher": "*"} if "Tool" in event else {}
            return {**matcher, "hooks": [{**hook, **({"onFailure": "block"} if is_gate else {})}]}
        case _:
            return {"hooks": [{"type": "command", "command": command, "timeout": 60}]}


def _our_texts(entry: Any) -> list[str]:
    """Our commands in an entry, which may be a group of them."""
    hooks = entry["hooks"] if isinstance(entry, dict) and isinstance(entry.get("hooks"), list) else [entry]
    texts = (hook.get(key) for hook in hooks if isinstance(hook, dict) for key in ("command", "bash"))
    return [str(text) for text in texts if _is_our_text(text)]


def _remove_our_commands(entry: Any) -> list[Any]:
    """The rest of an entry without our commands: itself, a smaller group, or nothing."""
    if not _our_texts(entry):
        return [entry]
    left = [hook for hook in entry.get("hooks") or () if not _our_texts(hook)]
    return [{**entry, "hooks": left}] if left else []


def _is_our_text(text: Any) -> bool:
    found = _OURS.match(text) if isinstance(text, str) else None
    if found is None:
        return False
    name = re.split(r"[/\\]", re.sub("['\"]", "", found["program"]))[-1]
    return bool(_PYTHON.fullmatch(name)) if found["module"] else name in ("bylaw", "bylaw.exe")


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

"""Which entries in the settings of a coding agent are the hook, and whether they guard anything."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bylaw.guard.commands.hook import command as hook_command
from bylaw.guard.integrations.hooks import settings
from bylaw.guard.integrations.hooks.payloads import CLIENTS, Client
from bylaw.guard.integrations.json_files import FileProblem, read_object
from bylaw.guard.integrations.mcp import client_config

FOREIGN = [
    "echo bylaw hook >> log", "# bylaw hook --client claude-code || exit 2", "true || bylaw hook",
    "env echo bylaw hook",
    "uv run --quiet echo bylaw hook", "mybylaw hook", "bylaw hook serve", "bylaw hook status claude-code || exit 2",
    "bylaw hooks", "python -m pytest bylaw hook", "cat <bylaw hook", "sh -m bylaw hook", "'bylaw hook'", "bylaw check",
]  # fmt: skip
OURS = [
    "bylaw hook", "/opt/bylaw hook", "'/my tools/bylaw' hook", '"$HOME"/bin/bylaw hook', r"C:\\tools\\bylaw.exe hook",
    "python3.12 -P -m bylaw hook", "A=1 B='x y' bylaw hook", "env A=1 bylaw hook", "uv run --project 'a b' bylaw hook",
    "uvx --from=bylaw bylaw hook",
]  # fmt: skip
OFF = [
    " || true",
    "; exit 0",
    "",
    " || exit 2 &",
    " | cat || exit 2",
    " --help || exit 2",
    " --client gemini || exit 2",
]


def _claude_settings(path: Path, command: str, *, matcher: str = "*", **more: Any) -> None:
    group = {"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}
    path.write_text(json.dumps({"hooks": {event: [group] for event in settings.DIALECTS["claude-code"].events}}))


def _commands(path: Path) -> list[str]:
    groups = json.loads(path.read_text())["hooks"]["PreToolUse"]
    return [one["command"] for group in groups if group for one in group["hooks"]]


@pytest.mark.parametrize("command", FOREIGN)
def test_a_command_that_only_mentions_the_hook_is_not_ours(command: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    _claude_settings(path, command)
    before = path.read_text()
    assert settings.installed_events("claude-code", path) == {} and not settings.uninstall("claude-code", path)
    assert settings.install("claude-code", path)
    assert _commands(path) == [command, "bylaw hook --client claude-code || exit 2"]
    assert settings.uninstall("claude-code", path) and json.loads(path.read_text()) == json.loads(before)


@pytest.mark.parametrize("end", OFF)
@pytest.mark.parametrize("program", OURS)
def test_a_command_of_ours_that_blocks_nothing_is_not_installed_until_it_is_mended(
    program: str, end: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings.json"
    _claude_settings(path, f"{program} --client claude-code --agent x{end}")
    assert set(settings.installed_events("claude-code", path).values()) == {False}
    assert settings.install("claude-code", path)
    assert _commands(path) == [f"{program} --client claude-code --agent x || exit 2"]
    assert set(settings.installed_events("claude-code", path).values()) == {True}


@pytest.mark.parametrize(
    "fault",
    [
        *({"matcher": "Bash"}, {"matcher": "^$"}, {"async": True}, {"type": "prompt"}, {"onFailure": "allow"}),
        *({"timeout": 0}, {"if": "Bash(git *)"}),
    ],
    ids=str,
)
def test_an_entry_that_runs_the_hook_only_sometimes_is_not_installed(fault: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    _claude_settings(
        path, "bylaw hook --client claude-code || exit 2", **{"timeout": 60, "onFailure": "block", **fault}
    )
    assert settings.installed_events("claude-code", path)["PreToolUse"] is False
    assert settings.install("claude-code", path) and settings.installed_events("claude-code", path)["PreToolUse"]


def test_our_command_beside_another_one_moves_into_an_entry_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    group = {"matcher": "Bash", "hooks": [{"command": "mine"}, {"command": "bylaw hook --agent x"}]}
    path.write_text(json.dumps({"hooks": {"PreToolUse": [None, group]}}))
    assert settings.install("claude-code", path)
    assert sorted(_commands(path)) == ["bylaw hook --client claude-code --agent x || exit 2", "mine"]
    assert settings.uninstall("claude-code", path)
    left = [None, {"matcher": "Bash", "hooks": [{"command": "mine"}]}]
    assert json.loads(path.read_text()) == {"hooks": {"PreToolUse": left}}


SWITCHES: list[tuple[Client, str, dict[str, Any], str]] = [
    ("claude-code", ".claude/settings.json", {"disableAllHooks": True}, "disableAllHooks"),
    ("claude-code", ".claude/settings.local.json", {"disableAllHooks": True}, "disableAllHooks"),
    ("claude-code", "home/.claude/settings.json", {"disableAllHooks": True}, "disableAllHooks"),
    ("claude-code", ".claude/settings.json", {"allowManagedHooksOnly": True}, "allowManagedHooksOnly"),
    ("gemini", ".gemini/settings.json", {"hooksConfig": {"enabled": False}}, "hooksConfig.enabled"),
    ("gemini", ".gemini/settings.json", {"hooksConfig": {"disabled": ["bylaw"]}}, "hooksConfig.disabled"),
    ("gemini", ".gemini/settings.json", {"hooks": {"disabled": ["bylaw"]}}, "hooks.disabled"),
    ("gemini", ".gemini/settings.json", {"hooks": {"enabled": False}}, "hooks.enabled"),
    ("gemini", "home/.gemini/settings.json", {"tools": {"enableHooks": False}}, "tools.enableHooks"),
    ("copilot", ".github/hooks/bylaw.json", {"version": 1, "disableAllHooks": True}, "disableAllHooks"),
]


@pytest.mark.parametrize(("client", "file", "content", "key"), SWITCHES)
def test_settings_that_turn_hooks_off_are_named(
    client: Client, file: str, content: dict[str, Any], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    Path(file).parent.mkdir(parents=True)
    Path(file).write_text(json.dumps(content))
    run = CliRunner().invoke
    installed = run(hook_command, ["install", client])
    assert installed.exit_code == 0 and f"hooks are turned off by `{key}` in" in installed.stderr
    status = run(hook_command, ["status", client], standalone_mode=False)
    assert status.return_value == 1 and f"✗ hooks are turned off by `{key}` in" in status.output
    assert f"✓ {settings.DIALECTS[client].events[0]}\n" in status.output
    assert "removed from" in run(hook_command, ["uninstall", client]).output
    assert json.loads(Path(file).read_text()) == content
    Path(file).unlink()
    assert "turned off" not in run(hook_command, ["install", client]).output
    assert run(hook_command, ["status", client], standalone_mode=False).return_value == 0


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "1.0000000000000000001"])
def test_a_number_that_would_become_another_one_is_not_written(number: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(f'{{"n": {number}}}')
    with pytest.raises(FileProblem, match="cannot be kept"):
        settings.install("claude-code", path)
    assert path.read_text() == f'{{"n": {number}}}'


def test_half_a_character_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"a": "\\ud800"}')
    with pytest.raises(FileProblem, match="half of a character"):
        settings.install("claude-code", path)
    assert path.read_text() == '{"a": "\\ud800"}'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_numbers_and_line_ends_stay(end: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    before = json.dumps({"a": 0.1, "b": 12345678901234567890123, "c": -0.0, "d": "\r\n"}, indent=4)
    path.write_bytes(text := before.replace("\n", end).encode())
    assert settings.install("claude-code", path)
    written = path.read_bytes()
    assert written.count(end.encode()) == written.count(b"\n") > 20
    assert settings.uninstall("claude-code", path) and path.read_bytes() == text


TEXTS = [
    "{}", "{ }\n", "{}\r\n", "", "\n", '{"hooks": {}}', '{\n\t"hooks":{ }\n}', '{"version": 1}',
    '{"version": 1, "hooks": {}}',
    '{"hooks": {"PreToolUse": [], "preToolUse": []}}', '{"hooks": {"BeforeTool": []}, "a": 1}', '{"a": [1,2]}',
    '{"hooks": {"Stop": []}}',
]  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_file_is_as_it_was_before_byte_for_byte(text: str, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode())
    assert settings.install(client, path) and not settings.install(client, path)
    assert settings.install(client, path, agent="coder")
    assert settings.uninstall(client, path) and not settings.uninstall(client, path)
    assert path.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"


@pytest.mark.parametrize("client", CLIENTS)
def test_what_others_add_to_a_file_that_was_empty_stays(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    settings.install(client, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "theme": "dark"}))
    assert settings.uninstall(client, path)
    left = json.loads(path.read_text())
    assert left.pop("version", 1) == 1 and left == {"theme": "dark"} and list(tmp_path.iterdir()) == [path]


def test_the_text_before_an_installation_that_was_removed_by_hand_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    settings.install("claude-code", path)
    path.unlink()
    assert settings.install("claude-code", path) and settings.uninstall("claude-code", path)
    assert list(tmp_path.iterdir()) == []


OTHERS = {"env": {"A": "1"}, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}
"""what others have in the file; installing rewrites its layout, so that the text before is stored beside it"""


@pytest.mark.parametrize(
    "steps",
    [("uninstall",) * 3, ("install",) * 3, ("install", "uninstall", "install", "uninstall"), ("install", "wrap")],
    ids="+".join,
)
def test_edits_at_the_same_moment_follow_one_another(
    steps: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them has read the file before one of them writes it, unless they wait for each other."""
    path, text = tmp_path / "settings.json", json.dumps({**OTHERS, "mcpServers": {"files": {"command": "serve"}}})
    path.write_text(text)
    if steps[0] == "uninstall":
        settings.install("gemini", path)
    results: list[bool | Exception] = []
    all_have_read = threading.Barrier(len(steps))

    def read_slowly(file: Path) -> Any:
        found = read_object(file)
        with suppress(threading.BrokenBarrierError):
            all_have_read.wait(0.05)
        return found

    def edit(step: str) -> None:
        try:
            if step == "wrap":
                results.append(bool(client_config.wrap(path, ["--policy", "p.yaml"]).changed))
            else:
                results.append(getattr(settings, step)("gemini", path))
        except Exception as problem:
            results.append(problem)

    for module in (settings, client_config):
        monkeypatch.setattr(module, "read_object", read_slowly)
    threads = [threading.Thread(target=edit, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert all(isinstance(result, bool) for result in results), results
    left = json.loads(path.read_text())
    if "wrap" in steps:
        assert "guard" in left["mcpServers"]["files"]["args"]
        assert all(settings.installed_events("gemini", path).values())
    elif set(steps) != {"install", "uninstall"}:
        assert results.count(True) == 1
    settings.uninstall("gemini", path)
    client_config.unwrap(path)
    assert json.loads(path.read_text()) == json.loads(text)
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"

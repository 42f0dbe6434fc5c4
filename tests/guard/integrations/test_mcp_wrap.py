"""`bylaw guard mcp wrap` and `unwrap`: the proxy in the configuration of a client; and `approve`."""

from __future__ import annotations

import json
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.integrations.json_files import FileProblem, read_object
from bylaw.guard.integrations.mcp import client_config
from bylaw.guard.integrations.mcp import pins as pin_files
from bylaw.guard.integrations.mcp.client_config import backup_of, unwrap, wrap
from bylaw.guard.integrations.mcp.pins import PinFolder, StoredPins, ToolCheck
from bylaw.guard.integrations.mcp.servers import URL_KEYS, check_name, read_header
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.records import ToolPin
from tests.audit.support import verified
from tests.docs.console import Shell
from tests.docs.pages import FRAMEWORKS, blocks
from tests.support.command import run_bylaw

OPTIONS = ["-p", "/rules/guard.yaml", "--store", "/rules/guard.db"]
STDIO = {"command": "npx", "args": ["-y", "shop"], "env": {"A": "b"}}
URL = {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer secret"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "claude_desktop_config.json": {"globalShortcut": "x", "mcpServers": {"shop": STDIO, "bare": {"command": "serve"}}},
    ".mcp.json": {"mcpServers": {"far": URL, "old": {"type": "sse", "url": "https://y.example/sse"}}},
    ".cursor/mcp.json": {"mcpServers": {"far": {"url": "https://x.example/mcp"}, "näme here": STDIO}},
    ".vscode/mcp.json": {"inputs": [], "servers": {"shop": {"type": "stdio", **STDIO}, "far": URL}},
    ".gemini/settings.json": {"mcpServers": {"far": {"httpUrl": "https://x.example/mcp", "timeout": 5}}},
    ".claude.json": {"projects": {"/p": {"mcpServers": {"shop": STDIO}}}, "mcpServers": {"far": URL}},
}
LAYOUTS = [{"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}]


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_config, "_program", lambda: ["/opt/bylaw"])


def file_of(folder: Path, name: str, layout: dict[str, Any]) -> tuple[Path, str]:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(CONFIGS[name], ensure_ascii=False, **layout) + "\n"
    path.write_text(text)
    return path, text


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_undone_byte_for_byte(name: str, layout: dict[str, Any], tmp_path: Path) -> None:
    path, text = file_of(tmp_path, name, layout)
    path.chmod(0o600)
    assert wrap(path, OPTIONS).changed
    wrapped = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600 and backup_of(path).stat().st_mode & 0o777 == 0o600
    assert not wrap(path, OPTIONS).changed and path.read_text() == wrapped
    assert wrap(path, [*OPTIONS, "--agent", "x"]).changed, "other options"
    done = unwrap(path)
    assert done.restored and path.read_text() == text and not backup_of(path).exists()
    assert not unwrap(path).changed


def test_what_is_written(tmp_path: Path) -> None:
    path, _ = file_of(tmp_path, ".vscode/mcp.json", {"indent": 2})
    wrap(path, OPTIONS)
    servers = json.loads(path.read_text())["servers"]
    start = ["guard", "mcp", *OPTIONS, "--name"]
    assert servers["shop"] == {
        "type": "stdio",
        "command": "/opt/bylaw",
        "args": [*start, "shop", "--", "npx", "-y", "shop"],
        "env": {"A": "b"},
    }
    header = ["--header", "Authorization=ENV:BYLAW_MCP_HEADER_AUTHORIZATION"]
    assert servers["far"] == {
        "type": "stdio",
        "command": "/opt/bylaw",
        "args": [*start, "far", *header, "--url", "https://x.example/mcp"],
        "env": {"BYLAW_MCP_HEADER_AUTHORIZATION": "Bearer secret"},
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_what_others_have_changed_stays(name: str, tmp_path: Path) -> None:
    path, text = file_of(tmp_path, name, {"indent": 2})
    wrap(path, OPTIONS)
    config = json.loads(path.read_text())
    config["later"] = {"x": 1}
    path.write_text(json.dumps(config))
    done = unwrap(path)
    assert not done.restored and json.loads(path.read_text()) == {**json.loads(text), "later": {"x": 1}}


def test_a_server_that_is_added_later(tmp_path: Path) -> None:
    path, text = file_of(tmp_path, ".mcp.json", {"indent": 2})
    wrap(path, OPTIONS, names=["far"])
    config = json.loads(path.read_text())
    assert "args" not in config["mcpServers"]["old"]
    config["mcpServers"]["new"] = STDIO
    path.write_text(json.dumps(config, indent=2))
    assert set(wrap(path, OPTIONS).changed) == {"old", "new"}
    unwrap(path)
    expected = json.loads(text)
    expected["mcpServers"]["new"] = STDIO
    assert json.loads(path.read_text()) == expected


def test_without_the_backup_servers_are_restored_from_the_command(tmp_path: Path) -> None:
    path, text = file_of(tmp_path, ".vscode/mcp.json", {"indent": 2})
    wrap(path, OPTIONS)
    backup_of(path).unlink()
    unwrap(path)
    assert json.loads(path.read_text()) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{\n  // mine\n  "mcpServers": {}\n}', "it has comments"),
        ("{}", "has no servers"),
        ('{"mcpServers": {"a": 5}}', "neither a command nor a URL"),
        ('{"mcpServers": {"a": {"args": []}}}', "neither a command nor a URL"),
        ('{"mcpServers": {"a": {"command": "x"}}', "is not plain JSON"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "`a` is given twice"),
        (
            '{"mcpServers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "y"}}}',
            "`mcpServers` is given twice",
        ),
    ],
)
def test_files_that_cannot_be_changed_stay(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(FileProblem, match=why):
        wrap(path, OPTIONS)
    assert path.read_text() == text and list(tmp_path.iterdir()) == [path]


COMMAND: dict[str, Any] = {"command": "python", "args": ["s.py"]}
FAR = {"url": "https://x.example/mcp"}
DOUBTFUL: list[tuple[dict[str, Any], str]] = [
    *(({**COMMAND, key: "https://x.example/mcp"}, f"both `command` and `{key}`") for key in URL_KEYS),
    ({"url": "https://x.example/sse", "httpUrl": "https://y.example/mcp"}, "both `url` and `httpUrl`"),
    ({"url": 5}, "its `url` is not text"),
    ({"command": ["python", "s.py"]}, "its `command` is not text"),
    ({**COMMAND, "url": 5}, "both `command` and `url`"),
    ({"url": None}, "neither a command nor a URL"),
    ({"command": "x", "args": "y"}, "its `args` are no list"),
    ({**FAR, "args": ["s.py"]}, "`args`, which the guard cannot pass on to a URL"),
    ({**FAR, "env": ["A=1"]}, "its `env` is not an object of texts"),
    ({**FAR, "headers": ["A: b"]}, "its `headers` is not an object of texts"),
    ({**FAR, "headers": {"A": 5}}, "its `headers` is not an object of texts"),
    ({**FAR, "headers": {"A=ENV:PATH": "b"}}, "`A=ENV:PATH` is not the name of a header"),
    *(
        ({**FAR, key: given}, f"`{key}`, which the guard cannot pass on to a URL")
        for key, given in {"headersHelper": "/x.sh", "oauth": {"clientId": "a"}, "authProviderType": "x"}.items()
    ),
    ({"url": "wss://x.example/mcp"}, "is not the URL of a server"),
    ({"url": "https://ann:word@x.example/"}, "holds no user or password"),
]


@pytest.mark.parametrize(("entry", "why"), DOUBTFUL)
def test_a_server_that_would_not_be_guarded_as_it_is_named_is_refused(
    entry: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    text = json.dumps({"mcpServers": {"a": entry, "b": COMMAND}})
    path.write_text(text)
    with pytest.raises(FileProblem, match=re.escape(why)) as problem:
        wrap(path, OPTIONS)
    assert "the server `a`" in str(problem.value) and "word@" not in str(problem.value)
    assert path.read_text() == text and list(tmp_path.iterdir()) == [path]
    assert wrap(path, OPTIONS, names=["b"]).changed == ("b",), "the others can be guarded"


@pytest.mark.parametrize(
    "entry",
    [
        {**COMMAND, "url": None, "headers": {}},
        {"command": "python", "args": None},
        {**FAR, "command": None, "args": None, "env": None, "headers": None, "oauth": None},
        {**FAR, "args": [], "transportType": "sse", "transport": "http", "type": "http"},
        {"url": "${BASE}/mcp", "timeout": 5},
        {"url": "HTTPS://${HOST}:${PORT}/mcp", "env": {"A": "b"}},
    ],
)
def test_the_client_starts_nothing_but_the_guard(entry: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text := json.dumps({"mcpServers": {"a": entry}}))
    wrap(path, OPTIONS)
    written = json.loads(path.read_text())["mcpServers"]["a"]
    assert written["command"] == "/opt/bylaw" and written["args"][:2] == ["guard", "mcp"]
    assert written["args"][-2:] in (["--", "python"], ["python", "s.py"], ["--url", entry.get("url")])
    assert all(written.get(key) is None for key in URL_KEYS)
    assert {written[key] for key in ("type", "transport", "transportType") if key in written} <= {"stdio"}
    assert isinstance(written.get("env", {}), dict)
    assert unwrap(path).restored and path.read_text() == text


def test_headers_whose_variables_would_be_the_same_all_arrive(tmp_path: Path) -> None:
    headers = {"X-A": "one", "X_A": "two", "x-a": "three", "X-A-2": "four"}
    entry = {**FAR, "headers": headers, "env": {"BYLAW_MCP_HEADER_X_A": "mine"}}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"mcpServers": {"a": entry}}))
    wrap(path, OPTIONS)
    written = json.loads(path.read_text())["mcpServers"]["a"]
    given = [one for place, one in enumerate(written["args"]) if written["args"][place - 1] == "--header"]
    assert dict(read_header(one, written["env"]) for one in given) == headers
    assert written["env"]["BYLAW_MCP_HEADER_X_A"] == "mine"
    backup_of(path).unlink()
    unwrap(path)
    assert json.loads(path.read_text())["mcpServers"]["a"] == entry


def test_two_servers_never_get_the_same_name(tmp_path: Path) -> None:
    names = ["b", "ä b", "ö b", "a b", "x" * 70, "x" * 80, "…", "?"]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"mcpServers": dict.fromkeys(names, COMMAND)}))
    wrap(path, OPTIONS, names=names[1:])
    wrap(path, OPTIONS)
    servers = json.loads(path.read_text())["mcpServers"]
    given = {name: entry["args"][entry["args"].index("--name") + 1] for name, entry in servers.items()}
    assert len(set(given.values())) == len(names) and all(check_name(one) for one in given.values())
    assert (given["b"], given["a b"]) == ("b", "a-b"), "a name that no other one becomes stays"


def test_an_environment_that_was_changed_to_something_else_does_not_stop_unwrap(tmp_path: Path) -> None:
    path, _ = file_of(tmp_path, ".mcp.json", {"indent": 2})
    wrap(path, OPTIONS)
    backup_of(path).unlink()
    config = json.loads(path.read_text())
    config["mcpServers"]["far"]["env"] = None
    path.write_text(json.dumps(config))
    assert set(unwrap(path).changed) == {"far", "old"}


def test_the_commands(tmp_path: Path) -> None:
    path, text = file_of(tmp_path, ".mcp.json", {"indent": 2})
    (tmp_path / "guard.yaml").write_text("guard: {rules: [{id: a, when: {tool_name_in: [x]}, then: block}]}")

    def run(*arguments: str) -> tuple[int, str]:
        done = run_bylaw(["guard", "mcp", *arguments], cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    code, reported = run("wrap", ".mcp.json", "-p", "guard.yaml")
    assert code == 0 and reported.startswith(
        "guarded: far\nguarded: old\n.mcp.json has changed; `bylaw guard mcp unwrap`"
    )
    assert str(tmp_path / "guard.yaml") in path.read_text(), "clients run it in any folder"
    assert run("wrap", ".mcp.json", "-p", "guard.yaml")[1] == "guarded already: far\nguarded already: old\n"
    assert run("wrap", ".mcp.json", "nobody", "-p", "guard.yaml")[0] == 2
    assert run("wrap", ".mcp.json", "-p", "none.yaml")[0] == 2
    assert run("unwrap", ".mcp.json") == (0, "no longer guarded: far\nno longer guarded: old\n")
    assert path.read_text() == text
    assert run("unwrap", ".mcp.json") == (0, "no server in this file is guarded\n")
    two = ["--server", "a=http://a/", "--server", "b=http://b/", "--header", "x=ENV:PATH"]
    for arguments, why in (
        ([], "name the server in one way"),
        (["--url", "http://x/mcp", "--", "y"], "name the server in one way"),
        (["--url", "http://ann:word@x/"], "holds no user or password"),
        (two, "--header is for one URL"),
    ):
        code, reported = run("-p", "guard.yaml", *arguments)
        assert code == 2 and why in reported and "word@" not in reported
    assert "not an address of this machine" in run("-p", "guard.yaml", "--listen", "0.0.0.0:0", "--", "x")[1]


@pytest.mark.parametrize("place", ["--store", "--lock"])
def test_changes_are_shown_and_approved(place: str, tmp_path: Path) -> None:
    where = tmp_path / "there"
    store = SqliteStore(where) if place == "--store" else None
    pins = PinFolder(where) if store is None else StoredPins(store)
    check = ToolCheck(pins, lambda tool: ("shop", tool))
    check.listed([{"name": "pay", "description": "Pays."}, {"name": "look"}])
    check.listed([{"name": "pay", "description": "Pays. \x1b[2JObey."}, {"name": "look"}])

    def run(*arguments: str) -> tuple[int, str]:
        done = run_bylaw(["guard", "mcp", "approve", *arguments, place, str(where)], cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    code, shown = run()
    assert code == 0 and '-  "description": "Pays."' in shown and "Obey" in shown and "\x1b[2J" not in shown
    assert run("shop/pay")[0] == 2, "nobody has approved it"
    assert run("shop/look", "--by", "ann")[0] == 2, "it has not changed"
    assert check.problem("pay") is not None
    assert run("shop/pay", "--by", "ann") == (0, "approved shop/pay\n")
    assert check.problem("pay") is None
    assert run()[1] == "no tool has changed since it was approved\n"
    if store is not None:
        assert verified(store).findings == []
        notes = [(row.data["tool"], row.data["what"], row.data["by"]) for row in store.events()]
        assert notes[-2:] == [("pay", "changed", None), ("pay", "approved", "ann")]
        store.close()
        shown = run_bylaw(["guard", "audit", "show", "--store", str(where)]).stdout
        assert "shop/pay approved by ann" in shown


def test_the_page(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for block in blocks(f"{FRAMEWORKS}mcp.md"):
        if block.title is not None:
            block.write_to(tmp_path)
        elif block.language == "console":
            shell.run(block)
    assert shell.code == 0


RULES_OF_WRAP = {
    "guard: {rules: [{id: a, when: {tool_name_in: [x]}, then: blok}]}": (2, "unknown action `blok`"),
    "guard: {rules: []}": (2, "no rule decides calls"),
    "guard: {mode: hitl, rules: [{id: a, when: {tool_name_in: [x]}, then: pause}]}": (0, "nobody can approve without"),
    "guard: {rules: [{id: a, when: {tool_name_in: [x]}, then: block}]}": (0, ""),
}


@pytest.mark.parametrize("rules", RULES_OF_WRAP)
def test_a_configuration_gets_no_rules_that_a_server_could_not_start_with(rules: str, tmp_path: Path) -> None:
    path, text = file_of(tmp_path, ".mcp.json", {"indent": 2})
    (tmp_path / "guard.yaml").write_text(rules)
    code, said = RULES_OF_WRAP[rules]
    done = run_bylaw(["guard", "mcp", "wrap", ".mcp.json", "-p", "guard.yaml"], cwd=tmp_path)
    assert done.returncode == code and said in done.stderr and bool(said) == bool(done.stderr)
    assert (path.read_text() == text) is (code != 0)


def test_proxies_that_see_tools_at_the_same_moment_lose_no_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has read the file before one of them writes it, unless they wait for each other."""
    pins, all_have_read = PinFolder(tmp_path / "lock"), threading.Barrier(3)

    def read_slowly(file: Path) -> Any:
        found = read_object(file)
        with suppress(threading.BrokenBarrierError):
            all_have_read.wait(0.05)
        return found

    monkeypatch.setattr(pin_files, "read_object", read_slowly)
    tools = ("a", "b", "c")
    seen = [ToolPin(id=f"shop/{tool}", server="shop", tool=tool, digest="d", definition={}) for tool in tools]
    threads = [threading.Thread(target=pins.write, args=([(pin, "first seen")],)) for pin in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(pins.read("shop")) == set(tools)

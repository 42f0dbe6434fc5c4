"""`bylaw guard keys` and the mistakes of `bylaw guard serve`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bylaw.cli import cli
from bylaw.guard.service.auth import Credentials
from bylaw.guard.stores import SqliteStore
from tests.service.support import RULES


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["guard", *arguments], standalone_mode=False)
    problem = getattr(result.exception, "message", "") or str(result.exception or "")
    return int(result.return_value or 0) if not problem else 2, result.stdout, result.stderr + problem


def test_keys_are_created_listed_and_revoked(tmp_path: Path) -> None:
    store = str(tmp_path / "guard.db")
    code, key, reported = run("keys", "create", "bot", "--store", store, "--scope", "agent", "--agent", "support")
    assert (code, reported.split("  ")[1:]) == (0, ["bot", "agent for support", "valid\n"])
    assert Credentials(SqliteStore(store)).check(key.strip()).agents == ("support",)
    run("keys", "create", "ann", "--store", store, "--scope", "operator", "--expires", "30d")
    _, listed, _ = run("keys", "list", "--store", store)
    first, second = listed.splitlines()
    assert key.split("_")[1] in first and "valid until" in second and key.split("_", 2)[2].strip() not in listed
    assert run("keys", "revoke", first.split()[0], "--store", store, "--by", "root")[1].endswith("revoked\n")
    assert "there is no key" in run("keys", "revoke", "none", "--store", store)[2]
    rows = [row.data["how"] for row in SqliteStore(store).audit()]
    assert rows == ["key created", "key created", "key revoked"]


def test_mistakes_are_reported(tmp_path: Path) -> None:
    rules = tmp_path / "guard.yaml"
    rules.write_text(RULES)
    store = str(tmp_path / "guard.db")
    assert "names its agents" in run("keys", "create", "b", "--store", store, "--scope", "agent")[2]
    assert "12h, 30d" in run("keys", "create", "b", "--store", store, "--scope", "admin", "--expires", "soon")[2]
    assert "--workers needs --store" in run("serve", "-p", str(rules), "--workers", "2")[2]
    assert "--escalate-to needs" in run("serve", "-p", str(rules), "--escalate-to", "https://x.example")[2]
    assert "not an address" in run("serve", "-p", str(rules), "--listen", "here")[2]
    assert "no-such" in run("serve", "-p", str(rules), "--config", "no-such.yaml")[2]
    rules.write_text("guard:\n  rules:\n  - {id: a}\n")
    code, _, reported = run("serve", "-p", str(rules), "--listen", "127.0.0.1:0")
    assert code == 2 and "error[" in reported


def test_without_its_packages_the_command_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bylaw.guard.service.server", None)
    (tmp_path / "guard.yaml").write_text(RULES)
    assert "pip install 'bylaw[service]'" in run("serve", "-p", str(tmp_path / "guard.yaml"))[2]

"""Runs every file in this folder: a bad rule file and the diagnostics wanted, all of them and in order.

A mistake is a mapping:

    about    what the user did wrong
    file     the text of the rule file; or `file_latin1`, written in that encoding
    name     its name (default `rules.yaml`)
    beside   other files: name → text
    want     a list of {code, at: line:column, text, message, help, severity, related}

`text` is what the carets stand under; `message` and `help` are parts; `related` lists the places line:column.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from bylaw.contract.file.loader import load_contract
from bylaw.errors import InputError
from bylaw.lint.report import read_files
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.diagnostics import render_diagnostics
from bylaw.rules import load_rules, parse_rules
from tests.support.yaml_files import load_yaml
from tests.unit.rules.test_pages import codes_in

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.yaml"))
_KEYS = {"about", "file", "file_latin1", "name", "beside", "want"}
_WANT_KEYS = {"code", "at", "text", "message", "help", "severity", "related"}


def _read(path: Path) -> dict[str, Any]:
    case = load_yaml(path.read_text("utf-8"))
    assert case.keys() <= _KEYS, f"unknown keys: {case.keys() - _KEYS}"
    return dict(case)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mistake_is_reported_with_its_code_and_place(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _read(path)
    name = _write(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = list(read_files([name]).diagnostics)
    assert [_short(d) for d in found] == [(want["code"], want["at"]) for want in case["want"]]
    for diagnostic, want in zip(found, case["want"], strict=True):
        _compare(diagnostic, want)
    if re.search("^contract:", case.get("file", ""), re.MULTILINE):
        _check_contract_agrees(name, found)
    else:
        _check_load_agrees(name, found)


def test_every_code_of_a_rule_file_has_a_mistake_file() -> None:
    shown = {want["code"] for path in FILES for want in _read(path)["want"]}
    unreachable_here = {"no-such-file", "unreadable-file", "too-large", "more-problems", "not-in-manifest"}
    assert (codes_in("rules") | codes_in("contract/file")) - unreachable_here <= shown


RENDERED = """\
error[unknown-kind]: unknown rule kind `must_preceed`
 --> refunds.yaml:5:11
  |
5 |     kind: must_preceed
  |           ^^^^^^^^^^^^
  = help: did you mean `must_call_before`?
"""


def test_a_mistake_is_printed_with_its_line_and_help() -> None:
    text = _read(HERE / "unknown_kind.yaml")["file"]
    found = parse_rules(text, file="refunds.yaml").diagnostics
    assert click.unstyle(render_diagnostics(found)) == RENDERED


def _write(case: dict[str, Any], folder: Path) -> str:
    name = case.get("name", "rules.yaml")
    latin1 = "file_latin1" in case
    text = case["file_latin1"] if latin1 else case["file"]
    (folder / name).write_bytes(text.encode("latin-1" if latin1 else "utf-8"))
    for other, content in case.get("beside", {}).items():
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).write_text(content, "utf-8")
    return str(name)


def _short(diagnostic: Diagnostic) -> tuple[str, str | None]:
    span = diagnostic.span
    return diagnostic.code, f"{span.line}:{span.column}" if span else None


def _compare(diagnostic: Diagnostic, want: dict[str, Any]) -> None:
    assert want.keys() <= _WANT_KEYS, f"unknown keys in want: {want.keys() - _WANT_KEYS}"
    assert diagnostic.severity == want.get("severity", "error"), diagnostic
    if "text" in want:
        assert _under_carets(diagnostic) == want["text"]
    if "message" in want:
        assert want["message"] in diagnostic.message
    if "help" in want:
        assert want["help"] is diagnostic.help or want["help"] in str(diagnostic.help)
    assert [f"{r.span.line}:{r.span.column}" for r in diagnostic.related] == want.get("related", [])
    _check_style(diagnostic)


def _under_carets(diagnostic: Diagnostic) -> str:
    span, excerpt = diagnostic.span, diagnostic.excerpt
    assert span is not None
    assert excerpt is not None
    start = span.column - diagnostic.excerpt_column
    return excerpt[start : start + span.end_column - span.column]


def _check_style(diagnostic: Diagnostic) -> None:
    for line in (diagnostic.message, diagnostic.help or ""):
        assert "\n" not in line
        assert not line.endswith(".")
    first = diagnostic.message[0]
    assert first == first.lower()
    assert diagnostic.span is None or diagnostic.excerpt is not None


def _check_load_agrees(name: str, found: list[Diagnostic]) -> None:
    if not any(diagnostic.is_error for diagnostic in found):
        assert list(load_rules(name).diagnostics) == found
        return
    with pytest.raises(InputError) as caught:
        load_rules(name)
    assert list(caught.value.diagnostics) == found


def _check_contract_agrees(name: str, found: list[Diagnostic]) -> None:
    """Whoever runs a contract is told the same as whoever lints its file."""
    loaded = load_contract(name)
    assert list(loaded.diagnostics) == found
    assert (loaded.contract is None) == any(diagnostic.is_error for diagnostic in found)

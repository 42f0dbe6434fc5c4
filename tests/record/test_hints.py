"""What `bylaw record` advises after a run: only what can help."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bylaw.record.commands import _print_wrapped, hints

PROXY = "ignores HTTPS_PROXY"
HOST = "--host"
BASE_URL = {"OPENAI_BASE_URL": "http://localhost:1"}


def hinted(*, environ: dict[str, str] | None = None, **seen: Any) -> str:
    recording = {"turns": 0, "errors": 0, "lost": 0}
    recorded = {"status": 0, "unread": [], "passed": [], "refused": [], "unable": [], "turned_away": {}}
    known = SimpleNamespace(**recording | {key: seen[key] for key in seen.keys() & recording})
    left = SimpleNamespace(**recorded | {key: seen[key] for key in seen.keys() & recorded})
    return "\n".join(hints(known, left, environ or {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "advice"),
    [
        ({}, {PROXY}),
        ({"environ": BASE_URL}, set()),
        ({"environ": {"ANTHROPIC_BASE_URL": "http://localhost:1"}}, set()),
        ({"status": 1}, set()),
        ({"lost": 2}, set()),
        ({"turns": 2}, set()),
        ({"unread": ["a.example"]}, {HOST}),
        ({"unread": ["a.example"], "refused": ["a.example"]}, set()),
        ({"refused": ["a.example"]}, set()),
        ({"unread": ["a.example", "b.example"], "refused": ["a.example"]}, {HOST}),
        ({"unread": ["a.example"], "turns": 1}, set()),
        ({"unable": ["langchain_core"]}, set()),
    ],
)
def test_advice_is_given_where_it_can_help(seen: dict[str, Any], advice: set[str]) -> None:
    text = hinted(**seen)
    assert {one for one in (PROXY, HOST) if one in text} == advice
    assert "--host a.example" not in text or not seen.get("refused")


def test_hints_fit_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _print_wrapped(f"bylaw: {hinted()}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80

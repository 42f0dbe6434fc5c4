"""What shadow rules would have changed, live; and turning one on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.rules.promotion import NotPromoted, promotion

SOFT = {"id": "soft", "when": {"tool_name_in": ["pay"]}, "then": "pause", "mode": "shadow"}
HARD = {"id": "hard", "when": {"arg_gt": {"path": "n", "value": 5}}, "then": "block"}


def pay(guard: bylaw.Guard, n: int, session: str = "s") -> None:
    guard.decide(bylaw.Attempt(tool="pay", arguments={"n": n, "password": "hunter2-hunter2"}, session=session))


def test_a_shadow_rule_is_reported_where_it_would_have_changed_a_decision(tmp_path: Path) -> None:
    guard = bylaw.Guard([SOFT, HARD], store=tmp_path / "guard.db")
    for n, session in ((1, "a"), (2, "a"), (9, "b")):
        pay(guard, n, session)
    report = guard.shadow_report()
    assert report.decisions == 3 and report.changed == 2
    soft = report.rules["soft"]
    assert soft.matched == 3 and soft.changed == {"allow → pause": 2} and soft.sessions == 2
    assert [example.call for example in soft.examples] == ['pay(n=1, password="[redacted: secret]")'] * 1 + [
        'pay(n=2, password="[redacted: secret]")'
    ]
    assert "hard" not in report.rules, "it acted"
    guard.store.close()


def test_a_guard_in_shadow_reports_every_rule(tmp_path: Path) -> None:
    guard = bylaw.Guard(
        {"guard": {"tools": ["pay"], "mode": "hitl", "rules": [SOFT, HARD]}}, store=tmp_path / "guard.db", shadow=True
    )
    pay(guard, 1)
    pay(guard, 9)
    guard.decide(bylaw.Attempt(tool="drop", session="s"))
    report = guard.shadow_report()
    changed = {rule: tally.changed for rule, tally in report.rules.items()}
    assert changed == {
        "soft": {"allow → pause": 2},
        "hard": {"allow → block": 1},
        "allowlist": {"allow → block": 1},
    }
    assert report.changed == 3
    assert guard.shadow_report(rule="hard").rules.keys() == {"hard"}
    guard.store.close()


YAML = """\
# kept as it is: mode: shadow
guard:
  mode: hitl
  rules:
    - id: soft   # a comment
      when: {tool_name_in: [pay]}
      then: pause
      mode:   shadow   # not yet

    - {id: flow, when: {tool_name_in: [pay]}, then: block, "mode": 'shadow'}
    - id: flag
      when: {tool_name_in: [mode]}
      then: block
      shadow: true
    - id: live
      when: {tool_name_in: [x]}
      then: block
"""


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("soft", "      mode:   shadow   # not yet", "      mode:   enforce   # not yet"),
        ("flow", "\"mode\": 'shadow'}", "\"mode\": 'enforce'}"),
        ("flag", "      shadow: true", "      shadow: false"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_only_one_word_is_changed(rule: str, before: str, after: str, ends: str, mark: str) -> None:
    text = mark + YAML.replace("\n", ends)
    edit = promotion(text, rule, file="rules.yaml")
    assert edit.text == text.replace(before, after) != text
    assert edit.before.endswith(before) and edit.after.endswith(after)


def test_promoting_a_json_file_changes_one_word() -> None:
    text = '[{"id": "r",\t"when": {"tool_name_in": ["a"]}, "then": "block", "mode": "shadow"}]'
    edit = promotion(text, "r", file="rules.json")
    assert edit.text == text.replace('"shadow"', '"enforce"')


TWICE = """\
guard:
  - agent: a
    rules: [{id: r, when: {tool_name_in: [x]}, then: block, mode: shadow}]
  - agent: b
    rules: [{id: r, when: {tool_name_in: [x]}, then: block, mode: shadow}]
"""
SHARED = """\
x-off: &off shadow
guard:
  rules:
    - {id: r, when: {tool_name_in: [x]}, then: block, mode: *off}
    - {id: q, when: {tool_name_in: [x]}, then: block, mode: *off}
"""


@pytest.mark.parametrize(
    ("text", "rule", "why"),
    [
        (YAML, "live", "is not in shadow"),
        (YAML, "sof", "there is no rule `sof`"),
        (TWICE, "r", "the id of several rules"),
        (SHARED, "r", "rules.yaml"),
        ("guard: {rules: [{id: r}]}", "r", "has errors"),
    ],
)
def test_what_is_not_clear_is_refused(text: str, rule: str, why: str) -> None:
    with pytest.raises(NotPromoted, match=why):
        promotion(text, rule, file="rules.yaml")


def test_promote_from_python_enforces_the_rule(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(YAML.encode())
    assert bylaw.promote("soft", file).strip() == "mode:   enforce   # not yet"
    decision: Any = bylaw.Guard(file).decide(bylaw.Attempt(tool="pay", session="s"))
    assert decision.action is bylaw.Action.PAUSE

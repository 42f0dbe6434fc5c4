"""Files, texts and Python values → rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.lint.report import read_files
from bylaw.model.rule import Scope, Severity
from bylaw.rules import load_guard, load_rules, parse_rules, schemas
from bylaw.rules.loader import as_rules

RULE = "- id: {id}\n  kind: no_call\n  params: {{tool: x}}\n"


def codes(problem: InputError) -> list[str]:
    return [diagnostic.code for diagnostic in problem.diagnostics]


def test_a_rule_with_every_key_is_read(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nx-owner: me\nrules:\n  - id: a\n    kind: no_call\n    params: {tool: x}\n    when:\n"
        '      - {path: model, op: "==", value: m}\n    severity: critical\n    scope: session\n'
        "    description: why\n    tags: [one, two]\n    x-note: mine\n"
    )
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    (rule,) = load_rules(path)
    assert (rule.severity, rule.scope, rule.description) == (Severity.CRITICAL, Scope.SESSION, "why")
    assert rule.tags == ("one", "two")
    assert [str(condition) for condition in rule.when] == ["model == 'm'"]
    assert str(rule.span) == f"{path}:4:5"


def test_absent_keys_have_defaults() -> None:
    (rule,) = parse_rules(RULE.format(id="a"))
    assert (rule.severity, rule.scope, rule.when, rule.description) == (Severity.ERROR, Scope.TRACE, (), None)


def test_several_files_are_one_set_and_their_problems_are_shown_together(tmp_path: Path) -> None:
    first, second, third = tmp_path / "a.yaml", tmp_path / "b.json", tmp_path / "c.yaml"
    first.write_text(RULE.format(id="same") + "  colour: red\n")
    second.write_text('[{"id": "same", "kind": "no_call", "params": {"tool": "x"}}]')
    with pytest.raises(InputError) as caught:
        load_rules([second, first, third])
    assert codes(caught.value) == ["duplicate-id", "unknown-key", "no-such-file"]
    (duplicate,) = [d for d in caught.value.diagnostics if d.code == "duplicate-id"]
    assert (duplicate.file, duplicate.related[0].span.file) == (str(first), str(second))


def test_files_keep_their_order(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"{name}.yaml").write_text(RULE.format(id=name))
    ruleset = load_rules([str(tmp_path / "b.yaml"), tmp_path / "a.yaml"])
    assert [rule.id for rule in ruleset] == ["b", "a"]
    assert ruleset.files == (str(tmp_path / "b.yaml"), str(tmp_path / "a.yaml"))


def test_schema_path_is_relative_to_the_rule_file(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "s.json").write_text('{"type": "object"}')
    path = tmp_path / "rules" / "r.yaml"
    path.write_text("- id: a\n  kind: must_match_json_schema\n  params: {schema_path: s.json}\n")
    (rule,) = load_rules(path)
    assert rule.params == {"schema": {"type": "object"}}


def test_a_schema_path_names_no_pipe_or_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "/dev/zero"):
        text = f"- id: a\n  kind: must_match_json_schema\n  params: {{schema_path: {name}}}\n"
        (diagnostic,) = parse_rules(text, base=tmp_path).diagnostics
        assert diagnostic.code == "unreadable-schema"


def test_a_file_that_is_no_schema_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "secret.env").write_text("TOKEN=hunter2\n")
    text = "- id: a\n  kind: must_match_json_schema\n  params: {schema_path: secret.env}\n"
    (diagnostic,) = parse_rules(text, base=tmp_path).diagnostics
    assert diagnostic.code == "invalid-schema"
    assert "hunter2" not in repr(diagnostic)
    assert "TOKEN" not in repr(diagnostic)


@pytest.mark.parametrize("name", ["missing.yaml", "folder", "bad\0name", "x" * 5000])
def test_a_file_that_cannot_be_read_is_a_diagnostic(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (diagnostic,) = read_files([f"{tmp_path}/{name}"]).diagnostics
    assert diagnostic.code in ("no-such-file", "unreadable-file")
    assert diagnostic.span is None


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (8 * 1024**2 + 1))
    assert [d.code for d in read_files([path]).diagnostics] == ["too-large"]
    assert [d.code for d in parse_rules("#" * (8 * 1024**2 + 1)).diagnostics] == ["too-large"]


def test_errors_beyond_the_limit_are_counted_not_shown() -> None:
    found = parse_rules("\n".join(f"- {n}" for n in range(1500))).diagnostics
    assert len(found) == 1001
    assert found[-1].code == "more-problems"
    assert (str(found[-1].span), found[-1].severity) == ("<text>:1001:3", "error")


def test_more_warnings_than_are_shown_do_no_harm() -> None:
    values = ", ".join(["no"] * 1500)
    ruleset = parse_rules(f"- id: a\n  kind: must_match_json_schema\n  params: {{schema: {{enum: [{values}]}}}}\n")
    assert [rule.id for rule in ruleset] == ["a"]
    assert len(ruleset.diagnostics) == 1001
    assert {d.severity for d in ruleset.diagnostics} == {"warning"}


def test_a_schema_file_that_many_rules_name_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.json").write_text("{}")
    read: list[Path] = []
    monkeypatch.setattr(schemas, "read_text_file", lambda path, *_, **__: read.append(path) or path.read_text())
    rule = "- id: {}\n  kind: must_match_json_schema\n  params: {{schema_path: s.json}}\n"
    assert parse_rules("".join(map(rule.format, "abc")), base=tmp_path).ok
    assert len(read) == 1


def test_rules_built_in_code_are_read_like_a_file() -> None:
    values = [{"id": "a", "kind": "no_call", "params": {"tool": ("x", "y")}}]
    for source in (values, {"rules": values}, tuple(values)):
        (rule,) = load_rules(source)
        assert rule.span is None
        assert rule.params == {"tool": ["x", "y"]}


def test_mistakes_in_rules_built_in_code_show_a_line() -> None:
    with pytest.raises(InputError) as caught:
        load_rules([{"id": "a", "kind": "no_cal", "params": {"tool": "x"}}])
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.file) == ("unknown-kind", "<rules>")
    assert diagnostic.excerpt == '    "kind": "no_cal",'


def _endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({1, 2}, "wrong-type"),
        (object(), "wrong-type"),
        (float("nan"), "wrong-type"),
        (_endless(), "wrong-type"),
        (10**30, "number-range"),
        ("\ud800", "bad-surrogate"),
    ],
    ids=["set", "object", "nan", "endless", "large", "surrogate"],
)
def test_values_that_are_not_json_are_refused(value: object, code: str) -> None:
    with pytest.raises(InputError) as caught:
        load_rules([{"id": "a", "kind": "no_call", "params": {"tool": "x"}, "x-note": value}])
    assert codes(caught.value) == [code]


def test_no_rules_in_code_is_a_warning() -> None:
    ruleset = load_rules([])
    assert [d.code for d in ruleset.diagnostics] == ["no-rules"]
    assert len(ruleset) == 0


def test_a_source_that_is_neither_paths_nor_rules_is_a_type_error() -> None:
    for source in (42, [5], None, b"rules.yaml", 1.5):
        for load in (load_rules, as_rules, load_guard):
            with pytest.raises(TypeError, match="paths or mappings") as raised:
                load(source)  # type: ignore[operator]
            assert isinstance(raised.value, InputError)


def test_good_rules_of_a_bad_text_are_returned() -> None:
    ruleset = parse_rules(RULE.format(id="good") + "- id: bad\n")
    assert [rule.id for rule in ruleset.rules] == ["good"]
    assert not ruleset.ok

"""Every code has a page, and every example on a page is what the page says it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bylaw
from bylaw.lint.commands import codes, read_page
from bylaw.lint.contradictions import analyse
from bylaw.lint.report import SECTIONS
from bylaw.rules import parse_rules

PACKAGE = Path(bylaw.__file__).parent
_NAMED_CODE = re.compile(r"\bcode\b *(?::[^=\n]*)?=")
_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_EXAMPLE = re.compile(r"^(Wrong|Right):\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def codes_in(folder: str) -> set[str]:
    """Every text that is given to something called `code` in the sources under `folder`. The codes of the guard's HTTP
    API are explained by its OpenAPI document."""
    paths = [path for path in sorted((PACKAGE / folder).rglob("*.py")) if "service" not in path.parts]
    texts = [path.read_text("utf-8") for path in paths]
    trees = [ast.parse(text) for text in texts if _NAMED_CODE.search(text)]
    assert trees, f"there are no sources under {folder}"
    values = [value for tree in trees for node in ast.walk(tree) for value in _given_to_code(node)]
    return {text for value in values for text in _texts(value) if _CODE.fullmatch(text)}


def _given_to_code(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.keyword) and node.arg == "code":
        yield node.value
    elif isinstance(node, ast.Assign):
        named = any(isinstance(target, ast.Name) and target.id == "code" for target in node.targets)
        yield from [node.value] if named else []
    elif isinstance(node, ast.arguments):
        for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            if argument.arg == "code" and default is not None:
                yield default


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)


def test_every_code_in_the_sources_has_a_page() -> None:
    assert codes_in(".") - set(codes()) == set()


def test_codes_are_found_in_the_sources() -> None:
    assert {"unknown-kind", "bad-path", "yaml-tag", "yaml-syntax", "unknown-parameter", "bad-utf8"} <= codes_in("rules")


@pytest.mark.parametrize("code", codes())
def test_examples_on_a_page_have_its_code(code: str) -> None:
    page = read_page(code)
    assert page is not None
    assert page.startswith(f"# {code}\n")
    for label, language, text in _EXAMPLE.findall(page):
        if language in ("yaml", "json"):
            found = _codes_of(text, language)
            assert code in found if label == "Wrong" else found == []


def _codes_of(text: str, language: str) -> list[str]:
    rules = parse_rules(text, format="json" if language == "json" else "yaml", sections=SECTIONS)
    findings = analyse(rules.rules).findings if rules.ok else []
    return [diagnostic.code for diagnostic in (*rules.diagnostics, *findings)]


def test_unknown_codes_have_no_page() -> None:
    assert read_page("no-such-code") is None
    assert read_page("../pages/unknown-kind") is None
    assert read_page("__init__") is None

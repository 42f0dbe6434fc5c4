"""Every example in README.md and docs/ is run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest

from bylaw.contract.file.loader import parse_contract
from bylaw.engine.probes import CHUNK_KEYS
from bylaw.lint.contradictions import analyse
from bylaw.lint.report import SECTIONS
from bylaw.model.condition import OPERATORS
from bylaw.rules import parse_guard, parse_rules
from bylaw.rules.kinds import KINDS
from bylaw.rules.predicates import NAMES
from tests.docs import rule_examples, truth_tables
from tests.docs.console import Shell
from tests.docs.pages import ALL_PAGES, EXAMPLE, PAGES, ROOT, Block, blocks, lay_out
from tests.docs.python_examples import Interpreter
from tests.support.yaml_files import load_yaml

GUARD_REFERENCE = "docs/reference/guard.md"
CODES = "docs/reference/codes.md"
SEMANTICS = "docs/reference/semantics.md"
RULE_PAGES = [page for page in ALL_PAGES if page not in (CODES, SEMANTICS) and blocks(page, "yaml")]


def _named(found: list[Block]) -> list[object]:
    return [pytest.param(block, id=f"{block.line}-{block.heading}") for block in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lay_out(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", _named(blocks(SEMANTICS, "yaml")))
def test_semantics(block: Block, tmp_path: Path) -> None:
    rule_examples.run(block.text, tmp_path)


@pytest.mark.parametrize("page", [SEMANTICS, "docs/reference/kinds/must_be_grounded.md"])
def test_pages_list_the_keys_of_a_chunk_in_order(page: str) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    (listed,) = re.findall(r"`text`, `content`, `page_content`(?:(?:,| or) `\w+`)+", text)
    assert re.findall(r"`(\w+)`", listed) == list(CHUNK_KEYS)


def test_semantics_show_every_operator_and_every_kind() -> None:
    """Each kind has a section with an example of that kind, and the table of findings names it."""
    rules = [(block.heading, rule) for block in blocks(SEMANTICS, "yaml") for rule in load_yaml(block.text)["rules"]]
    assert {op for _, rule in rules for op in _operators(rule.get("when", []))} == set(OPERATORS)
    assert {heading for heading, rule in rules if rule["kind"] == heading} == set(KINDS)
    table = (ROOT / SEMANTICS).read_text("utf-8").partition("| kind | one finding |\n")[2].partition("\n\n")[0]
    assert {kind for row in table.splitlines() for kind in re.findall(r"`(\w+)`", row.split("|")[1])} == set(KINDS)


def _operators(when: Any) -> set[str]:
    if isinstance(when, list):
        return {op for one in when for op in _operators(one)}
    if "op" in when:
        return {when["op"]}
    return {op for key in ("any_of", "all_of", "not") for op in _operators(when.get(key, []))}


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, scripts and files that a page shows, in the order in which it shows them."""
    monkeypatch.chdir(folder)
    shell, python = Shell(folder), Interpreter(folder)
    with patch.dict(os.environ):  # what a page sets is gone on the next one
        for block in blocks(page):
            if block.title is not None:
                block.write_to(shell.folder)
            elif block.language == "console":
                shell.run(block)
            elif block.language == "python":
                python.run(block)


def test_pages_with_examples_are_found() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/guard.md", "docs/reference/python.md"} <= set(PAGES)


def test_truth_tables() -> None:
    cells = list(truth_tables.cells(GUARD_REFERENCE))
    for judge in (truth_tables.judge, truth_tables.judge_slowly):
        wrong = [(*cell, found) for cell in cells if (found := judge(*cell[:2])) is not cell[2]]
        assert not wrong, judge.__name__
    shown = {name for predicate, _, _ in cells for name in NAMES if name in predicate}
    assert shown == {name for name in NAMES if not name.startswith(("tool_name", "call_count"))}


@pytest.mark.parametrize("page", RULE_PAGES)
def test_rules_shown_can_be_used(page: str) -> None:
    for block in blocks(page, "yaml"):
        content = load_yaml(block.text)
        if isinstance(content, list) or "rules" in content:
            found = parse_rules(block.text, file=block.where, base=EXAMPLE)
            assert not found.diagnostics, block.where
            assert [rule.id for rule in found if not rule.scope_given] == [], f"{block.where}: a rule without a scope"
        elif "guard" in content and block.title not in ("gap.yaml", "burst.yaml"):  # shown for what lint says of them
            assert not parse_guard(block.text, file=block.where).diagnostics, block.where
        elif "contract" in content:
            read = parse_contract(block.text, file=block.where, base=ROOT)
            assert read.ok, block.where
            assert not read.diagnostics or block.title == "flakestorm.yaml", block.where  # shown for its warnings


@pytest.mark.parametrize("block", _named(blocks(CODES, "yaml", "json")))
def test_wrong_and_right(block: Block) -> None:
    """Of the files on a code's page the first has that problem, the others have none."""
    first = next(other for other in blocks(CODES) if other.heading == block.heading)
    format: Literal["json", "yaml"] = "json" if block.language == "json" else "yaml"
    found = parse_rules(block.text, file=block.where, format=format, sections=SECTIONS)
    findings = analyse(found.rules).findings if found.ok else []
    found_codes = {diagnostic.code for diagnostic in (*found.diagnostics, *findings)}
    assert block.heading in found_codes if block == first else not found_codes
    shows_it = block.heading == "guard-scope" and block == first
    assert shows_it or all(rule.scope_given for rule in found), "a rule without a scope"

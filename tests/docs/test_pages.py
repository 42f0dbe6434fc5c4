"""The pages hang together: every page is in the site's navigation, and the README's links and commands work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from bylaw.cli import COMMANDS
from bylaw.traces.formats.catalogue import CATALOGUE
from tests.docs.console import Shell
from tests.docs.pages import ROOT, blocks
from tests.support.yaml_files import load_yaml

LINK = re.compile(r"\]\(([^)]+)\)")
README = (ROOT / "README.md").read_text("utf-8")
ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")


def _pages_in(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from _pages_in(list(nav.values()))
    else:
        for entry in nav:
            yield from _pages_in(entry)


def test_every_page_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    listed = list(_pages_in(load_yaml((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    from_kinds = {f"reference/{link}" for link in LINK.findall((docs / "reference" / "kinds.md").read_text("utf-8"))}
    assert len(listed) == len(set(listed))
    assert pages == set(listed) | {link for link in from_kinds if "/kinds/" in link}


def test_every_format_is_described() -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text("utf-8").partition("## Each format\n")[2]
    described = set(re.findall("`([^`]+)`", " ".join(re.findall(r"^(?:\[Traces\].*|\| [^|]*)", page, re.M))))
    assert set(CATALOGUE) <= described


def test_prose_fits_120_columns() -> None:
    """Tables, code, pictures and generated pages may be wider."""
    too_long = []
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ROOT_PAGES)]:
        text = page.read_text("utf-8")
        if not text.startswith("<!-- Written by"):
            prose = re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
            wide = [
                line for line in prose.splitlines() if len(line) > 120 and not line.lstrip().startswith(("|", "!["))
            ]
            too_long += [(str(page.relative_to(ROOT)), line) for line in wide]
    assert too_long == []


@pytest.mark.parametrize("page", ROOT_PAGES)
def test_links_outside_the_site_lead_somewhere(page: str) -> None:
    """`make docs` checks the links inside the site."""
    text = (ROOT / page).read_text("utf-8")
    for link in LINK.findall(text):
        assert link.startswith("https://") or (ROOT / page).parent.joinpath(link.partition("#")[0]).exists(), link


def test_the_readme_lists_every_command() -> None:
    assert set(re.findall(r"^\| `bylaw (\w+)` \|", README, re.MULTILINE)) == set(COMMANDS)


def test_the_first_commands_of_the_readme_work_after_an_installation(tmp_path: Path) -> None:
    """In an empty folder, line by line."""
    lines = [line.partition("#")[0] for line in blocks("README.md", "console")[0].text.splitlines()]
    assert lines.pop(0) == "pip install bylaw"
    shell = Shell(tmp_path)
    for line in lines:
        printed = shell.output(line.strip())
    assert shell.code == 1
    assert "FAILED: 1 of 5 rules broken" in printed


def test_the_verbs_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    verbs = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert verbs
    for verb in verbs:
        assert f"\n{verb}:" in makefile


def test_the_readme_on_a_package_index_has_no_relative_links() -> None:
    readme = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    assert [link for link in LINK.findall(readme) if not link.startswith("https://")] == []
    assert "Tutorial (`docs/tutorial.md`)" in readme
    assert "$ bylaw check v2.jsonl --policy bylaw.yaml" in readme

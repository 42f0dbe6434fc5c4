"""The project's own files agree with each other."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.yaml_files import load_yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def drawn_in(requirements: list[str]) -> Iterator[tuple[str, str]]:
    """What these requirements install, transitively, as name and installed version."""
    waiting, seen = list(requirements), set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if (requirement.marker and not requirement.marker.evaluate({"extra": ""})) or requirement.name in seen:
            continue
        seen.add(requirement.name)
        installed = distribution(requirement.name)
        yield canonicalize_name(requirement.name), installed.version
        waiting += installed.requires or []


OWN_ENVIRONMENT = {file.stem: file for file in (ROOT / "tests/guard/integrations/requirements").glob("*.txt")}
"""frameworks that conflict with each other, so that `.venv` has not all of them"""


@pytest.mark.parametrize("extra", sorted(OWN_ENVIRONMENT))
def test_a_framework_is_tested_with_what_its_extra_allows(extra: str) -> None:
    lines = OWN_ENVIRONMENT[extra].read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    for requirement in map(Requirement, [*EXTRAS[extra], *PROJECT["dependencies"]]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("extra", ["base", *(name for name in EXTRAS if name not in OWN_ENVIRONMENT)])
def test_all_that_is_installed_is_pinned(extra: str) -> None:
    try:
        installed = dict(drawn_in(EXTRAS.get(extra, PROJECT["dependencies"])))
    except PackageNotFoundError as missing:
        pytest.skip(f"the {extra} extra is not installed: {missing.name}")
    assert installed.items() <= pins().items()


def test_constraints_are_plain_sorted_pins() -> None:
    names = list(pins())
    assert names == sorted(names)
    assert all(name == canonicalize_name(name) for name in names)
    assert all(re.fullmatch(r"[0-9.]+(b[0-9]+)?", version) for version in pins().values())


def test_supported_pythons_are_the_tested_ones() -> None:
    workflow = load_yaml((ROOT / ".github/workflows/test.yml").read_text())
    prefix = "Programming Language :: Python :: 3."
    classified = ["3." + c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == classified


def test_each_verb_of_the_makefile_is_documented() -> None:
    verbs = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert [verb for verb in verbs if f"`make {verb}`" not in contributing] == ["help"]


def test_every_design_page_is_listed() -> None:
    folder = ROOT / "docs" / "design"
    pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text()))


def test_every_folder_of_tests_is_explained() -> None:
    folder = ROOT / "tests"
    folders = {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(re.findall(r"^\| `(\w+)/` \|", (folder / "README.md").read_text(), re.MULTILINE))


def test_every_package_is_explained() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "bylaw").glob("*/__init__.py")}
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| package | holds |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
    assert named == packages
    layout = (ROOT / "docs" / "design" / "layout.md").read_text()
    assert set(re.findall(r"^[├└]── (\w+)/", layout, re.MULTILINE)) == packages


ALWAYS_TRUE = re.compile(
    r"""^\s*assert\ (?:
        (?:True|1|not\ False)\s*(?:$|,|\#|and\b|or\b)  # a constant
      | (?:.*[\s(])?(?P<same>[A-Za-z_][\w.]*)\ (?:is|==|<=|>=)\ (?P=same)(?![\w.(\[])
      | (?:.*[\s(])?(?P<either>[A-Za-z_][\w.]*)\ or\ not\ (?P=either)(?![\w.(\[])
      | (?:.*[\s(])?not\ (?P<neither>[A-Za-z_][\w.]*)\ or\ (?P=neither)(?![\w.(\[])
    )
    | \braises\((?:Base)?Exception\)  # also an AssertionError, and a mistake in the test itself
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize(
    "line",
    ["assert True", "    assert out is out and x", "assert a.b == a.b", "assert (x or not x)", "assert not y or y, 1"],
)
def test_an_assertion_that_is_always_true_is_recognised(line: str) -> None:
    assert ALWAYS_TRUE.search(line) and not ALWAYS_TRUE.search(line.replace("assert", "check"))


@pytest.mark.parametrize(
    "line", ["assert a == a.b", "assert once() == once()", "assert x or not y", "assert is_x == x"]
)
def test_an_assertion_that_can_fail_is_not(line: str) -> None:
    assert not ALWAYS_TRUE.search(line)


def test_no_assertion_is_always_true() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if ("assert " in line or "raises(" in line) and ALWAYS_TRUE.search(line.partition("  #")[0])
    ]
    assert len(files) > 100 and found == []


def test_links_of_the_readme_work_on_a_package_index() -> None:
    hook = runpy.run_path(str(ROOT / "scripts" / "index_readme.py"))["without_relative_links"]
    readme = (ROOT / "README.md").read_text("utf-8")
    relative = re.compile(r"\]\((?!https?:)")
    assert relative.search(readme)
    for repository in (None, "https://code.example/bylaw/"):
        assert not relative.search(hook(readme, repository))
    linked = hook(readme, "https://code.example/bylaw/")
    assert "](https://code.example/bylaw/raw/main/docs/pictures/check.svg)" in linked
    assert "](https://code.example/bylaw/blob/main/docs/tutorial.md)" in linked

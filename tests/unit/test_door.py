"""The door: a short sorted list of names, each of which opens, and nothing heavy behind `import bylaw`."""

from __future__ import annotations

import inspect
import operator
import subprocess
import sys
import typing
from unittest import mock

import pytest

import bylaw

HEAVY = ("msgspec", "yaml", "re2", "jsonschema_rs", "numpy", "rapidfuzz", "zstandard")


def test_the_names_are_sorted() -> None:
    assert bylaw.__all__ == sorted(bylaw.__all__)
    assert dir(bylaw) == bylaw.__all__


@pytest.mark.parametrize("name", bylaw.__all__)
def test_every_name_opens(name: str) -> None:
    assert getattr(bylaw, name) is not None


def test_an_unknown_name_says_so() -> None:
    with pytest.raises(AttributeError, match="no attribute `chekc`"):
        _ = bylaw.chekc  # type: ignore[attr-defined]


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n")[-2].split())


def test_import_bylaw_imports_nothing_heavy() -> None:
    assert loaded_by("import bylaw") == set()


def test_help_imports_nothing_heavy_but_the_error_types() -> None:
    help_text = "from bylaw.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_by(help_text) <= {"msgspec"}


def test_check_does_without_what_only_diff_needs() -> None:
    assert loaded_by("import bylaw\nbylaw.check") & {"numpy", "rapidfuzz"} == set()


def test_functions_keep_their_names_when_the_packages_of_their_jobs_are_imported() -> None:
    script = (
        "import bylaw.check.command, bylaw.diff.api, bylaw.record.api, bylaw\n"
        "assert callable(bylaw.check) and callable(bylaw.diff) and callable(bylaw.record)\n"
        "from bylaw import check\n"
        "assert check is bylaw.check"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("name", ["check", "load_rules"])
def test_a_name_can_be_replaced_for_a_test(name: str) -> None:
    original = getattr(bylaw, name)
    with mock.patch(f"bylaw.{name}", lambda: "replaced"):
        assert getattr(bylaw, name)() == "replaced"
    assert getattr(bylaw, name) is original


@pytest.mark.parametrize("name", ["check", "diff"])
def test_type_hints_of_functions_can_be_resolved(name: str) -> None:
    assert "return" in typing.get_type_hints(getattr(bylaw, name))


def test_every_public_name_and_method_is_documented() -> None:
    undocumented = []
    for name in bylaw.__all__:
        value = getattr(bylaw, name)
        members = vars(value) if inspect.isclass(value) else {}
        methods = [f"{name}.{key}" for key in members if not key.startswith("_") and inspect.isroutine(members[key])]
        for path in [name, *methods]:
            found = operator.attrgetter(path)(bylaw)
            if callable(found) and not inspect.getdoc(found):
                undocumented.append(path)
    assert undocumented == []

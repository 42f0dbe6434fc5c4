"""`bylaw check` imports few modules, and no library that it does not use. `bench/startup.py` measures the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.startup import CHECK, IMPORT_LIBRARIES, run, write_example

NEEDLESS = {
    *("asyncio", "concurrent", "email", "http", "multiprocessing", "socket", "sqlite3", "ssl", "unittest", "xml"),
    *("anyio", "google", "httpx", "jsonschema_rs", "numpy", "opentelemetry", "rapidfuzz", "rich", "starlette"),
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The modules that are imported when `bylaw check` ends."""
    folder = tmp_path_factory.mktemp("startup")
    write_example(folder)
    return run(CHECK, folder).modules


def test_check_imports_no_library_that_it_does_not_use(modules: frozenset[str]) -> None:
    assert "bylaw.check.api" in modules
    assert {name.split(".")[0] for name in modules} & NEEDLESS == set()


def test_check_imports_no_other_job(modules: frozenset[str]) -> None:
    jobs = {"ci", "comply", "contract", "diff", "guard", "inspect", "lint", "record", "wire"}
    assert {name.split(".")[1] for name in modules if name.startswith("bylaw.")} & jobs == set()


def test_check_imports_about_twice_as_many_modules_as_its_libraries(modules: frozenset[str], tmp_path: Path) -> None:
    """The count stands for the CPU time, whose ratio to that of the libraries `bench/startup.py` measures."""
    libraries = run(IMPORT_LIBRARIES, tmp_path).modules
    assert len(modules) <= 2.1 * len(libraries), sorted(modules - libraries)


def test_importing_bylaw_imports_no_library(tmp_path: Path) -> None:
    modules = run("import bylaw, sys; print(sorted(sys.modules), file=sys.stderr)", tmp_path).modules
    assert {name for name in modules if name.startswith("bylaw")} == {"bylaw"}
    assert not {name.split(".")[0] for name in modules} & {"click", "msgspec", "re2", "yaml", *NEEDLESS}

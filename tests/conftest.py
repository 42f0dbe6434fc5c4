"""Profiles for Hypothesis: the same 6 examples for everyone in `make test`, 1,000 random ones in `make proof`."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from tests.support import forked_tests
from tests.support.authorities import trust_one_authority
from tests.support.forked_tests import count_processes

# Threads of BLAS gain nothing on matrices this small, and wait for each other actively.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

trust_one_authority()

# A shell starts jobs in the background with interrupts ignored, `nohup` without hang-ups, and the commands under test
# would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("test", max_examples=6, deadline=None, derandomize=True, suppress_health_check=_CALM)
settings.register_profile("proof", max_examples=1_000, deadline=None, suppress_health_check=_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@pytest.hookimpl(tryfirst=True)  # before the tests marked `proof` are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `proof` what `sampled(n)` leaves out. Each test begins elsewhere, so that together they take all."""
    cases: dict[str, list[tuple[int, pytest.Item]]] = {}
    for item in items:
        if marker := item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append((marker.args[0], item))
    for number, of_test in enumerate(cases.values()):
        for index, (every, item) in enumerate(of_test):
            if len(of_test) >= every and index % every != number % every:
                item.add_marker(pytest.mark.proof)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real traces; tests that need it are marked `corpus`."""
    if not DATA.is_dir():
        pytest.skip("the folder of real traces is not beside this checkout")
    return DATA


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Report one phase of each test, unless more failed: the other two cost as much as the shortest tests."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files in tests/golden")
    parser.addoption(
        "--processes", type=count_processes, default=1, metavar="N", help="run the tests in N processes, or `auto`"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(forked_tests)


# Thousands of collected tests stay until the end: searching them for garbage again and again takes a tenth of the time.
def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()

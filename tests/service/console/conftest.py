"""A service with the demo's traffic, visited without a browser or with Debian's Chromium (`browser`).

One store serves all tests of a file; a test that changes something uses sessions of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.service.console.site import Site

CHROMIUM = shutil.which("chromium")
WAIT = 120_000
"""milliseconds: the tests share two cores with others"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("console"), hours=0.6)
    yield made
    made.context.close()
    made.store.close()


@pytest.fixture(scope="module")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("empty"), hours=None)
    yield made
    made.context.close()
    made.store.close()


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(site: Site) -> Iterator[Site]:
    """The site on a port of this machine, in a thread of this process."""
    import uvicorn

    config = uvicorn.Config(site.app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + WAIT / 1000
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    site.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield site
    site.context.stopping.set()
    server.should_exit = server.force_exit = True
    thread.join(WAIT / 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def signed_in(browser: Any, served: Site) -> Callable[[str], Any]:
    """name → the cookies of somebody who has signed in with the form."""
    known: dict[str, Any] = {}

    def state(name: str) -> Any:
        if name not in known:
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{served.url}/console/")
            page.fill("#key", served.key(name))
            page.click("text=Sign in >> nth=-1")
            page.wait_for_url("**/console/tasks", timeout=WAIT)
            known[name] = context.storage_state()
            context.close()
        return known[name]

    return state


@pytest.fixture(scope="session")
def axe() -> str | None:
    """The source of axe-core, which npm fetches; it is no part of this project. None if it is not to be had."""
    folder = Path(__file__).resolve().parents[3] / ".venv" / "axe-core"
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    npm = shutil.which("npm")
    if not file.exists() and npm is not None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@4"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    return file.read_text("utf-8") if file.exists() else None

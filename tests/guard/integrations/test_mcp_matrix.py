"""`bylaw guard mcp` as a process, with the official client and real servers: every transport, both eras."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bylaw
from tests.guard.integrations.mcp_support import PYTHON, SHOP, exercise, running_shop, runs_in, talkative_client
from tests.guard.integrations.situations import RULES

mcp = pytest.importorskip("mcp", reason="mcp is not installed")
pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore")]
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])
WAYS = ["stdio>stdio", "stdio>http", "stdio>sse", "http>stdio", "http>http", "http>sse", "router"]


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    runs = tmp_path_factory.mktemp("shops") / "runs"
    with running_shop("http", runs) as http, running_shop("sse", runs) as sse:
        yield {"http": http, "sse": sse, "runs": str(runs)}


@pytest.fixture(autouse=True)
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a server starts in more than the ten seconds after which the client takes it for an old one."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 300.0)


class Way:
    """A client's way to the shop, through the command."""

    def __init__(self, folder: Path, shops: dict[str, str], way: str, rules: dict[str, Any]) -> None:
        self.folder, self.way, self.store = folder, way, folder / "g.db"
        self.runs_file = Path(shops["runs"])
        self.runs_file.write_text("")
        (folder / "guard.yaml").write_text(json.dumps({"guard": rules}))
        kind = way.rpartition(">")[2]
        shop = [*PYTHON, str(SHOP)]
        if way == "router":
            server = ["--server", f"a={shops['http']}", "--server", f"b={' '.join(shop)}"]
        else:
            server = ["--", *shop] if kind == "stdio" else ["--url", shops[kind]]
        self.arguments = ["-m", "bylaw", "guard", "mcp", "-p", str(folder / "guard.yaml"), "--store", str(self.store)]
        self.server, self.environment = server, {**os.environ, "SHOP_RUNS": str(self.runs_file)}
        self.prefix = "b__" if way == "router" else ""

    def runs(self) -> list[str]:
        return [tool for tool, _ in runs_in(self.runs_file)]

    @contextmanager
    def target(self, *more: str) -> Iterator[Any]:
        if self.way.startswith("stdio") or self.way == "router":
            arguments = ["-W", "ignore", *self.arguments, *more, *self.server]
            yield mcp.StdioServerParameters(command=PYTHON[0], args=arguments, env=self.environment)
            return
        command = [*PYTHON, *self.arguments, *more, "--listen", "127.0.0.1:0", *self.server]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("listening on "), line
            try:
                yield line.split()[-1]
            finally:
                process.terminate()
            assert process.wait(20) == 0


ALLOWING = {"rules": [{"id": "no", "when": {"tool_name_in": ["none"]}, "then": "block"}]}


@MODES
@pytest.mark.parametrize("way", WAYS[:-1])
def test_what_is_passed_through(tmp_path: Path, shops: dict[str, str], way: str, mode: str) -> None:
    async def run(target: Any) -> Any:
        heard: list[str] = []
        async with talkative_client(target, mode, heard) as client:
            return await exercise(client), heard

    kind = way.rpartition(">")[2]
    if kind == "stdio":
        direct: Any = mcp.StdioServerParameters(command=PYTHON[0], args=["-W", "ignore", str(SHOP)])
    elif kind == "sse":  # the client itself would not know this transport by the URL
        from mcp.client.sse import sse_client

        direct, mode = sse_client(shops["sse"]), "legacy"
    else:
        direct = shops["http"]
    expected = asyncio.run(run(direct))
    with Way(tmp_path, shops, way, ALLOWING).target() as target:
        assert asyncio.run(run(target)) == expected


@MODES
@pytest.mark.parametrize("way", WAYS)
def test_the_eight_situations(tmp_path: Path, shops: dict[str, str], way: str, mode: str) -> None:
    path = Way(tmp_path, shops, way, {**RULES, "rules": [rule for rule in RULES["rules"] if rule["id"] != "limit"]})
    if path.prefix:
        for tool in ("drop", "pay", "wipe", "book"):
            text = (tmp_path / "guard.yaml").read_text()
            (tmp_path / "guard.yaml").write_text(text.replace(f'"{tool}"', f'"{path.prefix}{tool}"'))

    async def call(client: Any, tool: str, **arguments: Any) -> str:
        result = await client.call_tool(f"{path.prefix}{tool}", arguments)
        return ("error: " if result.is_error else "") + result.content[0].text

    def answer(how: str) -> None:
        with bylaw.Guard(tmp_path / "guard.yaml", store=path.store) as guard:
            [review] = guard.reviews.list(status="pending")
            edited = {"tool": f"{path.prefix}pay", "arguments": {"amount": 7}} if how == "edit" else None
            if how == "reject":
                guard.reviews.reject(review.id, by="ann")
            else:
                guard.reviews.approve(review.id, by="ann", edited=edited)

    async def run(target: Any) -> None:
        async with mcp.Client(target, mode=mode, read_timeout_seconds=60) as client:
            assert await call(client, "look") == "look done"
            assert (await call(client, "drop")).startswith("error: tables stay")
            for amount, how in ((500, "approve"), (600, "edit"), (700, "reject")):
                assert (await call(client, "pay", amount=amount)).startswith("error: waiting for a person: review-")
                await asyncio.to_thread(answer, how)
                assert (await call(client, "pay", amount=amount) == "pay done") is (how != "reject")
            reported = await asyncio.gather(call(client, "book", seat=1), call(client, "book", seat=2))
            assert sorted(one.partition(";")[0] for one in reported) == ["book done", "error: one booking"]
            other = sqlite3.connect(path.store, isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            assert (await call(client, "look")).startswith("error: "), "the guard cannot decide"
            other.execute("ROLLBACK")
            other.close()
            assert await call(client, "look") == "look done"
            assert (await call(client, "wipe")).startswith("error: it is over")
            assert (await call(client, "look")).startswith("error: ")

    with path.target("--session", "s") as target:
        asyncio.run(run(target))
    assert path.runs() == ["look", "pay", "pay", "book", "look"]
    assert [given["amount"] for tool, given in runs_in(path.runs_file) if tool == "pay"] == [500, 7]


@MODES
@pytest.mark.parametrize("way", ["stdio>stdio", "http>http"])
def test_a_call_that_waits_is_approved_edited_or_rejected(
    tmp_path: Path, shops: dict[str, str], way: str, mode: str
) -> None:
    path = Way(tmp_path, shops, way, {**RULES, "rules": [rule for rule in RULES["rules"] if rule["id"] == "much"]})

    async def run(target: Any) -> list[bool]:
        async with mcp.Client(target, mode=mode, read_timeout_seconds=60) as client:
            found = []
            for how in ("approve", "edit", "reject"):
                task = asyncio.create_task(client.call_tool("pay", {"amount": 500}))
                await asyncio.to_thread(answer, how)
                found.append((await task).is_error)
            return found

    def answer(how: str) -> None:
        with bylaw.Guard(tmp_path / "guard.yaml", store=path.store) as guard:
            while not (pending := guard.reviews.list(status="pending")):
                pass
            if how == "reject":
                guard.reviews.reject(pending[0].id, by="ann")
            else:
                edited = {"tool": "pay", "arguments": {"amount": 7}} if how == "edit" else None
                guard.reviews.approve(pending[0].id, by="ann", edited=edited)

    with path.target("--wait", "30") as target:
        assert asyncio.run(run(target)) == [False, False, True]
    assert [arguments["amount"] for _, arguments in runs_in(path.runs_file)] == [500, 7]

"""The server around the application: sockets, slow clients, another language, and the end."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

import bylaw
from bylaw.guard.service import gate, server
from bylaw.guard.service.app import ServeConfig, ServiceFile, Tls, find_jobs, make_app, read_service_file
from bylaw.guard.service.client import GuardClient
from bylaw.guard.service.server import LogFormatter, listening, uvicorn_config
from bylaw.guard.stores import MemoryStore, SqliteStore
from tests.service.support import RULES, Site

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/service/guard.mts"
PYTHON = [sys.executable, "-m", "bylaw", "guard"]


@contextmanager
def served(app: Any, listen: str, config: ServeConfig | None = None) -> Iterator[str]:
    """The application on a real socket, in a thread of this process."""
    with listening(listen) as (bound, address):
        server = uvicorn.Server(uvicorn_config(config or ServeConfig(policies=()), app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            until = time.monotonic() + 20
            while not server.started and time.monotonic() < until:
                time.sleep(0.01)
            yield address
        finally:
            server.should_exit = True
            thread.join(20)


def answer_times(port: int) -> list[float]:
    """Seconds for each of some requests on one connection."""
    times = []
    with socket.create_connection(("127.0.0.1", port), 5) as connected:
        for _ in range(10):
            started = time.monotonic()
            connected.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = b""
            while b'"ok":true' not in answer:
                answer += connected.recv(4096)
            times.append(time.monotonic() - started)
    return times[2:]


def is_cut_off(port: int, begin: bytes) -> bool:
    """Whether a request that goes on and on is refused before it has sent 8 MiB."""
    with socket.create_connection(("127.0.0.1", port), 5) as endless:
        try:
            endless.sendall(begin)
            for _ in range(128):
                endless.sendall(b"v" * 65_536)
        except OSError:
            return True
    return False


def test_what_callers_name_begins_no_line_of_the_log() -> None:
    forged = "c\nERROR: forged\x1b[31m\u2028"
    try:
        raise ValueError(forged)
    except ValueError:
        record = logging.LogRecord("bylaw", logging.ERROR, "", 1, "call %s\n", (forged,), sys.exc_info())
    first, *rest = LogFormatter().format(record).split("\n")
    assert first == r"ERROR: call c\nERROR: forged\x1b[31m\u2028"
    assert rest and all(line.startswith("    ") and line.isprintable() for line in rest)


def in_javascript(script: Path, folder: Path) -> list[str]:
    """The command that runs TypeScript: Node itself from 22.18 on, else the compiler translates it first."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, version.strip("v\n").split(".")[:2])) >= (22, 18):
        return [node, str(script)]
    read = "require('typescript').transpileModule(require('fs').readFileSync(0, 'utf8'), {compilerOptions: OPTIONS})"
    options = json.dumps({"target": "es2022", "module": "es2022"})
    program = f"process.stdout.write({read.replace('OPTIONS', options)}.outputText)"
    made = subprocess.run(
        [node, "-e", program], cwd=typescript(), input=script.read_bytes(), capture_output=True, check=True
    )
    (folder / "example.mjs").write_bytes(made.stdout)
    return [node, str(folder / "example.mjs")]


def typescript() -> Path:
    """The folder of the compiler, which npm fetches once."""
    folder, npm = ROOT / ".venv" / "typescript", shutil.which("npm")
    packages = folder / "node_modules"
    if not (packages / "@types").exists() and npm is not None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        with suppress(subprocess.TimeoutExpired):
            wanted = ["typescript@5", "@types/node@20"]
            subprocess.run([*command, *wanted], cwd=folder, capture_output=True, timeout=240, check=False)
    if not (packages / "@types").exists():
        pytest.skip("npm cannot fetch the TypeScript compiler")
    return folder


@pytest.mark.proof
def test_the_example_in_typescript_has_sound_types(tmp_path: Path) -> None:
    copy = shutil.copy(EXAMPLE, typescript() / EXAMPLE.name)
    compiler = ["npx", "tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
    done = subprocess.run([*compiler, copy], cwd=typescript(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_another_language_uses_it_and_slow_heads_are_given_up(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "HEAD_SECONDS", 0.2)
    with served(site.app, "127.0.0.1:0") as address:
        port = int(address.rpartition(":")[2])
        assert min(answer_times(port)) < 0.03  # else the body waits for an acknowledgement of the head
        with socket.create_connection(("127.0.0.1", port), 5) as slow:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in slow.recv(4096)
            slow.sendall(b"GET /healthz HTTP/1.1\r\nho")
            started = time.monotonic()
            while slow.recv(4096):
                pass
            assert time.monotonic() - started < 4
        chunked = b"POST /v1/decide HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: "
        for begin in (b"GET /healthz HTTP/1.1\r\nx: ", b"GET /", chunked):
            assert is_cut_off(port, begin), begin
        environment = {
            "BYLAW_URL": address,
            "BYLAW_KEY": site.keys["support"],
            "BYLAW_WAIT": "0",
            "PATH": os.environ["PATH"],
        }
        command = [*in_javascript(EXAMPLE, tmp_path), "n-1"]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second, third, fourth = map(json.loads, done.stdout.splitlines())
    assert (first, second) == ({"order": "A-23", "total": 199}, "199 refunded")
    assert third["denied"] == "a refund over 500 needs a person"
    assert "not a tool of this agent" in fourth["denied"]
    view = site.ops.sessions.get("n-1")
    assert view.summary.status == "ended" and view.tree[0].calls[1].result == "199 refunded"


def test_a_client_reaches_it_over_a_unix_socket(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "guard.sock"
    with served(site.app, f"unix:{path}"):
        assert path.stat().st_mode & 0o077 == 0
        with GuardClient(f"unix:{path}", key=site.keys["support"]) as guard:
            assert guard.decide(bylaw.Attempt(tool="lookup_order", session="u"))
        with pytest.raises(OSError, match="listens there already"), listening(f"unix:{path}"):
            pass


def test_it_speaks_tls(site: Site, tmp_path: Path) -> None:
    import ssl

    import httpx2
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    tls = Tls(certificate=str(tmp_path / "own.pem"), key=str(tmp_path / "own.pem"))
    config = ServeConfig(policies=(), file=ServiceFile(tls=tls))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with served(site.app, "127.0.0.1:0", config) as address, httpx2.Client(verify=trusting) as web:
        port = address.rpartition(":")[2]
        answer = web.get(f"https://localhost:{port}/healthz")
        assert answer.json()["ok"] and "max-age" in answer.headers["strict-transport-security"]


def test_the_command_serves_and_ends_without_losing_anything(tmp_path: Path) -> None:
    """A whole process: keys, a decision, SIGTERM while a stream is open, and an intact audit."""
    (tmp_path / "guard.yaml").write_text(RULES)
    store = SqliteStore(tmp_path / "guard.db")
    from bylaw.guard.service.auth import Credentials

    key, _ = Credentials(store).create("bot", ["agent"], agents=["support"])
    operator, _ = Credentials(store).create("ann", ["operator"])
    store.close()
    command = [*PYTHON, "serve", "-p", "guard.yaml", "--store", "guard.db", "--listen", "127.0.0.1:0", "--no-console"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    with GuardClient(address, key=key, timeout=30) as guard:
        decision = guard.decide(bylaw.Attempt(tool="issue_refund", arguments={"amount": 900}, session="s"))
        assert decision.action is bylaw.Action.PAUSE
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as stream:
            head = f"GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {operator}\r\n\r\n"
            stream.sendall(head.encode())
            assert b"200 OK" in stream.recv(4096)
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
    process.stderr.close()
    report = bylaw.verify_audit(tmp_path / "guard.db")
    assert (report.findings, report.decisions) == ([], 1)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("starts", [True, False])
def test_it_says_that_it_listens_once_a_worker_is_ready(
    starts: bool, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.yaml").write_text(RULES)
    reported: list[str] = []
    before: list[str] = []
    is_ready = threading.Event()

    def ready(address: str) -> None:
        reported.append(address)
        is_ready.set()

    def work(config: ServeConfig, *_: Any) -> None:
        """The worker in this process, which takes a while to start."""
        time.sleep(0.1)
        before.extend(reported)
        if not starts:
            raise RuntimeError("the worker does not start")
        with TestClient(make_app(config, MemoryStore())):
            assert is_ready.wait(10)

    monkeypatch.setattr(server, "_run_one" if workers == 1 else "_run_several", work)
    listen, store = f"unix:{tmp_path / 'guard.sock'}", str(tmp_path / "guard.db")
    policies = (str(tmp_path / "guard.yaml"),)
    config = ServeConfig(policies=policies, store=store, listen=listen, workers=workers, follow=False)
    with nullcontext() if starts else pytest.raises(RuntimeError, match="does not start"):
        server.serve(config, ready)
    assert (before, reported) == ([], [listen] if starts else [])


def test_the_rules_of_the_files_and_of_the_api_take_turns(tmp_path: Path) -> None:
    """Whichever came last is in force, also after a restart."""
    file = tmp_path / "guard.yaml"
    file.write_text(RULES)
    store = MemoryStore()
    config = ServeConfig(policies=(str(file),))

    def limit() -> int:
        context = make_app(config, store).state.context
        rule = next(one for one in context.operations.rules.list() if one.id == "large-refund")
        return int(rule.params["when"]["any_of"][0]["arg_gt"]["value"])

    assert limit() == 500
    operations = make_app(config, store).state.context.operations
    operations.rules.activate({"new.yaml": RULES.replace("value: 500", "value: 7")}, by="root")
    assert limit() == 7
    file.write_text(RULES.replace("value: 500", "value: 8"))
    assert limit() == 8
    assert [one.origin for one in operations.rules.versions()] == ["file", "api", "file"]
    file.write_text("guard: [")
    with pytest.raises(bylaw.InputError):
        limit()


def test_the_configuration_file_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(
        "people: {operators: [ann], trusted: [unix]}\nlimits: {rate: 5}\ntls: {certificate: c.pem, key: k.pem}\n"
    )
    found = read_service_file(str(path))
    assert found.people.operators == ("ann",) and found.limits.rate == 5 and found.tls is not None
    for wrong in (
        "people: {operator: [ann]}",
        "limits: {rate: fast}",
        "oidc: {issuer: http://x, client_id: a, public_url: b}",
        "[",
        "x: 1",
    ):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"serve\.yaml"):
            read_service_file(str(path))
    path.write_text("")
    assert read_service_file(str(path)) == ServiceFile()
    assert set(find_jobs("bylaw.ci.service_jobs:JOBS")) == {"check", "check_compliance"}
    for listen in ("here", "127.0.0.1:99999", "127.0.0.1:x"):
        with pytest.raises(ValueError, match="not an address"), listening(listen):
            pass


def test_an_answer_is_the_same_whichever_way_it_is_sent(site: Site) -> None:
    """Whole answers take a short way past uvicorn, unless the connection ends with them."""

    def ask(number: int, version: str = "1.1", more: str = "") -> bytes:
        body = json.dumps({"tool": "lookup_order", "session": f"s-{number}"})
        head = f"POST /v1/decide HTTP/{version}\r\nhost: x\r\nauthorization: Bearer {site.keys['support']}\r\n"
        return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n{body}".encode()

    def answers(given: bytes, number: int) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", port), 5) as connected:
            connected.sendall(given)
            found = b""
            while found.count(b'"latency_us"') < number:
                found += connected.recv(65_536)
        return found.split(b"HTTP/1.1 ")[1:]

    def headers(answer: bytes) -> dict[str, str]:
        lines = answer.partition(b"\r\n\r\n")[0].decode().splitlines()[1:]
        return {name: value for name, _, value in (line.partition(": ") for line in lines)}

    with served(site.app, "127.0.0.1:0") as address:
        port = int(address.rpartition(":")[2])
        pipelined = answers(ask(1) + ask(2) + ask(3), 3)
        [closing] = answers(ask(4, more="connection: close\r\n"), 1)
        [old] = answers(ask(5, version="1.0"), 1)
    usual = headers(old)
    assert usual.pop("connection") == "close" == headers(closing)["connection"]
    for number, answer in enumerate(pipelined, start=1):
        assert headers(answer).keys() == usual.keys() and answer.startswith(b"200 OK")
        assert int(headers(answer)["content-length"]) == len(answer.partition(b"\r\n\r\n")[2])
        assert f'"session":"s-{number}"'.encode() in answer
    fixed = usual.keys() - {"date", "content-length"}
    assert {name: headers(pipelined[0])[name] for name in fixed} == {name: usual[name] for name in fixed}
    assert "content-security-policy" in fixed and "cache-control" in fixed

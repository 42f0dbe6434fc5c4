"""A contract that is told to end: the agent, what it started and temporary files are gone, as after Ctrl-C."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from asyncio.base_subprocess import BaseSubprocessTransport
from pathlib import Path
from typing import Any

import pytest

from bylaw.cli import main
from bylaw.contract.agents import open_agent
from bylaw.contract.faults import Injection
from bylaw.contract.job import run_on_agent
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import AgentSpec
from tests.contract.end_to_end.support import free_port
from tests.contract.scripted import ScriptedAgent, contract

# A child in a session of its own, as a daemon has it, and the agent itself, which waits forever.
DETACHES = """
import os, subprocess, sys, time
output = None if "hang" in sys.argv else subprocess.DEVNULL
child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=output, stderr=output)
open("pids", "a").write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600 if "hang" in sys.argv else 0)
print("done")
"""


def spec(*arguments: str, **keys: object) -> AgentSpec:
    command = (sys.executable, "-S", "-c", DETACHES, *arguments)
    return AgentSpec(type="command", command=command, timeout_ms=60_000, **keys)  # type: ignore[arg-type]


def are_gone(pids: list[int]) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z" not in _state(pid)]
        if not alive:
            return True
        time.sleep(0.01)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only systems with /proc know detached processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_agent_and_all_it_started(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    signal.signal(number, signal.SIG_DFL)
    pids = tmp_path / "pids"

    def tell() -> None:
        while not pids.exists() or not pids.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=tell, daemon=True).start()
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_on_agent(contract(agent=spec("hang")), open_agent(spec("hang"), tmp_path))
    agent, detached = (int(pid) for pid in pids.read_text().split())
    assert are_gone([agent, detached])
    assert f"`sleep` ({detached})" in " ".join(stopped.value.args), "what detached itself is named"
    assert [one.name for one in tmp_path.iterdir()] == ["pids"], "no temporary file is left"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only systems with /proc know detached processes")
def test_a_signal_while_the_agent_starts_does_not_wait_for_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the agent may have started a child before its streams are connected here."""
    connect = BaseSubprocessTransport._connect_pipes

    async def connect_late(self: Any, waiter: Any) -> None:
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(20):
            await asyncio.sleep(0)
        await connect(self, waiter)

    monkeypatch.setattr(BaseSubprocessTransport, "_connect_pipes", connect_late)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_on_agent(contract(agent=spec("hang")), open_agent(spec("hang"), tmp_path))
    agent, detached = (int(pid) for pid in (tmp_path / "pids").read_text().split())
    assert are_gone([agent, detached])
    assert f"`sleep` ({detached})" in " ".join(stopped.value.args)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only systems with /proc know detached processes")
def test_a_detached_child_is_ended_and_named(tmp_path: Path) -> None:
    agent = spec(stateless=True)
    report = run_on_agent(contract(agent=agent), open_agent(agent, tmp_path))
    pids = [int(line.split()[1]) for line in (tmp_path / "pids").read_text().splitlines()]
    assert report.passed and are_gone(pids)
    assert any("left processes behind" in warning and f"`sleep` ({pids[0]})" in warning for warning in report.warnings)


# Forks twice, in a session of its own and without an environment: what is left has no relation to its starter.
DAEMON = """
import os, shutil, subprocess, sys
def agent(prompt):
    code = "import daemons; print(daemons.daemon())"
    return subprocess.check_output([sys.executable, "-S", "-c", code], cwd=os.path.dirname(__file__)).decode()
def serve(port):
    from http.server import BaseHTTPRequestHandler, HTTPServer
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(daemon(2).encode())
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()
def daemon(count=1):
    pipe = os.pipe()
    if os.fork() == 0:
        os.setsid()
        for fd in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                os.execve(shutil.which("sh"), ["sh", "-c", "sleep 600; exit"], {})
            os.write(pipe[1], b"%d " % pid)
        os._exit(0)
    os.close(pipe[1])
    with open(pipe[0]) as said:
        return said.read()
"""
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")


@ONLY_LINUX
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("kind", ["command", "server"])
def test_a_daemon_without_an_environment_is_found(tmp_path: Path, kind: str, ends: bool) -> None:
    (tmp_path / "daemons.py").write_text(DAEMON)
    port = free_port()
    does = f"serve({port})" if kind == "server" else "daemon(2)"
    command = (sys.executable, "-S", "-c", f"import daemons; print(daemons.{does})")
    agent = AgentSpec(type="command", command=command, timeout_ms=60_000)
    if kind == "server":
        agent = AgentSpec(type="http", endpoint=f"http://127.0.0.1:{port}", command=command, timeout_ms=60_000)
    live = open_agent(agent, tmp_path, ends_children=ends)
    pids = [int(pid) for pid in (_ask_once(live).answer or "").split()]
    warning = " ".join(live.warnings)  # type: ignore[attr-defined]
    assert len(pids) == 2 and all(f"`sh` ({pid})" in warning for pid in pids)
    assert ("which were ended" in warning) is ends
    if ends:
        assert are_gone(pids) and "`sleep`" in warning, "what they started is ended too"
    else:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@ONLY_LINUX
def test_a_daemon_of_a_python_agent_is_found(tmp_path: Path) -> None:
    (tmp_path / "daemons.py").write_text(DAEMON)
    agent = AgentSpec(type="python", endpoint="daemons:agent", timeout_ms=60_000)
    live = open_agent(agent, tmp_path, ends_children=True)
    pid = int(_ask_once(live).answer or "0")
    assert f"`sh` ({pid})" in " ".join(live.warnings) and are_gone([pid])  # type: ignore[attr-defined]


@ONLY_LINUX
def test_adopted_processes_leave_no_zombies(tmp_path: Path) -> None:
    agent = spec(stateless=True)
    run_on_agent(contract(agent=agent, runs=3), open_agent(agent, tmp_path))
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) >= 6 and not any(Path(f"/proc/{pid}").exists() for pid in pids)


@ONLY_LINUX
def test_daemons_that_end_by_themselves_leave_no_zombies(tmp_path: Path) -> None:
    (tmp_path / "daemons.py").write_text(DAEMON.replace("sleep 600; exit", "exit"))
    command = (sys.executable, "-S", "-c", "import daemons; print(daemons.daemon(2))")
    live: Any = open_agent(AgentSpec(type="command", command=command, timeout_ms=60_000), tmp_path, ends_children=True)

    async def go() -> list[int]:
        await live.start()
        try:
            run = await live.run("go", Injection(run="test"))
            pids = [int(pid) for pid in (run.answer or "").split()]
            while any(Path(f"/proc/{pid}").exists() for pid in pids):
                await asyncio.sleep(0.01)
                live.leftovers.reap()  # as after each later run
            return pids
        finally:
            await live.stop()

    assert len(asyncio.run(go())) == 2 and live.warnings == ()


@ONLY_LINUX
def test_afterwards_this_process_adopts_no_more_orphans(tmp_path: Path) -> None:
    def is_reaper() -> bool:
        state = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(state), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
        return bool(state.value)

    agents = [open_agent(spec(), tmp_path) for _ in range(2)]

    async def go() -> list[bool]:
        seen = [is_reaper()]
        for step in (agents[0].start, agents[1].start, agents[0].stop, agents[1].stop):
            await step()
            seen.append(is_reaper())
        return seen

    assert asyncio.run(go()) == [False, True, True, True, False]


def _ask_once(live: Any) -> AgentRun:
    async def once() -> AgentRun:
        await live.start()
        try:
            run: AgentRun = await live.run("go", Injection(run="test"))
            return run
        finally:
            await live.stop()

    return asyncio.run(once())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only systems with /proc know detached processes")
@pytest.mark.parametrize("ends", [True, False])
def test_a_child_of_a_python_agent_is_ended_too_where_the_process_is_ours(tmp_path: Path, ends: bool) -> None:
    (tmp_path / "starts_a_child.py").write_text(
        "import os\n\ndef agent(prompt):\n    return str(os.posix_spawnp('sleep', ['sleep', '600'], os.environ))\n"
    )
    live = open_agent(AgentSpec(type="python", endpoint="starts_a_child:agent"), tmp_path, ends_children=ends)
    pid = int(_ask_once(live).answer or "0")
    if not ends:
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, "it was running"
    assert not Path(f"/proc/{pid}").exists()
    (warning,) = live.warnings  # type: ignore[attr-defined]
    assert f"`sleep` ({pid})" in warning and ("ended" in warning) is ends


def test_a_run_in_another_thread_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    passed: list[bool] = []
    thread = threading.Thread(target=lambda: passed.append(run_on_agent(contract(), ScriptedAgent("x")).passed))
    thread.start()
    thread.join()
    assert passed == [True] and signal.getsignal(signal.SIGTERM) is before


def test_an_interrupted_command_prints_what_was_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("the agent left processes behind, which were ended: `sleep` (17)")

    (tmp_path / "bylaw.yaml").write_text(
        "contract: {name: c, invariants: [{id: i, type: completes}]}\nchaos_matrix: [{name: calm}]\n"
        "agent: {command: [agent]}\ngolden_prompts: [go]\n"
    )
    monkeypatch.setattr("bylaw.contract.job.open_and_run", stop)
    with pytest.raises(SystemExit) as ended:
        main(["contract", "run", str(tmp_path / "bylaw.yaml")])
    said = capsys.readouterr().err
    assert ended.value.code == 130 and "interrupted" in said
    assert "warning: the agent left processes behind, which were ended: `sleep` (17)" in said


@pytest.mark.proof
def test_timeout_ends_the_command_itself(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(DETACHES)
    (tmp_path / "bylaw.yaml").write_text(
        "contract: {name: c, invariants: [{id: i, type: completes}]}\nchaos_matrix: [{name: calm}]\n"
        f"agent: {{command: [{sys.executable}, agent.py, hang]}}\ngolden_prompts: [go]\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = ["timeout", "30", sys.executable, "-m", "bylaw", "contract", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 124 and "interrupted" in done.stderr and "Traceback" not in done.stderr
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert are_gone(pids) and f"which were ended: `sleep` ({pids[1]})" in done.stderr
    assert not list(tmp_path.glob("bylaw-*"))

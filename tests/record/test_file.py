"""The file: which files are accepted, what a kill leaves, and a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.errors import BylawError
from bylaw.record import api
from bylaw.record import recording as record_file
from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange, Outgoing
from tests.record.model_clients import ask, openai_client, read, responses
from tests.record.server import TEXT, Server
from tests.support.command import run_bylaw

AGENT = """
import sys
import bylaw
import httpx

url, path, name = sys.argv[1:4]
with bylaw.record(path, session=name), httpx.Client(verify=False) as client:
    number = 0
    while True:
        asked = [{"role": "user", "content": f"{name} {number} " + "\\u00e4\\u20ac" * int(sys.argv[4])}]
        client.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": asked})
        number += 1
        print(number, flush=True)
"""


def test_an_existing_recording_is_appended_to(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    for name in ("one", "two"):
        with bylaw.record(path, session=name):
            ask(server.url, "openai", name)
    trace = read(path)
    assert trace.complete and trace.sessions == ("one", "two")
    assert [one.turn for one in responses(trace)] == [0, 1]
    assert path.read_bytes().count(b'"bylaw"') == 1


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    with bylaw.record(tmp_path / "run.jsonl"):
        assert stat.S_IMODE((tmp_path / "run.jsonl").stat().st_mode) == 0o600


def test_what_is_made_of_it_is_only_for_its_owner_too(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    with bylaw.record(path):
        ask(server.url, "openai", "one")
    bylaw.convert(path, tmp_path / "api.atif.json")
    run_bylaw(["convert", str(path), str(tmp_path / "cli.atif.json")])
    path.chmod(0o444)
    bylaw.convert(path, tmp_path / "open.atif.json")
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.glob("*.atif.json")}
    assert modes == {"api.atif.json": 0o600, "cli.atif.json": 0o600, "open.atif.json": 0o644 & ~_umask() | 0o600}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"dear diary", "is not a recording of Bylaw"),
        (b"dear diary\n", "is not a recording of Bylaw"),
        (b'{"messages": []}\n', "is not a recording of Bylaw"),
        (b'{"bylaw":"trace/9","complete":"marked"}\n', "is not a recording of Bylaw"),
        (b'{"bylaw":"trace/1","complete":"marked","resolved":true}\n', "is a finished trace"),
        (b'{"bylaw":"trace/1"}\n', "is a finished trace"),
    ],
)
def test_a_file_that_is_not_a_recording_is_not_changed(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(BylawError, match=message), bylaw.record(path):
        pass
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_written_fails_at_once(tmp_path: Path) -> None:
    for path, error in [(tmp_path / "no" / "run.jsonl", FileNotFoundError), (tmp_path, IsADirectoryError)]:
        with pytest.raises(error), bylaw.record(path):
            pytest.fail("nothing runs")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "run.jsonl.gz", "run.jsonl.zst"):
        with pytest.raises(BylawError), bylaw.record(tmp_path / name):
            pytest.fail("nothing runs")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"session": ""}, "session=''"),
        ({"agent": 7}, "agent=7"),
        ({"redact": False, "patterns": {"a": "b"}}, "no effect"),
        ({"patterns": {"order": "("}}, "pattern `order` is no regular expression that RE2 can run: missing"),
        ({"patterns": {"order": r"(?=a)"}}, "invalid perl operator"),
        ({"patterns": {"order": "a*"}}, "matches the empty text"),
        ({"patterns": {"a]": "a"}}, "without `]`"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        bylaw.record(tmp_path / "run.jsonl", **keys)
    assert not list(tmp_path.iterdir())


# A disk that is full


def test_a_write_that_fails_is_logged_and_does_not_reach_the_agent(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if b"two" in data or b"three" in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    path = tmp_path / "run.jsonl"
    with caplog.at_level(logging.ERROR, "bylaw"), bylaw.record(path) as recording:
        ask(server.url, "openai", "one")
        monkeypatch.setattr(record_file.os, "write", full)
        assert ask(server.url, "openai", "two") == TEXT
        assert ask(server.url, "openai", "three", streamed=True) == TEXT
        monkeypatch.setattr(record_file.os, "write", write)
        ask(server.url, "openai", "four")
        assert (recording.turns, recording.lost) == (2, 2)
    trace = bylaw.load_trace(path)
    assert not trace.complete
    assert "2 turns could not be written" in trace.notes
    assert len(responses(trace)) == 2
    reported = [record.getMessage() for record in caplog.records]
    assert "a turn cannot be recorded" in reported[0] and "No space left" in reported[0]
    assert reported[1].startswith("2 turns are missing")


@pytest.mark.parametrize("others", [0, 1])
def test_a_write_that_stops_in_the_middle_of_a_line_is_undone(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    write, path = os.write, tmp_path / "run.jsonl"
    with bylaw.record(path):
        second = [record_file.RecordFile(str(path)) for _ in range(others)]
        monkeypatch.setattr(record_file.os, "write", lambda descriptor, data: write(descriptor, data[: len(data) // 2]))
        ask(server.url, "openai", "one")
        monkeypatch.setattr(record_file.os, "write", write)
        ask(server.url, "openai", "two")
        for one in second:
            one.close()
    trace = bylaw.load_trace(path, skip_bad=True)
    assert not trace.complete
    assert len(responses(trace)) == 1
    assert trace.skipped == others  # alone, the torn line was taken away again


def test_what_another_wrote_behind_a_torn_line_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    own, write = record_file.RecordFile(str(path)), os.write

    def overtaken(descriptor: int, data: bytes) -> int:
        written = write(descriptor, data[:5])
        with path.open("ab") as other:  # by a process that is gone when the line is to be taken back
            other.write(b'{"kind":"annotation"}\n')
        return written

    monkeypatch.setattr(record_file.os, "write", overtaken)
    with pytest.raises(OSError, match="only 5 of"):
        own.append([{"kind": "annotation", "label": "own"}])
    monkeypatch.setattr(record_file.os, "write", write)
    own.close()
    assert path.read_bytes().endswith(b'{"kin{"kind":"annotation"}\n')


def test_a_torn_first_line_where_locks_do_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"byl')
    monkeypatch.setattr(record_file, "try_lock", lambda descriptor, how: False)
    monkeypatch.setattr(record_file, "_TRIES", 3)
    with pytest.raises(BylawError, match="torn in its first line"), bylaw.record(path):
        pass
    assert path.read_bytes() == b'{"byl'


def test_durable_waits_for_the_disk(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(record_file.os, "fsync", synced.append)
    with bylaw.record(tmp_path / "a.jsonl"):
        ask(server.url, "openai", "one")
    assert not synced
    with bylaw.record(tmp_path / "b.jsonl", durable=True):
        ask(server.url, "openai", "one")
    assert len(synced) == 3  # its beginning, the turn, its end


# Kills


def test_a_file_that_is_cut_at_any_byte_is_mended(tmp_path: Path, server: Server) -> None:
    """Wherever a kill stops the last write, all earlier turns are read, and the rest is not an error."""
    path = tmp_path / "run.jsonl"
    with bylaw.record(path, session="s"):
        for number in range(2):
            ask(server.url, "openai", f"häh € {number}")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    first = len(b"".join(lines[:2]))
    cut = tmp_path / "cut.jsonl"
    for end in [*range(first, len(whole), 7), len(whole) - 1]:
        cut.write_bytes(whole[:end])
        trace = bylaw.load_trace(cut)
        finished = sum(b'"kind":"response"' in line for line in whole[:end].splitlines() if line in whole.splitlines())
        assert len(responses(trace)) == finished
        assert not trace.complete or end == len(whole) - 1
    for end in (5, first - 3, first + 20, len(whole) - 30):  # and it can be added to
        cut.write_bytes(whole[:end])
        with bylaw.record(cut, session="t"):
            ask(server.url, "openai", "more")
        added = bylaw.load_trace(cut)
        assert not added.problems and added.sessions[-1] == "t"
        assert added.complete == (end < first)


def _storm(folder: Path, server: Server, *, rounds: int, writers: int, size: int, seed: int) -> None:
    """Agents that record to one file, killed at any moment: every turn whose answer an agent had is in the file."""
    chance, path = random.Random(seed), folder / "run.jsonl"
    reported: dict[str, int] = {}
    for turn in range(rounds):
        names = [f"a{turn}-{number}" for number in range(writers)]
        agents = [
            subprocess.Popen(
                [sys.executable, "-c", AGENT, server.url, str(path), name, str(size)], stdout=subprocess.PIPE
            )
            for name in names
        ]
        for agent in agents:
            assert agent.stdout is not None and agent.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        for agent in chance.sample(agents, len(agents)):
            agent.send_signal(signal.SIGKILL)
        for name, agent in zip(names, agents, strict=True):
            printed, _ = agent.communicate()
            reported[name] = 1 + printed.count(b"\n")
    trace = bylaw.load_trace(path, skip_bad=True)
    assert not trace.complete
    kept: dict[str, int] = {}
    for response in responses(trace):
        kept[response.origin.session] = kept.get(response.origin.session, 0) + 1
    for name, count in reported.items():
        assert kept.get(name, 0) >= count, (name, count, kept.get(name))


def test_a_kill_at_any_moment_loses_no_finished_turn(tmp_path: Path, server: Server) -> None:
    _storm(tmp_path, server, rounds=2, writers=2, size=2000, seed=1)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4))
def test_repeated_kills_lose_no_finished_turn(tmp_path: Path, server: Server, seed: int) -> None:
    _storm(tmp_path, server, rounds=25, writers=3, size=random.Random(seed).choice([10, 5_000, 200_000]), seed=seed)


def test_several_processes_can_begin_one_file(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    code = f"import bylaw\nfor _ in range(5):\n    with bylaw.record({str(path)!r}): pass\n"
    agents = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [agent.wait() for agent in agents] == [0] * 4
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line for line in lines if "bylaw" in line] == [lines[0]]
    assert len(lines) == 1 + 4 * 5 * 2
    assert read(path).complete


def test_a_fork_records_too(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    with bylaw.record(path, session="s"), openai_client(server.url):
        child = os.fork()
        if child == 0:
            try:
                ask(server.url, "openai", "child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        ask(server.url, "openai", "parent")
    assert len(responses(read(path))) == 2


def _ends_in_time(child: int) -> bool:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_a_fork_while_others_hold_the_locks(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    with bylaw.record(path, session="s") as opened:
        recording = opened._recording
        assert recording is not None
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            with api._lock, recording._lock, recording.file._lock:
                held.set()
                go_on.wait(300)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                ask(server.url, "openai", "child")
            finally:
                os._exit(0)
        try:
            assert _ends_in_time(child)
        finally:
            go_on.set()
            holder.join()
    assert len(responses(read(path))) == 1


def test_a_fork_has_its_own_file_position_and_leaves_unfinished_calls_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    monkeypatch.chdir(tmp_path)
    recording = Recording("run.jsonl", session="s")
    asked = Outgoing("POST", "http://127.0.0.1/v1/chat/completions", {}, b'{"model": "m", "messages": []}')
    passing = recording.listen(Exchange(asked))
    monkeypatch.chdir("/")
    child = os.fork()
    if child == 0:
        try:
            passing.end(error="in the child")
            os.lseek(recording.file._descriptor, 0, os.SEEK_SET)
            fcntl.flock(recording.file._descriptor, fcntl.LOCK_UN)
        finally:
            os._exit(0)
    before = os.lseek(recording.file._descriptor, 0, os.SEEK_CUR)
    os.waitpid(child, 0)
    assert os.lseek(recording.file._descriptor, 0, os.SEEK_CUR) == before > 0
    with path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    passing.end(error="in the parent")
    recording.close()
    assert (recording.errors, path.read_text().count("in the child")) == (1, 0)

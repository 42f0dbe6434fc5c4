"""Two workers on one store, one of them killed over and over: the limits of the rules hold."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import bylaw
from bylaw.guard.service.auth import Credentials
from bylaw.guard.service.client import GuardClient
from bylaw.guard.stores import SqliteStore

pytestmark = pytest.mark.proof
KILLS, SECONDS = 8, 240.0
"""the storm is over after so many kills, or in any case after so long: a busy machine starts few workers"""
LIMIT = 25
RULES = f"""\
guard:
  agent: payer
  rules:
    - id: at-most
      kind: max_calls
      params: {{tool: pay, limit: {LIMIT}}}
      scope: session
      then: block
    - id: tries
      when: {{call_count_in_session_gt: {{tool: try_it, value: {LIMIT}}}}}
      then: block
"""


def workers_of(parent: int) -> list[int]:
    """The worker processes; the one that tracks semaphores is none of them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_child = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_limits_hold_while_workers_are_killed(tmp_path: Path) -> None:
    (tmp_path / "guard.yaml").write_text(RULES)
    (tmp_path / "serve.yaml").write_text("limits: {rate: 100000, burst: 100000}\n")
    store = SqliteStore(tmp_path / "guard.db")
    key, _ = Credentials(store).create("bot", ["agent"], agents=["payer"])
    command = [sys.executable, "-m", "bylaw", "guard", "serve", "-p", "guard.yaml", "--store", "guard.db"]
    command += ["--listen", "127.0.0.1:0", "--workers", "2", "--no-console", "--config", "serve.yaml"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    allowed: dict[tuple[str, str], int] = {}
    asked = away = kills = 0
    next_kill = 100
    lock, over = threading.Lock(), threading.Event()

    def ask(number: int) -> None:
        nonlocal asked, away
        chance = random.Random(number)
        with GuardClient(address, key=key, timeout=10) as guard:
            while not over.is_set():
                session, tool = f"s-{chance.randrange(12)}", chance.choice(["pay", "try_it"])
                decision = guard.decide(bylaw.Attempt(tool=tool, session=session))
                with lock:
                    asked += 1
                    away += decision.decided_by == "on_unreachable"
                    if decision:
                        allowed[session, tool] = allowed.get((session, tool), 0) + 1
                if not decision and decision.decided_by == "on_unreachable":
                    time.sleep(0.05)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + SECONDS
    while kills < KILLS and time.monotonic() < until:
        time.sleep(0.5)
        answered = asked - away
        if answered >= next_kill and (victims := workers_of(process.pid)):  # not before they have begun to answer
            os.kill(random.choice(victims), signal.SIGKILL)
            kills, next_kill = kills + 1, answered + 100
    over.set()
    for thread in threads:
        thread.join(30)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    drain.join(5)
    process.stderr.close()
    assert kills == KILLS, (kills, asked, away)
    assert max(allowed.values()) <= LIMIT < asked / len(allowed), allowed  # the limits were reached
    rows = [row for row in store.events(limit=1_000_000) if row.kind == "decision"]
    recorded: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.data["decision"]["action"] == "allow":
            place = row.session, row.data["attempt"]["tool"]
            recorded[place] = recorded.get(place, 0) + 1
    for place, number in allowed.items():  # whatever was answered is on record
        assert recorded[place] >= number
    report = bylaw.verify_audit(store)
    assert report.findings == [], report.findings[:3]
    print(f"{asked} asked, {away} away, {kills} kills, {len(rows)} recorded")

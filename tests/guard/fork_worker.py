"""A process that forks while it has a guard: `python -m tests.guard.fork_worker WAY STORE ACKED`.

Each decision is written to the file ACKED once the guard has returned it. STORE is a path, or `-` for a guard without a
store. A process that does not end in time is ended by SIGALRM.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import bylaw

LIMIT = 30
PATIENCE = 120
RULES: list[dict[str, Any]] = [
    {"id": "made", "kind": "temporal", "params": {"at_most": LIMIT, "of": "pay"}, "scope": "session", "then": "block"},
    {
        "id": "words",
        "when": {"tool_name_in": ["pay"], "arg_regex": {"path": "to", "pattern": "(a|b|ab)*c{3,9}$"}},
        "then": "block",
    },
]


class Worker:
    def __init__(self, store: str, acked: str) -> None:
        self.guard = bylaw.Guard(RULES, store=None if store == "-" else store)
        self.store = self.guard.store
        self._acked = os.open(acked, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def decide(self, times: int, session: str = "shared") -> None:
        for i in range(times):
            decision = self.guard.decide(
                bylaw.Attempt(tool="pay", arguments={"i": i, "to": "ab" * 20}, session=session)
            )
            os.write(self._acked, f"{decision.call_id} {decision.action} {decision.decided_by} {session}\n".encode())

    def fork(self, work: Callable[[], object]) -> int:
        child = os.fork()
        if child:
            return child
        signal.alarm(PATIENCE)
        try:
            work()
        except BaseException as problem:
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)


def parent_closes(worker: Worker) -> None:
    """The parent closes its store while the child decides."""
    started, closed = os.pipe(), os.pipe()

    def child() -> None:
        worker.decide(5)
        os.write(started[1], b"1")
        os.read(closed[0], 1)
        worker.decide(50)

    worker.decide(1)
    pid = worker.fork(child)
    os.read(started[0], 1)
    worker.decide(1)
    worker.store.close()
    os.write(closed[1], b"1")
    wait_for([pid])


def daemon(worker: Worker) -> None:
    """The process becomes a daemon: two forks, and each parent ends at once. The pipe is closed when it has ended."""
    reads, writes = os.pipe()
    worker.decide(1)
    if os.fork():
        os.close(writes)
        os.read(reads, 1)
        return
    os.setsid()
    if os.fork():
        sys.exit(0)  # the interpreter ends, and closes what it has open
    signal.alarm(PATIENCE)
    worker.decide(50)
    worker.store.close()
    os._exit(0)


def preload(worker: Worker) -> None:
    """The application is loaded before the workers are forked; the first process only waits, and replaces one."""
    worker.decide(1)
    pids = [worker.fork(lambda: worker.decide(20)) for _ in range(3)]
    wait_for(pids[:1])
    pids.append(worker.fork(lambda: worker.decide(20)))
    worker.store.close()
    wait_for(pids[1:])


def pool(worker: Worker) -> None:
    """`multiprocessing` with the start method fork."""
    worker.decide(2)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=worker.decide, args=(15,)) for _ in range(4)]
    for process in processes:
        process.start()
    worker.decide(5)
    for process in processes:
        process.join()
        assert process.exitcode == 0


def busy(worker: Worker, forks: int = 12) -> None:
    """Threads decide while the process forks, again and again. A child forks too."""
    done = threading.Event()

    def decide(i: int) -> None:
        while not done.is_set():
            worker.decide(1, session=f"s{i % 2}-{random.randrange(4)}")
            worker.store.reviews()

    def child() -> None:
        worker.decide(3)
        wait_for([worker.fork(lambda: worker.decide(2))])

    threads = [threading.Thread(target=decide, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    pids = []
    for _ in range(forks):
        pids.append(worker.fork(child))
        time.sleep(random.uniform(0, 0.02))
    wait_for(pids)
    done.set()
    for thread in threads:
        thread.join()


def storm(worker: Worker) -> None:
    """Long. Two threads fork, others decide, and some children are killed."""
    until = time.monotonic() + float(os.environ.get("FORK_STORM_SECONDS", "60"))

    def fork_often() -> None:
        while time.monotonic() < until:
            pid = worker.fork(lambda: worker.decide(200, session=f"s{random.randrange(8)}"))
            time.sleep(random.uniform(0, 0.05))
            if random.random() < 0.7:
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def decide() -> None:
        while time.monotonic() < until:
            worker.decide(1, session=f"s{random.randrange(8)}")

    threads = [threading.Thread(target=work) for work in (fork_often, fork_often, decide, decide)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_for(pids: list[int]) -> None:
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * len(pids), codes


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] != "storm":
        signal.alarm(PATIENCE)
    globals()[sys.argv[1]](Worker(*sys.argv[2:]))

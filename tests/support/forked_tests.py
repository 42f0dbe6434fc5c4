"""`pytest --processes N`: the tests are collected once, and N forked processes run them file by file.

Long ones, marked `proof`, are run test by test with all cases of each, because one file of them can take an hour.

pytest-xdist imports and collects everything in each of its processes, which takes half a minute of CPU for each in a
fresh environment, and as much again for its messages. Here the first process collects, forks and reports.

The numbers of the files wait in a pipe, from which each process reads the next. Reports come back as lines of JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import struct
import tempfile
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

_NUMBER = struct.Struct("<H")  # a pipe holds 64 KiB, so 32,768 files


def count_processes(text: str) -> int:
    """Return the number of processes for the value of `--processes`."""
    return len(os.sched_getaffinity(0)) if text == "auto" else int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in forked processes, if more than one is asked for."""
    count: int = session.config.option.processes
    if count < 2 or session.testsfailed or session.config.option.collectonly:
        return None
    files = [list(items) for _, items in groupby(session.items, key=_share_of)]
    waiting, numbers = os.pipe()
    os.write(numbers, b"".join(map(_NUMBER.pack, range(len(files)))))
    os.close(numbers)
    workers: list[_Worker] = []
    try:
        workers.extend(_Worker(session, files, waiting) for _ in range(count))
        _report(session, workers, files)
    finally:
        for worker in workers:
            worker.end()
        os.close(waiting)
    return True


def _share_of(item: pytest.Item) -> tuple[object, ...]:
    """What one process runs in one go."""
    return (item.path, getattr(item, "originalname", "")) if item.get_closest_marker("proof") else (item.path,)


class _Worker:
    """A forked process that runs tests, as the first process sees it."""

    def __init__(self, session: pytest.Session, files: list[list[pytest.Item]], waiting: int) -> None:
        self.output, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.output)
                _run(session, files, waiting, writing)
                atexit._run_exitfuncs()
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        self.files: list[int] = []
        self.is_done = False
        self._unread = b""

    def read(self) -> list[Any]:
        """Return the messages that have arrived; none at the end of the output."""
        more = os.read(self.output, 1 << 16)
        if not more:
            self.is_done = True
        *lines, self._unread = (self._unread + more).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> int:
        """End the process, if it still runs, and return its status."""
        if self.pid == 0:
            return 0
        if not self.is_done:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.output)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


def _run(session: pytest.Session, files: list[list[pytest.Item]], waiting: int, output: int) -> None:
    """Run the files whose numbers this process reads, and send what happens to `output`."""
    plugins = session.config.pluginmanager
    _capture_apart(plugins.getplugin("capturemanager"))
    plugins.unregister(name="terminalreporter")
    sender = _Sender(session.config, output)
    plugins.register(sender)
    upcoming = _next_items(files, waiting, sender)
    item = next(upcoming, None)
    while item is not None and not session.shouldfail:
        following = next(upcoming, None)  # decides which fixtures are torn down after `item`
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


def _capture_apart(capture: Any) -> None:
    """Capture output into files of this process; so far all processes share them, and their positions.

    Libraries have kept the streams that they found when they were imported, so the streams stay.
    """
    capture.suspend_global_capture()
    for stream in (capture._global_capturing.out, capture._global_capturing.err):
        if hasattr(stream, "tmpfile"):  # there is none with `-s`
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())


def _next_items(files: list[list[pytest.Item]], waiting: int, sender: _Sender) -> Iterator[pytest.Item]:
    while packed := os.read(waiting, _NUMBER.size):
        (number,) = _NUMBER.unpack(packed)
        sender.send(number)
        yield from files[number]


class _Sender:
    """Sends the number of each file that this process takes, and every report."""

    def __init__(self, config: pytest.Config, output: int) -> None:
        self._config = config
        self._output = output

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def send(self, message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        while line:
            line = line[os.write(self._output, line) :]


def _report(session: pytest.Session, workers: list[_Worker], files: list[list[pytest.Item]]) -> None:
    """Pass on the reports of all processes until each has ended."""
    hook = session.config.hook
    reported = set[str]()

    def pass_on(report: pytest.TestReport) -> None:
        reported.add(report.nodeid)
        hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                worker = key.data
                for message in worker.read():
                    if isinstance(message, int):
                        worker.files.append(message)
                        continue
                    report = hook.pytest_report_from_serializable(config=session.config, data=message)
                    if isinstance(report.longrepr, list):  # of a skipped test; JSON has no tuples
                        report.longrepr = tuple(report.longrepr)
                    pass_on(report)
                if worker.is_done:
                    selector.unregister(worker.output)
                    code = worker.end()
                    for item in (item for number in worker.files for item in files[number]):
                        if code and item.nodeid not in reported:
                            text = f"did not end: its process ended with {code}"
                            pass_on(pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call"))
            if session.shouldfail:
                raise session.Failed(session.shouldfail)

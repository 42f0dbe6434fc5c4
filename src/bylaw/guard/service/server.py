"""Running the service: workers, sockets, TLS, the follow-up, and an orderly end.

Several workers share the store, so they act as one guard: limits hold, whichever of them decides. The follow-up runs
once, beside them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from bylaw.files import clean_up_on_signals
from bylaw.files.temporary import TemporaryFolder
from bylaw.files.unix_socket import UnixListener
from bylaw.guard.incidents.channels import open_channels
from bylaw.guard.incidents.follower import make_follower
from bylaw.guard.policies import FileWatch
from bylaw.guard.service.app import (
    READY,
    VARIABLE,
    ServeConfig,
    app_from_environment,
    make_app,
    make_versions,
)
from bylaw.guard.service.rule_versions import RuleVersions
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import Notification
from bylaw.report.text import printable
from bylaw.text.redaction.redactor import Redactor

_log = logging.getLogger("bylaw")
GRACE = 20
"""seconds that requests have to end in"""
POLL = 1.0
BACKLOG = 1024
READY_POLL = 0.02
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"default": {"()": "bylaw.guard.service.server.LogFormatter"}},
    "handlers": {"default": {"class": "logging.StreamHandler", "formatter": "default", "stream": "ext://sys.stderr"}},
    "root": {"handlers": ["default"], "level": "WARNING"},
}


class LogFormatter(logging.Formatter):
    """Each record begins one line, whatever is in it: names come from callers. What follows of it is indented."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().rstrip("\n")
        lines = [f"{record.levelname}: {printable(message)}"]
        if record.exc_info:
            lines += [f"    {printable(line)}" for line in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


def serve(config: ServeConfig, ready: Callable[[str], object] = lambda address: None) -> None:
    """Serve until SIGTERM or Ctrl-C. `ready` is called with the address once a worker has started. Raises InputError,
    StoreUnavailable, OSError, and ValueError for a channel of notifications that cannot be used."""
    if config.follow:
        open_channels(config.notify)
    with ExitStack() as stack:
        stack.enter_context(clean_up_on_signals())
        folder = stack.enter_context(TemporaryFolder("bylaw-serve-"))
        config = msgspec.structs.replace(config, metrics=folder)
        store = config.open_store()
        versions = make_versions(config, store)
        versions.begin(config.policies)  # so that mistakes in the rules are reported once, and before anything listens
        bound, address = stack.enter_context(listening(config.listen, tls=config.file.tls is not None))
        follow_up = FollowUp(config, store, versions)
        over = threading.Event()
        announce = threading.Thread(target=_announce, args=(Path(folder) / READY, over, partial(ready, address)))
        try:
            announce.start()
            if config.follow or config.watch:
                follow_up.start()
            if config.workers == 1:
                _run_one(config, store, bound)
            else:
                _run_several(config, bound)
        finally:
            over.set()
            announce.join()
            follow_up.end()
            store.close()


def _announce(file: Path, over: threading.Event, ready: Callable[[], object]) -> None:
    while not over.wait(READY_POLL):
        if file.exists():
            ready()
            return


def _run_one(config: ServeConfig, store: GuardStore, bound: socket.socket) -> None:
    server = uvicorn.Server(uvicorn_config(config, make_app(config, store), log_config=LOGGING))
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them once more when it has ended
        signal.signal(number, lambda number, frame: None)
    server.run(sockets=[bound])


def _run_several(config: ServeConfig, bound: socket.socket) -> None:
    worker_config = msgspec.structs.replace(
        config, policies=()
    )  # a worker that begins later must not read files on its own
    os.environ[VARIABLE] = msgspec.json.encode(worker_config).decode()
    options = uvicorn_config(config, f"{__name__}:make_worker_app", factory=True, log_config=LOGGING)
    Workers(options, sockets=[bound]).run()


class Workers(Multiprocess):
    """Worker processes, which start with SIGINT blocked: Ctrl-C at a terminal reaches them too, and one that is still
    importing would print a traceback. This process takes the signal, and ends them with SIGTERM."""

    def run(self) -> None:
        resource_tracker.ensure_running()  # if it started later, it would unblock SIGINT in this thread
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            super().run()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def handle_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # a pending one is delivered and queued now
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        super().handle_signals()


def make_worker_app() -> Starlette:
    """The application of a worker process, which calls this when it starts."""
    end_with_parent()
    return app_from_environment()


def end_with_parent() -> None:
    """End this worker with SIGTERM once the process that started it has ended, even if that one was killed: a worker
    alone would go on deciding, without incidents and new rules, and keep the address from the next service."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is no worker"

    def end() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, name="bylaw-parent", daemon=True).start()


def uvicorn_config(config: ServeConfig, app: Any, **more: Any) -> uvicorn.Config:
    tls = config.file.tls
    return uvicorn.Config(
        app,
        workers=config.workers,
        http="bylaw.guard.service.gate:Connection",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # only `People.trusted` are believed, and only who somebody is
        server_header=False,
        date_header=True,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        **more,
    )


@contextmanager
def listening(listen: str, *, tls: bool = False) -> Iterator[tuple[socket.socket, str]]:
    """A socket, and its address for people. It listens at once, so that whoever connects while the workers start waits.
    Raises OSError, and ValueError for an address that cannot be read."""
    if listen.startswith("unix:"):
        listener = UnixListener(listen.removeprefix("unix:"), backlog=BACKLOG)
        try:
            yield listener.socket, listen
        finally:
            listener.close()
        return
    host, sign, port = listen.rpartition(":")
    if not sign or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"`{listen}` is not an address: expected HOST:PORT or unix:PATH")
    host = host.strip("[]") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: asyncio turns Nagle's algorithm off only for sockets that say that they are TCP. Else the body
    # of an answer, sent after its head, waits 40 ms for the client's acknowledgement.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, int(port)))
        bound.listen(BACKLOG)
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        yield bound, f"{'https' if tls else 'http'}://{shown}:{bound.getsockname()[1]}"


def _warn_undelivered(notification: Notification) -> None:
    last = notification.deliveries[-1]
    _log.warning("%s is not delivered by %s: %s", notification.id, last.channel or "anybody", last.problem)


class FollowUp(threading.Thread):
    """Follows the event log with the rules in force, and looks at the rule files, in a thread of its own."""

    def __init__(self, config: ServeConfig, store: GuardStore, versions: RuleVersions) -> None:
        super().__init__(name="bylaw-follow-up", daemon=True)
        self._config, self._store, self._versions = config, store, versions
        self._end = threading.Event()

    def end(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join(GRACE)

    def run(self) -> None:
        files, config = list(self._config.policies), self._config
        watch = FileWatch(files, lambda: self._versions.read_again(files)) if config.watch else None
        while not self._end.is_set():
            try:
                self._follow(watch)
            except Exception as problem:
                _log.error("the follow-up is interrupted, and begins again: %s", problem)
                self._end.wait(5 * POLL)

    def _follow(self, watch: FileWatch | None) -> None:
        """Follow the event log until other rules are in force."""
        version, stop = self._versions.active(), threading.Event()
        thread = threading.Thread(target=lambda: None)
        if self._config.follow:
            follower = make_follower(
                self._versions.load(version).policies,
                self._store,
                notify=self._config.notify,
                redactor=Redactor(self._config.options.redaction),
                trouble=lambda why: _log.warning("the follow-up waits: %s", why),
                undelivered=_warn_undelivered,
            )
            thread = threading.Thread(target=follower.run, args=(stop,), name="bylaw-follow", daemon=True)
            thread.start()
        try:
            while not self._end.wait(POLL) and (thread.is_alive() or not self._config.follow):
                if watch is not None:
                    watch.look()
                if self._versions.active_id() != version.id:
                    return
        finally:
            stop.set()
            if thread.is_alive():
                thread.join(GRACE)

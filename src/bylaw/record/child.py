"""Runs a command as a child process and records its calls to models, through a proxy.

The child runs as if its caller had started it: same terminal, same streams, same signals. It stays in our process
group, so a terminal's Ctrl-C and Ctrl-Z reach it directly. A signal that is sent to us alone is passed on. Signals are
taken from a queue and not by handlers, because only the queue says who sent them.

The child's environment leads to the proxy; `wire.proxy.child_environment` says how.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from bylaw.files.temporary import TemporaryFolder
from bylaw.record.api import LOG, SETTINGS, Settings
from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.proxy.child_environment import (
    MODEL_HOSTS,
    Address,
    Authority,
    base_url_variables,
    proxy_variables,
    trust_variables,
)
from bylaw.wire.proxy.server import Proxy

_FORWARDED = frozenset(
    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
)
Signals: TypeAlias = set[int] | set[signal.Signals]
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals, and a child must not inherit that"""


@contextmanager
def queued_signals() -> Iterator[Signals]:
    """Queue signals to be passed on. INVARIANT: entered before any thread is started, because threads inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    try:
        yield before
    finally:
        _discard_pending()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_child(command: Sequence[str], env: Mapping[str, str], *, signals: Signals) -> int:
    """Its exit status; 128 plus the signal's number if a signal ended it. `signals`: those that the child blocks.

    Raises OSError if it cannot be started.
    """
    child = os.posix_spawnp(command[0], list(command), dict(env), setsigmask=signals, setsigdef=_RESTORED)
    over = threading.Event()
    threading.Thread(target=_forward, args=(child, over), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    over.set()  # its process id may be reused from now on
    return status if status >= 0 else 128 - status


def _forward(child: int, over: threading.Event) -> None:
    while not over.is_set():
        number, by_terminal = _next_signal()
        if not by_terminal and not over.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, number)


def _next_signal() -> tuple[int, bool]:
    """The next signal, and whether a terminal sent it, which sends it to the child as well."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(_FORWARDED)
        return info.si_signo, info.si_code > 0
    number = signal.sigwait(_FORWARDED)
    return number, number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0)


def _discard_pending() -> None:
    """Discard signals for a child that has ended."""
    pending = signal.sigpending() & _FORWARDED
    while pending:
        signal.sigwait(pending)
        pending = signal.sigpending() & _FORWARDED


def child_environment(
    environment: Mapping[str, str], *, proxy: str, named: Mapping[str, Address], authority: Authority, folder: Path
) -> dict[str, str]:
    """The environment of the child; `proxy` is the proxy's own address, `named` the base URLs of the user."""
    env = {**environment, **proxy_variables(environment, proxy), **trust_variables(environment, authority, folder)}
    for provider, address in named.items():
        env |= base_url_variables(provider, f"{proxy}/{provider}{address.path}")
    return env


# Models of frameworks inside the command, which no HTTP carries: recorded in the command's own processes

_HOOK = Path(__file__).with_name("startup_hook.py")


def hook_variables(environment: Mapping[str, str], settings: Settings, folder: Path) -> dict[str, str]:
    """The variables that make each Python of the command run the hook; `folder` gets the hook and the log."""
    hook = folder / "python"
    hook.mkdir()
    shutil.copyfile(_HOOK, hook / "sitecustomize.py")
    path = os.pathsep.join(filter(None, (str(hook), environment.get("PYTHONPATH"))))
    log = folder / "frameworks.log"
    log.touch()
    return {"PYTHONPATH": path, LOG: str(log), SETTINGS: msgspec.json.encode(settings).decode()}


def read_log(folder: Path) -> tuple[Counter[str], list[str]]:
    """How many of `turn`, `error` and `lost` the processes wrote, and frameworks of a Python that cannot load Bylaw."""
    lines = (folder / "frameworks.log").read_text("utf-8", "replace").splitlines()
    words = [line.split(" ", 2) for line in lines if line]
    unable = dict.fromkeys(word[1] for word in words if word[0] == "unable" and len(word) > 1)
    return Counter(word[0] for word in words), list(unable)


class CommandResult(Struct, frozen=True):
    """The result of a recorded command."""

    status: int
    """of the command, as a shell reports it"""
    unread: list[str]
    """hosts to which tunnels passed unread, the most frequent first"""
    refused: list[str]
    """hosts for which the client did not trust our certificate"""
    unable: list[str]
    """frameworks whose calls without HTTP were not recorded"""
    turned_away: dict[str, int]
    """how many requests the proxy could not serve, by the reason; they count as lost"""
    passed: list[str] = []
    """connections in protocols that cannot be recorded, such as `a web socket to example.com`"""

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it: the status is then above 128."""
        return self.status > 128


def record_command(
    command: Sequence[str],
    recording: Recording,
    *,
    named: Mapping[str, Address],
    settings: Settings,
    hosts: tuple[str, ...] = (),
) -> CommandResult:
    """`named`: the base URLs of the user's environment. Raises OSError if the command cannot be started."""
    with queued_signals() as signals, TemporaryFolder("bylaw-", shared=True) as name:
        folder = Path(name)
        authority = Authority.temporary(folder)
        upstreams = {provider: address.origin for provider, address in named.items()}
        proxy = RecordingProxy(recording, upstreams=upstreams, authority=authority, hosts=hosts)
        with _run_in_thread(proxy):
            env = child_environment(os.environ, proxy=proxy.url(), named=named, authority=authority, folder=folder)
            env |= hook_variables(env, settings, folder)
            status = run_child(command, env, signals=signals)
        counts, unable = read_log(folder)
    recording.add_counts(counts["turn"], counts["error"], counts["lost"] + proxy.turned_away.total())
    unread = [host for host, _ in proxy.unread.most_common()]
    refused = [host for host, _ in proxy.refused.most_common()]
    return CommandResult(status, unread, refused, unable, dict(proxy.turned_away), list(proxy.passed))


@contextmanager
def _run_in_thread(proxy: RecordingProxy) -> Iterator[None]:
    """Run the proxy in a thread of its own. When it stops, unfinished exchanges are recorded as far as they came."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="bylaw-proxy", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# The proxy
#
# It changes nothing. Requests to the addresses in the child's environment and plain HTTP are recorded. HTTPS is
# decrypted only for hosts that are known to serve models, or that were named; every other tunnel passes unread and is
# counted.


SESSION = "x-bylaw-session"
"""a header in which a program can name the session of a request; the proxy does not pass it on"""


class RecordingProxy(Proxy):
    def __init__(
        self, recording: Recording, *, upstreams: Mapping[str, str], authority: Authority, hosts: tuple[str, ...]
    ) -> None:
        super().__init__(upstreams=upstreams, authority=authority)
        self._recording = recording
        self._hosts = (*MODEL_HOSTS, *(host.lower() for host in hosts))
        self.unread: Counter[str] = Counter()
        """tunnels that were not decrypted, by host"""
        self.passed: Counter[str] = Counter()
        """connections in protocols that cannot be recorded, such as `a web socket to example.com`"""
        self.refused: Counter[str] = Counter()
        """tunnels that were decrypted and whose client did not trust the certificate, by host"""
        self.turned_away: Counter[str] = Counter()
        """requests that the proxy could not serve, by the reason"""

    def begin(self, request: Outgoing) -> Exchange:
        session = request.headers.pop(SESSION, None)
        return self._recording.listen(Exchange(request), session=session or None)

    def decrypts(self, host: str) -> bool:
        if host in self.refused:  # a client that does not trust us gets through unread from now on
            return False
        return any(fnmatchcase(host.lower(), known) for known in self._hosts)

    def on_unread(self, host: str, what: str) -> None:
        if what == "HTTPS":
            self.unread[host] += 1
        else:
            self.passed[f"{what} to {host}"] += 1

    def on_tls_refused(self, host: str, token: str | None) -> None:
        self.refused[host] += 1

    def on_refused(self, why: str) -> None:
        self.turned_away[why] += 1

"""A Unix socket has one listener, whoever starts, ends or is killed at the same moment."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bylaw import files
from bylaw.files import locked_folder
from bylaw.files.unix_socket import AddressTaken, UnixListener, is_served
from bylaw.guard.integrations.hooks.service import HookService, ServiceProblem
from bylaw.guard.service.server import listening

ROUNDS, AT_ONCE = 4, 4


@pytest.fixture
def path(tmp_path: Path) -> str:
    tmp_path.chmod(0o700)
    return str(tmp_path / "s")


def _hook_service(path: str, stack: ExitStack) -> None:
    stack.callback(HookService(path).close)


def _guard_service(path: str, stack: ExitStack) -> None:
    stack.enter_context(listening(f"unix:{path}"))


Open = Callable[[str, ExitStack], None]
services = pytest.mark.parametrize("service", [_hook_service, _guard_service])


@services
def test_one_of_the_processes_that_start_at_once_listens(service: Open, path: str) -> None:
    for number in range(ROUNDS):
        assert _count_listeners(service, f"{path}{number}") == 1


def _count_listeners(service: Open, path: str) -> int:
    """How many of several forked processes believe that they listen."""
    begin, begun = os.pipe()
    results, result = os.pipe()
    end, ended = os.pipe()
    children = []
    for _ in range(AT_ONCE):
        child = os.fork()
        if child == 0:
            try:
                os.close(begun)
                os.close(ended)
                os.read(begin, 1)  # the end of the pipe, for all at once
                with ExitStack() as stack:
                    try:
                        service(path, stack)
                        os.write(result, b"1")
                    except (ServiceProblem, OSError):
                        os.write(result, b"0")
                    os.read(end, 1)
            finally:
                os._exit(0)
        children.append(child)
    os.close(begun)
    answers = b"".join(os.read(results, 1) for _ in children)
    assert is_served(path)
    os.close(ended)
    for child in children:
        os.waitpid(child, 0)
    for handle in (begin, results, result, end):
        os.close(handle)
    assert not os.path.exists(path)
    return answers.count(b"1")


@services
def test_a_service_that_ends_leaves_the_socket_of_another_one(service: Open, path: str) -> None:
    with ExitStack() as later, ExitStack() as earlier:
        service(path, earlier)
        os.unlink(path)
        service(path, later)
        earlier.close()
        assert is_served(path)
    assert not os.path.exists(path)


def test_closing_twice_does_not_remove_the_socket_of_the_next_one(path: str) -> None:
    first = UnixListener(path, backlog=1)
    first.close()
    second = UnixListener(path, backlog=1)
    first._file = os.lstat(path)  # as if its inode number was used again
    first.close()
    assert is_served(path)
    second.close()


@services
def test_the_socket_of_a_process_that_was_killed_is_replaced(service: Open, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)
        killed.listen()
    assert os.path.exists(path)
    with ExitStack() as stack:
        service(path, stack)
        assert is_served(path)


@services
def test_a_service_with_many_waiting_is_not_replaced(service: Open, path: str) -> None:
    """Its queue is full, so that connecting to it fails, though it listens."""
    with socket.socket(socket.AF_UNIX) as busy, ExitStack() as stack:
        busy.bind(path)
        busy.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(path)
        number = os.stat(path).st_ino
        with pytest.raises((ServiceProblem, AddressTaken), match="listens"):
            service(path, stack)
        assert os.stat(path).st_ino == number


@services
def test_a_file_that_is_no_socket_stays(service: Open, path: str) -> None:
    Path(path).write_text("mine")
    with pytest.raises((ServiceProblem, OSError), match="is not a socket"), ExitStack() as stack:
        service(path, stack)
    assert Path(path).read_text() == "mine"


def test_only_the_owner_can_use_the_socket(path: str) -> None:
    listener = UnixListener(path, backlog=1)
    assert os.stat(path).st_mode & 0o777 == 0o600
    listener.close()


def test_a_locked_folder_is_waited_for_and_nothing_is_left_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = threading.Event()

    def enter() -> None:
        with locked_folder(tmp_path):
            entered.set()

    with locked_folder(tmp_path):
        with monkeypatch.context() as patch, pytest.raises(TimeoutError, match="another process has locked"):
            patch.setattr(files, "_PATIENCE", 0.0)
            enter()
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.05)
    waiting.join()
    assert entered.is_set() and list(tmp_path.iterdir()) == []


def test_a_folder_that_another_program_keeps_locked_does_not_keep_a_service_from_starting(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.0)
    with locked_folder(os.path.dirname(path)):
        listener = UnixListener(path, backlog=1)
        assert is_served(path)
    listener.close()

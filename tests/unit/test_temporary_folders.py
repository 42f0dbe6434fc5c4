"""A temporary folder is removed by its process, or by the next one if that was killed, and never while it is used."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bylaw.files import clean_up_on_signals
from bylaw.files.temporary import TemporaryFolder, remove_abandoned


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remove_abandoned.cache_clear()
    yield tmp_path
    remove_abandoned.cache_clear()


def _child(work: Callable[[], object]) -> int:
    """A process that does this and then waits to be ended, once it has done it."""
    ready, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with clean_up_on_signals():
            held = work()
            os.write(write, b"x")
            while held:
                signal.pause()
        os._exit(0)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    os.close(write)
    return child


def _ended(child: int, number: int) -> int:
    os.kill(child, number)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def _is_left(folder: Path) -> list[str]:
    """What is left after the next process has made a folder of its own."""
    remove_abandoned.cache_clear()
    with TemporaryFolder("bylaw-") as own:
        return sorted(one.name for one in folder.iterdir() if str(one) != own)


def test_an_ordinary_end_leaves_nothing(folders: Path) -> None:
    with TemporaryFolder("bylaw-serve-") as name:
        Path(name, "file").touch()
        assert [str(one) for one in folders.iterdir()] == [name]
    assert list(folders.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_the_folder_and_ends_the_process(folders: Path, number: int) -> None:
    def work() -> None:
        with TemporaryFolder("bylaw-"):
            os.write(write, b"x")
            while True:
                signal.pause()

    ready, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(number, signal.SIG_DFL)
        with clean_up_on_signals():
            work()
        os._exit(0)
    assert os.read(ready, 1) == b"x" and len(list(folders.iterdir())) == 1
    assert (_ended(child, number), list(folders.iterdir())) == (number, [])
    os.close(ready)
    os.close(write)


def test_a_signal_while_the_folder_is_made_removes_it_too(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp

    def make_and_end(*given: str) -> str:
        name = make(*given)
        os.kill(os.getpid(), signal.SIGTERM)
        return name

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        monkeypatch.setattr(tempfile, "mkdtemp", make_and_end)
        with clean_up_on_signals(), TemporaryFolder("bylaw-"):
            os._exit(0)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
    assert list(folders.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(folders: Path) -> None:
    child = _child(lambda: TemporaryFolder("bylaw-serve-"))
    (name,) = os.listdir(folders)
    assert _is_left(folders) == [name], "its process is alive"
    assert _ended(child, signal.SIGKILL) == signal.SIGKILL
    assert _is_left(folders) == []


def test_the_folder_stays_while_a_program_uses_it_that_the_killed_process_started(folders: Path) -> None:
    """Such as the command of a recording, which reads certificates there."""
    reads, feeds = os.pipe()
    command = [sys.executable, "-S", "-c", f"import os; os.close({feeds}); os.read({reads}, 1)"]

    def work() -> object:
        held = TemporaryFolder("bylaw-", shared=True)
        os.set_inheritable(reads, True)
        os.set_inheritable(feeds, True)
        Path(held.name, "pid").write_text(str(os.posix_spawn(sys.executable, command, dict(os.environ))))
        os.close(feeds)
        return held

    child = _child(work)
    (name,) = os.listdir(folders)
    program = int((folders / name / "pid").read_text())
    assert _ended(child, signal.SIGKILL) == signal.SIGKILL
    assert _is_left(folders) == [name]
    os.close(feeds)  # the program reads to the end, and ends
    while Path(f"/proc/{program}").exists() and "\nState:\tZ" not in Path(f"/proc/{program}/status").read_text():
        os.sched_yield()
    assert _is_left(folders) == []
    os.close(reads)


def test_what_has_no_lock_or_another_name_is_left_alone(folders: Path) -> None:
    for name in ("bylaw-demo", "bylaw-abcdefgh", "bylaw-serve-abcdefgh"):
        (folders / name).mkdir(mode=0o700)
    (folders / "bylaw-demo" / ".bylaw-lock").touch()  # a name that somebody chose
    (folders / "mine").mkdir(mode=0o700)
    (folders / "mine" / ".bylaw-lock").touch()
    (folders / "bylaw-00000000").symlink_to("mine")
    (folders / "bylaw-11111111").mkdir(mode=0o755)  # others may have made it
    (folders / "bylaw-11111111" / ".bylaw-lock").touch()
    before = sorted(os.listdir(folders))
    assert _is_left(folders) == before and (folders / "mine" / ".bylaw-lock").exists()


def test_a_folder_that_was_taken_for_abandoned_before_it_was_locked_is_made_anew(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = tempfile.mkdtemp

    def make_and_lose(*given: str) -> str:
        made.append(make(*given))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    with TemporaryFolder("bylaw-") as name:
        assert len(made) == 2 and name == made[1] and Path(name, ".bylaw-lock").exists()


def test_without_locks_a_folder_is_made_and_never_taken_for_abandoned(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with TemporaryFolder("bylaw-") as name:
        assert os.listdir(name) == []
        monkeypatch.undo()
        monkeypatch.setattr(tempfile, "tempdir", str(folders))
        assert _is_left(folders) == [os.path.basename(name)]
    assert list(folders.iterdir()) == []

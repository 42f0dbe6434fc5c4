"""A file of the user is the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
import trustme

import bylaw
from bylaw.cli import main
from bylaw.contract.commands import import_file
from bylaw.files.atomic import open_atomic, write_atomic
from bylaw.guard.integrations.json_files import write_object
from bylaw.report.output import Target, open_target
from bylaw.traces.export import open_destination
from bylaw.wire.proxy.child_environment import Authority

SOURCE = Path(bylaw.__file__).parent
LIMIT = 1 << 16
LONG = "x" * (2 * LIMIT)
RULE = "guard:\n  rules:\n    - {id: soft, when: {tool_name_in: [pay]}, then: block, mode: shadow}\n"


def _promote(file: Path) -> None:
    bylaw.promote("soft", file)


def _promote_by_command(file: Path) -> None:
    store = file.with_name("guard.db")
    if not store.exists():
        bylaw.Guard(RULES, store=store).store.close()
    _run("guard", "promote", "soft", "--policy", str(file), "--store", str(store), "--yes")


def _import(file: Path) -> None:
    flakestorm = file.with_name("flakestorm.yaml")
    flakestorm.write_text("golden_prompts: [" + LONG[: LIMIT // 2] + ", " + "y" * LIMIT + "]\n")
    import_file.main([str(flakestorm), "--output", str(file), "--force"], standalone_mode=False)


def _report(file: Path) -> None:
    with open_target(Target("text", str(file))) as out:
        out.write(LONG)


def _settings(file: Path) -> None:
    write_object(file, {"long": LONG}, "{}")


def _convert(file: Path) -> None:
    trace = file.with_name("long.jsonl")
    line = '{"messages": [{"role": "user", "content": "%s"}]}\n'
    trace.write_text(line % LONG[: LIMIT // 2] + line % LONG[: LIMIT // 2] + line % LONG[: LIMIT // 2])
    bylaw.convert(trace, file, to="bylaw", overwrite=True)


def _run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    if ended.value.code:
        raise OSError(f"exit code {ended.value.code}")


RULES = {"guard": {"rules": [{"id": "other", "when": {"tool_name_in": ["x"]}, "then": "block"}]}}
WRITERS: list[Callable[[Path], None]] = [_promote, _promote_by_command, _import, _report, _settings, _convert]


@contextmanager
def _full_disk() -> Iterator[None]:
    """No file can be longer than LIMIT: a write stops in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.strip("_"))
def test_a_write_that_stops_in_the_middle_leaves_the_old_file(
    tmp_path: Path, write: Callable[[Path], None], through_link: bool
) -> None:
    file, link = tmp_path / "file.yaml", tmp_path / "link.yaml"
    old = RULE + f"# {LONG}\n"
    file.write_text(old)
    file.chmod(0o640)
    link.symlink_to(file.name)
    _prepare(write, tmp_path)
    before = sorted(tmp_path.iterdir())
    given = link if through_link else file
    with _full_disk(), pytest.raises(OSError):
        write(given)
    assert file.read_text() == old and link.is_symlink()
    assert sorted(tmp_path.iterdir()) == before, "no draft is left"
    write(given)
    assert file.read_text() != old and link.is_symlink()
    if write is not _convert:  # which makes a file as readable as its source
        assert stat.S_IMODE(file.stat().st_mode) == 0o640


def _prepare(write: Callable[[Path], None], folder: Path) -> None:
    """The other files that the function needs."""
    example = folder / "first.yaml"
    example.write_text(RULE + f"# {LONG}\n")
    write(example)
    example.unlink()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path, step: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULE)
    child = os.fork()
    if child == 0:
        setattr(os, step, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        bylaw.promote("soft", file)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert file.read_text() == RULE
    bylaw.promote("soft", file)
    assert file.read_text() == RULE.replace("mode: shadow", "mode: enforce")


def test_a_signal_ends_the_process_after_the_draft_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open_atomic(file) as out:
            out.write(b"half")
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_what_is_on_the_disk_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power failure could leave the new name with nothing in it."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def rename(draft: str, file: str) -> None:
        steps.append("rename")
        replace(draft, file)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    write_atomic(tmp_path / "file", b"new")
    assert steps == ["file", "rename", "folder"]


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_link_to_a_file_that_does_not_exist_yet_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"


def test_a_pipe_and_an_open_file_are_written_to(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write_atomic(f"/dev/fd/{writing}", b"new")
    assert os.read(reading, 10) == b"new"
    with (tmp_path / "file").open("w+b") as file:
        write_atomic(f"/dev/fd/{file.fileno()}", b"new")
        assert file.read() == b"new", "whoever has it open sees it"
    os.close(reading)
    os.close(writing)


def test_a_folder_that_cannot_be_written_to_is_named_as_the_user_did(tmp_path: Path) -> None:
    with pytest.raises(OSError) as problem:
        write_atomic(tmp_path / "none" / "file", b"new")
    assert problem.value.filename == str(tmp_path / "none" / "file")


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_every_error_names_the_file_as_the_user_did(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("old")
    Path("link").symlink_to("file")

    def fail(*arguments: object) -> None:
        raise OSError(1, "Operation not permitted", *arguments[:1])

    with monkeypatch.context() as patch, _full_disk(), pytest.raises(OSError) as problem:
        if step != "write":
            patch.setattr(os, step, fail)
        write_atomic("link", LONG.encode() if step == "write" else b"new")
    assert (problem.value.filename, problem.value.filename2) == ("link", None)
    assert Path("file").read_text() == "old"
    assert sorted(os.listdir()) == ["file", "link"]


def test_other_errors_while_a_file_is_written_keep_their_names(tmp_path: Path) -> None:
    for error in (OSError(5, "Input/output error"), OSError(5, "Input/output error", "trace")):
        with pytest.raises(OSError) as problem, open_atomic(tmp_path / "file"):
            raise error
        assert problem.value is error
    with pytest.raises(OSError) as problem:
        write_atomic("/dev/full", b"new")
    assert problem.value.filename == "/dev/full"


def test_a_link_that_leads_to_itself_is_not_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError) as problem:
        write_atomic(loop, b"new")
    assert problem.value.filename == str(loop) and loop.is_symlink()


def test_a_rule_that_could_not_be_written_is_not_shown_as_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULE + f"# {LONG}\n")
    bylaw.Guard(RULES, store=tmp_path / "guard.db").store.close()
    with _full_disk(), pytest.raises(OSError):
        _promote_by_command(file)
    printed = capsys.readouterr()
    assert "→" not in printed.out
    assert f"`{file}`" in printed.err
    _promote_by_command(file)
    assert "mode: shadow} → " in capsys.readouterr().out


def test_a_key_without_its_certificate_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Authority.persistent(tmp_path)
    (tmp_path / "bylaw-ca.key").unlink()
    with _full_disk_at("bylaw-ca.pem", monkeypatch), pytest.raises(OSError):
        Authority.persistent(tmp_path)
    assert not (tmp_path / "bylaw-ca.pem").exists()
    made = Authority.persistent(tmp_path)
    assert made.file.read_bytes() == Authority.persistent(tmp_path)._ca.cert_pem.bytes()


def test_runs_that_begin_at_once_have_one_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_make_one = threading.Barrier(2)

    class SlowlyMade(trustme.CA):
        def __init__(self, **names: Any) -> None:
            with suppress(threading.BrokenBarrierError):
                both_make_one.wait(0.2)
            super().__init__(**names)

    made: list[bytes] = []

    def begin() -> None:
        made.append(Authority.persistent(tmp_path)._ca.cert_pem.bytes())

    monkeypatch.setattr(trustme, "CA", SlowlyMade)
    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [(tmp_path / "bylaw-ca.pem").read_bytes()] * 2


@contextmanager
def _full_disk_at(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def replace(draft: str, file: str) -> None:
        if file.endswith(name):
            raise OSError(28, "No space left on device")
        os.rename(draft, file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        yield


OWN_FILES = {
    "files/atomic.py": "the draft itself",
    "cli.py": "the null device",
    "guard/commands/mcp.py": "standard output",
    "guard/integrations/hooks/run.py": "two characters in a folder that was made a moment ago",
    "guard/service/demo/__init__.py": "a temporary folder",
    "guard/service/telemetry.py": "a temporary folder",
    "lint/json_schema.py": "a file of this repository",
    "record/api.py": "lines are appended",
    "record/startup_hook.py": "lines are appended",
    "traces/export/__init__.py": "a recording in progress, whose lines count as soon as they are written",
    "wire/proxy/child_environment.py": "a temporary folder",
}
"""modules that write files in another way, and why that is right"""


def test_files_of_the_user_are_written_in_one_way() -> None:
    writes = re.compile(r"""\.write_(?:text|bytes)\(|\bopen\(.*["'][wax]b?["']|mkstemp|os\.replace\(""")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if writes.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(OWN_FILES)


# -- without --force


def _convert_anew(file: Path) -> None:
    trace = file.with_name("short.jsonl")
    trace.write_text('{"messages": [{"role": "user", "content": "hello"}]}\n')
    _run("convert", str(trace), str(file), "--to", "bylaw")


def _import_anew(file: Path) -> None:
    flakestorm = file.with_name("flakestorm.yaml")
    flakestorm.write_text("golden_prompts: [hello]\n")
    try:
        import_file.main([str(flakestorm), "--output", str(file)], standalone_mode=False)
    except click.UsageError as problem:
        click.echo(problem, err=True)
        raise OSError("exit code 2") from None


def _demo_anew(file: Path) -> None:
    _run("demo", str(file.parent))


def _pull_anew(file: Path) -> None:
    with open_destination(str(file), overwrite=False, private=True) as out:
        out.write(b"new")


NEW_FILES = [
    (_convert_anew, "out.jsonl"),
    (_import_anew, "out.yaml"),
    (_demo_anew, "v1.jsonl"),
    (_pull_anew, "x.jsonl"),
]


@pytest.mark.parametrize("has_links", [True, False], ids=["", "without hard links"])
@pytest.mark.parametrize(("write", "name"), NEW_FILES, ids=lambda one: getattr(one, "__name__", "").strip("_"))
def test_a_file_that_appears_at_the_last_moment_is_not_replaced(
    tmp_path: Path,
    write: Callable[[Path], None],
    name: str,
    has_links: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, fsync = tmp_path / name, os.fsync

    def sync(handle: int) -> None:
        fsync(handle)
        file.write_text("of another command")

    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", link)
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(os, "fsync", sync)
        write(file)
    assert file.read_text() == "of another command"
    assert not list(tmp_path.glob(".*.part"))
    if write is not _pull_anew:
        assert "exists" in capsys.readouterr().err
        assert _exit_code(lambda: write(file)) == 2
    for one in tmp_path.iterdir():
        one.unlink()
    write(file)
    assert file.read_text() != "of another command" and not list(tmp_path.glob(".*.part"))


def _exit_code(command: Callable[[], None]) -> int:
    with pytest.raises(OSError, match=r"exit code \d") as problem:
        command()
    return int(str(problem.value)[-1])


def test_one_of_the_commands_that_write_a_new_file_at_once_succeeds(tmp_path: Path) -> None:
    file, ready = tmp_path / "file", threading.Barrier(4)
    won: list[bytes] = []

    def write(data: bytes) -> None:
        with suppress(FileExistsError), open_atomic(file, overwrite=False) as out:
            out.write(data)
            ready.wait()
            out.flush()
        if file.read_bytes() == data:
            won.append(data)

    threads = [threading.Thread(target=write, args=(b"%d" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [file.read_bytes()] and list(tmp_path.iterdir()) == [file]


def test_an_error_without_hard_links_leaves_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="refused"):
        write_atomic(tmp_path / "new", b"x", overwrite=False)
    assert list(tmp_path.iterdir()) == []

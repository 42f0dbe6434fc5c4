"""Files of the user are replaced atomically: after a kill or an error, the old file or the new one is there.

The new content is written to a draft in the same folder, flushed to the disk, and renamed. A file that must not replace
another one becomes a hard link to the draft instead, since making a link fails if the name is taken.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from bylaw.files import clean_up_on_signals

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STREAMS = ("/dev/fd/", "/dev/stderr", "/dev/stdout", "/proc/")
"""links to open files: a reader waits at the file itself, and would not see another one in its place"""


@contextlib.contextmanager
def open_atomic(
    path: str | os.PathLike[str], *, mode: int = 0o666, keep_mode: bool = True, overwrite: bool = True
) -> Iterator[IO[bytes]]:
    """A file to write to, which appears at `path` if no exception is raised. Raises OSError, with the path as given.

    A link stays, and the file that it points to is replaced. A device or a pipe is written to. `mode`: permissions of a
    new file, before the umask. With `keep_mode`, a file that is replaced keeps its permissions and its owner. Without
    `overwrite`, an existing file is not replaced, even if it appears during the writing: raises FileExistsError.
    """
    given = os.fspath(path)
    if is_special(given):
        with io.BufferedWriter(_NamedFile(given, given)) as out:
            yield out
        return
    final = os.path.realpath(given)
    folder = os.path.dirname(final)
    draft = os.path.join(folder, f".{secrets.token_hex(8)}.part")
    with clean_up_on_signals():
        try:
            with _naming(given):
                if os.path.islink(final):
                    os.stat(final)  # raises: a link that leads back to itself
                draft_file = _create(draft, final, given, mode, keep_mode=keep_mode)
            with draft_file as out:
                yield out
                out.flush()
                with _naming(given):
                    os.fsync(out.fileno())
            with _naming(given):
                is_published = _publish(draft, final, overwrite=overwrite)
            if not is_published:
                raise FileExistsError(f"`{given}` exists")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    _sync_folder(folder)


def _publish(draft: str, final: str, *, overwrite: bool) -> bool:
    """Give the draft its final name. Returns False if that name is taken and `overwrite` is off."""
    if overwrite:
        os.replace(draft, final)
        return True
    try:
        os.link(draft, final)
    except FileExistsError:
        return False
    except OSError:  # no hard links on this file system: reserve the name with an empty file, and replace that
        try:
            os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        try:
            os.replace(draft, final)
        except BaseException:
            os.unlink(final)
            raise
    else:
        with contextlib.suppress(OSError):  # the file is there under its name
            os.unlink(draft)
    return True


@contextlib.contextmanager
def _naming(given: str) -> Iterator[None]:
    """Errors have the path that the user gave: a full disk names no file, and nobody knows the draft."""
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), given) from None


class _NamedFile(io.FileIO):
    """A file whose failed writes name it. The caller may read other files meanwhile: those errors stay as they are."""

    def __init__(self, file: str | int, given: str) -> None:
        super().__init__(file, "wb")
        self._given = given

    def write(self, data: ReadableBuffer, /) -> int:
        with _naming(self._given):
            return super().write(data)


def _create(draft: str, final: str, given: str, mode: int, *, keep_mode: bool) -> IO[bytes]:
    before = os.stat(final) if keep_mode and os.path.exists(final) else None
    first = mode if before is None else mode & before.st_mode
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, first)
    out = io.BufferedWriter(_NamedFile(handle, given))  # the caller closes it
    if before is not None:
        with contextlib.suppress(OSError):  # only the superuser can give a file away
            os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, before.st_mode & 0o777)
    return out


def write_atomic(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o666, overwrite: bool = True) -> None:
    """Replace the file as a whole. As `open_atomic`."""
    with open_atomic(path, mode=mode, overwrite=overwrite) as out:
        out.write(data)


def is_special(path: str) -> bool:
    """Whether it is a device, a pipe, a folder or an open file of this process, and not a file to replace."""
    if os.path.abspath(path).startswith(_STREAMS):
        return True
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def _sync_folder(folder: str) -> None:
    """So that the new name outlives a power failure."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

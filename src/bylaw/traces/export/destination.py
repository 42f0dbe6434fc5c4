"""Where a trace is written: a file that appears when it is complete, a pipe, or standard output."""

from __future__ import annotations

import gzip
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

STDOUT = "-"
_OWNERS, _ANYBODYS = 0o600, 0o666


def open_compressed(path: str) -> IO[bytes]:
    """A file to write to, compressed where its name ends in `.gz` or `.zst`."""
    if path.endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "wb"))
    if path.endswith(".zst"):
        import zstandard

        return cast(IO[bytes], zstandard.open(path, "wb"))
    return open(path, "wb")


@contextmanager
def open_destination(
    path: str, *, overwrite: bool, like: str | None = None, private: bool = False
) -> Iterator[IO[bytes]]:
    """The file appears at `path` if no exception is raised, and not at all otherwise. Raises FileExistsError, OSError.

    Only a plain file is replaced: a device or a pipe is written to, and the target of a link is replaced, not the link.
    `like`: the source file; the new file gets at most its read permissions. `private`: only the owner may read it.
    """
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    refuse_existing(path, overwrite=overwrite)
    final = os.path.realpath(path)
    if is_special(final):
        with open(final, "wb") as out:
            yield out
        return
    draft = os.path.join(os.path.dirname(final), f".{secrets.token_hex(8)}.part")
    try:
        with _created(draft, path, _OWNERS if private else _mode(like)) as file, _compressed(file, path) as out:
            yield out
        refuse_existing(path, overwrite=overwrite)
        os.replace(draft, final)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def refuse_existing(path: str, *, overwrite: bool) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(f"`{path}` is a folder")
    if not overwrite and path != STDOUT and os.path.exists(path) and not is_special(path):
        raise FileExistsError(f"`{path}` exists")


def is_special(path: str) -> bool:
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def _mode(like: str | None) -> int:
    """Permissions, before the umask. The owner may always read and write."""
    if like is None or not os.path.exists(like):
        return _ANYBODYS
    return _OWNERS | (_ANYBODYS & os.stat(like).st_mode)


def _created(draft: str, path: str, mode: int) -> IO[bytes]:
    try:
        return open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode))
    except OSError as problem:  # name the path that the user gave
        raise OSError(problem.errno, problem.strerror, path) from None


@contextmanager
def _compressed(file: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    if path.endswith(".gz"):
        # without a time and a name, the same trace gives the same bytes
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
            yield cast(IO[bytes], packed)
    elif path.endswith(".zst"):
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as writer:
            yield cast(IO[bytes], writer)
    else:
        yield file

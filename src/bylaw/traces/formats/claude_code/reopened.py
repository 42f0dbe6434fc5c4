"""Files that are open only while a piece of them is read: more may be read side by side than a process may open."""

from __future__ import annotations

import io
from typing import IO, cast

from bylaw.traces.records.opening import Input, open_path


class _Reopened(io.RawIOBase):
    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._at)
            data = file.read(size) or b""
        self._at += len(data)
        return data

    def tell(self) -> int:
        return self._at


class _ReopenedInput(Input):
    def _open(self) -> IO[bytes]:
        return super()._open() if self.path is None else cast(IO[bytes], _Reopened(self.path))


def open_often(path: str) -> Input:
    """A file by its path. Raises InputError where there is none."""
    source = open_path(path)
    return source if source.path is None else _ReopenedInput(source.name, path=source.path)

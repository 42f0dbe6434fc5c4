"""Files of the user's as text: bounded in size, UTF-8, and never an exception but a diagnostic."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bylaw.model.diagnostic import Diagnostic
from bylaw.rules.located import MAX_BYTES, Located
from bylaw.rules.source import Source


class NotRead(Exception):
    """The file cannot be used; `diagnostic` says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic


def read_text_file(path: Path, name: str, *, regular: bool = False) -> str:
    """The file's text. `regular` refuses pipes and devices, which a path inside a rule has no business to name."""
    try:
        if regular and not stat.S_ISREG(os.stat(path).st_mode):
            raise _not_read(code="unreadable-file", message="is not a regular file", name=name)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _not_read(code="no-such-file", message="no such file", name=name) from None
    except (OSError, ValueError) as error:
        raise _not_read(code="unreadable-file", message=_reason(error), name=name) from None
    return decode(data, name)


def decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise _not_read(code="too-large", message=f"the file is larger than {MAX_BYTES // 1024**2} MiB", name=name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        source = Source(name, data.decode("utf-8", "replace"))
        offset = len(data[: error.start].decode("utf-8").removeprefix("\ufeff"))
        at = Located(source, offset, offset + 1)
        raise _not_read(code="bad-utf8", message="the file is not UTF-8", name=name, at=at) from None


def _reason(error: OSError | ValueError) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be opened"
    return said[:1].lower() + said[1:]


def _not_read(*, code: str, message: str, name: str, at: Located | None = None) -> NotRead:
    span = at.span if at else None
    excerpt, column = at.source.excerpt(at.span) if at else (None, 1)
    return NotRead(
        Diagnostic(
            code=code,
            message=message,
            file=name,
            span=span,
            excerpt=excerpt,
            excerpt_column=column,
            help=_HELP.get(code),
        )
    )


_HELP = {
    "bad-utf8": "save the file as UTF-8",
    "no-such-file": "check the path; it is taken relative to the current folder",
    "too-large": "split the rules into several files",
}

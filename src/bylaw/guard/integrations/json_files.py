"""JSON files that belong to others: read strictly, changed in their own indentation, replaced all at once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

from bylaw.files import locked_folder
from bylaw.files.atomic import write_atomic
from bylaw.text.repeated_keys import loads_strictly

_INDENT = re.compile(r"^\{\s*?\n([ \t]+)\"")
_COMMENT = re.compile(r"^\s*//|^\s*/\*|,\s*//|\{\s*//", re.MULTILINE)


class FileProblem(ValueError):
    """The file cannot be read or edited; the message says why."""


@contextmanager
def editing(path: Path) -> Iterator[None]:
    """Lock the folder of a file while the file, and its backup there, are read, changed and written. Otherwise, an
    entry that another process adds in between would be lost. Raises OSError."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):  # so there is no file yet
        yield
        return
    with locked_folder(folder):
        yield


def read_object(path: Path) -> tuple[dict[str, Any], str]:
    """The object in the file, and the text of the file; `{}` and no text if there is none. Raises FileProblem."""
    try:
        text = path.read_bytes().decode("utf-8")  # with its own line ends
    except FileNotFoundError:
        return {}, ""
    except (OSError, UnicodeDecodeError) as problem:
        raise FileProblem(f"cannot read `{path}`: {problem}") from None
    try:
        found = loads_strictly(text, parse_float=_float, parse_constant=_float) if text.strip() else {}
    except (ValueError, RecursionError) as problem:
        why = "it has comments" if _COMMENT.search(text) else str(problem)
        raise FileProblem(f"`{path}` is not plain JSON, so it is not edited: {why}") from None
    if not isinstance(found, dict):
        raise FileProblem(f"`{path}` does not hold an object")
    return found, text


def _float(text: str) -> float:
    found = float(text)
    if not isfinite(found) or Decimal(text) != Decimal(repr(found)):  # another number would be written
        raise ValueError(f"the number {text} cannot be kept")
    return found


def write_object(path: Path, value: dict[str, Any], before: str) -> bool:
    """Write the object atomically, in the indentation of the text before. Returns whether the file has changed."""
    if before.strip() and json.loads(before) == value:
        return False
    replace_file(path, render(value, before))
    return True


def render(value: dict[str, Any], before: str) -> str:
    """The text of a file, in the indentation and with the line ends of the text before. Raises FileProblem."""
    found = _INDENT.match(before)
    text = json.dumps(value, indent=found[1] if found else 2, ensure_ascii=False)
    text += "\n" if before.endswith("\n") or not before else ""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise FileProblem(f"half of a character cannot be written: {problem}") from None
    return text.replace("\n", "\r\n") if "\r\n" in before else text


def replace_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """The file appears whole or not at all; one that is there keeps its mode, and a link keeps pointing to it."""
    Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode(), mode=mode)

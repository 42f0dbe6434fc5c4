"""What a caller hands in: paths of files, or the content of one as Python values; and the documents in a text.

A file is read as UTF-8 text of bounded size. A problem with it is a diagnostic.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bylaw.errors import ArgumentError, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.rules.nodes import MAX_BYTES, MAX_DEPTH, SURROGATE, LeftAlone, Located, Node, Problems, ScalarNode, Source

FilePath: TypeAlias = str | os.PathLike[str]
Format: TypeAlias = Literal["yaml", "json"]

INDEX_FILES = ("index.yaml", "index.yml")
"""the file that is read for a folder: the index of an agent manifest"""

IN_CODE = "<rules>"
"""the file name of rules built in code, in diagnostics"""


_input_checks: list[Callable[[FilePath], None]] = []


@contextlib.contextmanager
def check_inputs(check: Callable[[FilePath], None]) -> Iterator[None]:
    """Call `check` with each file that is read in the block, before it is read, and with each that is noted."""
    _input_checks.append(check)
    try:
        yield
    finally:
        _input_checks.remove(check)


def are_inputs_checked() -> bool:
    return bool(_input_checks)


def note_input(path: FilePath) -> None:
    """Report a file that the work depends on, and that this module does not read."""
    for check in _input_checks:
        check(path)


def note_module(address: str, folder: FilePath) -> None:
    """Report the files of `module:attribute`, which is searched in the folder first. Nothing is imported."""
    if not are_inputs_checked():
        return
    from importlib.machinery import PathFinder

    name, places = "", [os.path.abspath(folder), *sys.path]
    for part in address.partition(":")[0].split("."):
        name = f"{name}.{part}".lstrip(".")
        try:
            spec = PathFinder.find_spec(name, places)
        except (ImportError, ValueError):  # it is not the name of a module
            return
        if spec is None:
            return
        if spec.origin is not None:
            note_input(spec.origin)
        places = list(spec.submodule_search_locations or ())


class UnusableFile(InputError):
    """The file cannot be used; `diagnostic` says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__([diagnostic])
        self.diagnostic = diagnostic


def read_text_file(path: Path, name: str, *, regular: bool = False, index: bool = False) -> str:
    """The file's text. `regular` refuses pipes and devices, which a path inside a rule has no business to name.

    `index`: a folder could have been given, if it had the index of an agent manifest.
    """
    note_input(path)
    try:
        if regular and not stat.S_ISREG(os.stat(path).st_mode):
            raise _unusable_file(code="unreadable-file", message="is not a regular file", name=name)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _unusable_file(code="no-such-file", message="no such file", name=name) from None
    except IsADirectoryError:
        missing = f"the folder has no {INDEX_FILES[0]}, the index of an agent manifest"
        message = missing if index else "this is a folder, and a file is needed"
        raise _unusable_file(code="unreadable-file", message=message, name=name) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be opened"
        raise _unusable_file(code="unreadable-file", message=reason[:1].lower() + reason[1:], name=name) from None
    return decode(data, name)


def decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise _unusable_file(code="too-large", message=f"the file is larger than {MAX_BYTES // 1024**2} MiB", name=name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        source = Source(name, data.decode("utf-8", "replace"))
        offset = len(data[: error.start].decode("utf-8").removeprefix("\ufeff"))
        at = Located(source, offset, offset + 1)
        raise _unusable_file(code="bad-utf8", message="the file is not UTF-8", name=name, at=at) from None


_TRACE_KEYS = frozenset(("bylaw", "messages", "payload", "resourceSpans", "resource_spans", "role", "traj"))
_RULE_KEYS = frozenset(("contract", "guard", "id", "rules", "versions"))


def refuse_trace(text: str, name: str) -> None:
    """Raises UnusableFile if the file is plainly a trace: one message, and not one for each of its keys."""
    start = text.lstrip("\ufeff \t\r\n[")[:1]
    line = next((line for line in text.split("\n") if line.strip()), "") if start == "{" else ""
    try:
        value = json.loads(line) if line else None
    except (ValueError, RecursionError):
        return
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and not _TRACE_KEYS.isdisjoint(first) and _RULE_KEYS.isdisjoint(first):
        raise _unusable_file(
            code="not-a-rule-file", message=f"`{name}` is not a rule file: it looks like a trace", name=name
        )


def _unusable_file(*, code: str, message: str, name: str, at: Located | None = None) -> UnusableFile:
    span = at.span if at else None
    excerpt, column = at.source.excerpt(at.span) if at else (None, 1)
    return UnusableFile(
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
    "no-such-file": "check the path; it is relative to the current folder",
    "not-a-rule-file": "name it as a trace, as in `bylaw check TRACE --policy RULES`",
    "too-large": "split the rules into several files",
}


def is_in_code(source: Any) -> bool:
    if isinstance(source, Mapping):
        return True
    return (
        isinstance(source, Iterable)
        and not isinstance(source, str | os.PathLike)
        and all(isinstance(item, Mapping) for item in source)
    )


def paths_in(source: Any, caller: str) -> list[FilePath]:
    paths = [source] if isinstance(source, str | os.PathLike) or not isinstance(source, Iterable) else list(source)
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError(f"{caller} takes paths or mappings, not source={path!r}")
    return paths


def index_of(path: FilePath) -> FilePath:
    """The index file of a folder that has one; any other path as it is."""
    if os.path.isdir(path):
        return next((file for name in INDEX_FILES if (file := Path(path) / name).is_file()), path)
    return path


def format_of(file: str) -> Format:
    return "json" if file.lower().endswith(".json") else "yaml"


def encode_values(values: Any) -> str | Diagnostic:
    """As JSON text, so that problems have a line to show; or why that cannot be."""
    try:
        return json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        reason = f"nested more than {MAX_DEPTH} levels deep" if isinstance(error, RecursionError) else str(error)
        message = f"not JSON values: {reason[:1].lower()}{reason[1:]}"
        help = "use text, numbers, true, false, None, lists and mappings"
        return Diagnostic(code="wrong-type", message=message, file=IN_CODE, help=help)


# -- documents ---------------------------------------------------------------------------------------------------------

# The text of a rule file → its documents, as located trees. Only agent manifests may be several in one file.


def read_documents(
    source: Source, problems: Problems, format: Format, several: Callable[[Node], bool], left_alone: LeftAlone
) -> list[Node]:
    """The trees of the text's documents; none where the text cannot be used, which is then reported.

    `several`: whether other documents may follow this one. `left_alone`: parts that may hold any value.
    """
    if len(source.text) > MAX_BYTES:
        message = f"the text is longer than {MAX_BYTES:,} characters"
        problems.error(code="too-large", message=message, at=Located(source, 0, 1))
        return []
    if half := SURROGATE.search(source.text):
        message = "the text holds half of a surrogate pair"
        problems.error(code="bad-surrogate", message=message, at=Located(source, half.start(), half.end()))
        return []
    if format == "json":
        from bylaw.rules.json_nodes import parse_json

        root = parse_json(source, problems, left_alone)
        roots = [] if root is None else [root]
    else:
        from bylaw.rules.yaml_nodes import parse_yaml_documents  # PyYAML is slow to import, and JSON does without

        roots = parse_yaml_documents(source, problems, several, left_alone)
    if all(_is_blank(root) for root in roots) and (roots or not problems.all):
        help = "write a list of rules under `rules:`"
        problems.error(code="empty-file", message="the file is empty", at=Located(source, 0, 0), help=help)
        return []
    return [root for root in roots if not _is_blank(root)]


def _is_blank(root: Node) -> bool:
    return isinstance(root, ScalarNode) and root.value is None and root.start == root.end

"""Files, texts and Python values → a RuleSet. The one place where problems become an exception."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from bylaw.dialects.files import NotRead, read_text_file
from bylaw.dialects.located import MAX_BYTES, MAX_DEPTH, Located, Node, ScalarNode
from bylaw.dialects.located_json import parse_json
from bylaw.dialects.params import Context
from bylaw.dialects.policy import read_policy
from bylaw.dialects.problems import Problems, Unreadable
from bylaw.dialects.rules import Ids
from bylaw.dialects.source import Source
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule
from bylaw.model.ruleset import RuleSet
from bylaw.model.source import Span

FilePath: TypeAlias = str | os.PathLike[str]
Format: TypeAlias = Literal["yaml", "json"]

IN_CODE = "<rules>"
"""what rules built in code are called in diagnostics"""

_SURROGATE = re.compile("[\ud800-\udfff]")


def load_rules(source: FilePath | Sequence[FilePath] | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> RuleSet:
    """The rules of a file, of several files together, or built in code; InputError with every problem found.

    Rules built in code are what a rule file would hold as JSON: a list of mappings, or a mapping with `rules`.
    """
    found = _load_values(source) if _is_in_code(source) else _load_files(_paths(source))
    if not found.ok:
        raise InputError(found.diagnostics)
    return found


def read_rules(paths: Iterable[FilePath]) -> RuleSet:
    """The usable rules of these files together, and every problem in them. Never raises for what the files hold."""
    return _load_files(list(paths))


def lint_files(paths: Iterable[FilePath]) -> list[Diagnostic]:
    """Every problem of these rule files, errors and warnings."""
    return list(read_rules(paths).diagnostics)


def source_line(span: Span) -> str | None:
    """The line of a rule file that a span starts on, or as much of it as can be shown."""
    try:
        return Source(span.file, read_text_file(Path(span.file), span.file)).excerpt(span)[0]
    except (NotRead, IndexError):
        return None


def parse_rules(
    text: str, *, file: str = "<text>", format: Format = "yaml", base: FilePath | None = None, ids: Ids | None = None
) -> RuleSet:
    """The usable rules of a text, and every problem in it. Never raises for what the text holds.

    `base` is the folder that `schema_path` is relative to. `ids` carries the ids of files read before.
    """
    source = Source(file, text)
    problems = Problems(source)
    root = _parse(source, problems, format)
    rules: list[Rule] = []
    if root is not None:
        context = Context(problems, Path(base) if base is not None else Path())
        with contextlib.suppress(Unreadable):
            rules = read_policy(root, context, {} if ids is None else ids)
    return RuleSet(tuple(rules), problems.all, (file,))


def _parse(source: Source, problems: Problems, format: Format) -> Node | None:
    if len(source.text) > MAX_BYTES:
        message = f"the text is longer than {MAX_BYTES:,} characters"
        problems.error(code="too-large", message=message, at=Located(source, 0, 1))
        return None
    if half := _SURROGATE.search(source.text):
        message = "the text holds half of a surrogate pair"
        problems.error(code="bad-surrogate", message=message, at=Located(source, half.start(), half.end()))
        return None
    root = parse_json(source, problems) if format == "json" else _parse_yaml(source, problems)
    empty = isinstance(root, ScalarNode) and root.value is None and root.start == root.end
    if (root is None and not problems.all) or empty:
        help = "write a list of rules under `rules:`"
        problems.error(code="empty-file", message="the file is empty", at=Located(source, 0, 0), help=help)
        return None
    return root


def _parse_yaml(source: Source, problems: Problems) -> Node | None:
    from bylaw.dialects.located_yaml import parse_yaml  # PyYAML is slow to import, and JSON does without

    return parse_yaml(source, problems)


def _load_files(paths: Sequence[FilePath]) -> RuleSet:
    ids: Ids = {}
    return _join([_load_file(path, ids) for path in paths])


def _load_file(path: FilePath, ids: Ids) -> RuleSet:
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except NotRead as not_read:
        return RuleSet((), (not_read.diagnostic,), (file,))
    format: Format = "json" if file.lower().endswith(".json") else "yaml"
    return parse_rules(text, file=file, format=format, base=Path(file).parent, ids=ids)


def _load_values(values: Any) -> RuleSet:
    """Through JSON text, so that problems have a line to show; the rules themselves stand in no file."""
    try:
        text = json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        return RuleSet((), (_not_json(error),), (IN_CODE,))
    found = parse_rules(text, file=IN_CODE, format="json")
    rules = tuple(replace(rule, span=None) for rule in found.rules)
    return RuleSet(rules, found.diagnostics, found.files)


def _not_json(error: Exception) -> Diagnostic:
    reason = f"nested more than {MAX_DEPTH} levels deep" if isinstance(error, RecursionError) else str(error)
    reason = reason[:1].lower() + reason[1:]
    help = "use text, numbers, true, false, None, lists and mappings"
    return Diagnostic(code="wrong-type", message=f"not JSON values: {reason}", file=IN_CODE, help=help)


def _join(parts: Sequence[RuleSet]) -> RuleSet:
    rules = tuple(rule for part in parts for rule in part.rules)
    diagnostics = sorted((d for part in parts for d in part.diagnostics), key=Diagnostic.sort_key)
    return RuleSet(rules, tuple(diagnostics), tuple(file for part in parts for file in part.files))


def _is_in_code(source: Any) -> bool:
    if isinstance(source, Mapping):
        return True
    return not isinstance(source, str | os.PathLike) and all(isinstance(item, Mapping) for item in source)


def _paths(source: Any) -> list[FilePath]:
    paths = [source] if isinstance(source, str | os.PathLike) else list(source)
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"load_rules takes paths or mappings, not source={path!r}")
    return paths

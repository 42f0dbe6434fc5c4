"""Files, texts and Python values → a RuleSet. The one place where problems become an exception."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bylaw.contract.file.ci import check_ci
from bylaw.contract.file.file import read_contract
from bylaw.contract.file.rule_check import file_rules
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule
from bylaw.model.ruleset import RuleSet
from bylaw.model.source import Span
from bylaw.rules.documents import Format, parse_documents
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.inputs import IN_CODE, FilePath, as_text, format_of, is_in_code, paths_in
from bylaw.rules.params import Context
from bylaw.rules.policy import read_policy
from bylaw.rules.problems import Problems, Unreadable
from bylaw.rules.rule_fields import Ids
from bylaw.rules.source import Source


def load_rules(source: FilePath | Sequence[FilePath] | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> RuleSet:
    """The rules of a file, of several files together, or built in code; InputError with every problem found.

    Rules built in code are what a rule file would hold as JSON: a list of mappings, or a mapping with `rules`.
    """
    found = _load_values(source) if is_in_code(source) else _load_files(paths_in(source, "load_rules"))
    if not found.ok:
        raise InputError(found.diagnostics)
    return found


def read_rules(paths: Iterable[FilePath]) -> RuleSet:
    """The usable rules of these files together, and every problem in them, those of contracts too.

    Never raises for what the files hold.
    """
    return _load_files(list(paths), every_section=True)


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
    text: str,
    *,
    file: str = "<text>",
    format: Format = "yaml",
    base: FilePath | None = None,
    ids: Ids | None = None,
    every_section: bool = False,
) -> RuleSet:
    """The usable rules of a text, and every problem in it. Never raises for what the text holds.

    `base` is the folder that `schema_path` is relative to. `ids` carries the ids of files read before. Where
    `every_section` is asked for, what is wrong with a contract beside the rules is reported as well.
    """
    source = Source(file, text)
    problems = Problems(source)
    rules: list[Rule] = []
    with contextlib.suppress(Unreadable):
        if documents := parse_documents(source, problems, format):
            context = Context(problems, Path(base) if base is not None else Path(), every_section=every_section)
            seen: Ids = {} if ids is None else ids
            rules = read_policy(documents, context, seen)
            if every_section:
                read_contract(documents, file_rules(rules, seen, file), context)
                check_ci(documents, context)
    return RuleSet(tuple(rules), problems.all, (file,))


def _load_files(paths: Sequence[FilePath], *, every_section: bool = False) -> RuleSet:
    ids: Ids = {}
    return _join([_load_file(path, ids, every_section) for path in paths])


def _load_file(path: FilePath, ids: Ids, every_section: bool) -> RuleSet:
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except NotRead as not_read:
        return RuleSet((), (not_read.diagnostic,), (file,))
    base = Path(file).parent
    return parse_rules(text, file=file, format=format_of(file), base=base, ids=ids, every_section=every_section)


def _load_values(values: Any) -> RuleSet:
    """The rules themselves stand in no file."""
    text = as_text(values)
    if isinstance(text, Diagnostic):
        return RuleSet((), (text,), (IN_CODE,))
    found = parse_rules(text, file=IN_CODE, format="json")
    rules = tuple(replace(rule, span=None) for rule in found.rules)
    return RuleSet(rules, found.diagnostics, found.files)


def _join(parts: Sequence[RuleSet]) -> RuleSet:
    rules = tuple(rule for part in parts for rule in part.rules)
    diagnostics = sorted((d for part in parts for d in part.diagnostics), key=Diagnostic.sort_key)
    return RuleSet(rules, tuple(diagnostics), tuple(file for part in parts for file in part.files))

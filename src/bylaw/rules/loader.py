"""Files, texts and Python values → a RuleSet. The one place where problems become an exception."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule
from bylaw.model.ruleset import RuleSet
from bylaw.model.source import Span
from bylaw.rules.documents import Format, parse_documents
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.inputs import IN_CODE, FilePath, as_text, format_of, is_in_code, paths_in
from bylaw.rules.located import Node
from bylaw.rules.params import Context
from bylaw.rules.policy import read_policy
from bylaw.rules.problems import Problems, Unreadable
from bylaw.rules.rule_fields import Ids
from bylaw.rules.source import Source

SectionReader: TypeAlias = Callable[[Sequence[Node], Sequence[Rule], Ids, Context], None]
"""reads a section beside the rules and reports its problems: documents, the rules that can be used, all ids, context"""

Rules: TypeAlias = "str | os.PathLike[str] | RuleSet | Sequence[Rule]"
"""what a caller may pass as rules: the path of a rule file, what `load_rules` returned, or the rules themselves"""


def as_rules(rules: Rules) -> Sequence[Rule]:
    if isinstance(rules, RuleSet):
        return rules.rules
    if isinstance(rules, (str, os.PathLike)):
        return load_rules(rules).rules
    return rules


def load_rules(source: FilePath | Sequence[FilePath] | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> RuleSet:
    """The rules of a file, of several files together, or built in code; InputError with every problem found.

    Rules built in code are what a rule file would hold as JSON: a list of mappings, or a mapping with `rules`.
    """
    found = _load_values(source) if is_in_code(source) else _load_files(paths_in(source, "load_rules"))
    if not found.ok:
        raise InputError(found.diagnostics)
    return found


def read_rules(paths: Iterable[FilePath], *, sections: Sequence[SectionReader] = ()) -> RuleSet:
    """The usable rules of these files together, and every problem in them. Never raises for what the files hold.

    `sections` read the other sections of each file, such as a contract, and report what is wrong with them.
    """
    return _load_files(list(paths), sections)


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
    sections: Sequence[SectionReader] = (),
) -> RuleSet:
    """The usable rules of a text, and every problem in it. Never raises for what the text holds.

    `base` is the folder that `schema_path` is relative to. `ids` carries the ids of files read before.
    `sections` read what else the file holds.
    """
    source = Source(file, text)
    problems = Problems(source)
    rules: list[Rule] = []
    with contextlib.suppress(Unreadable):
        if documents := parse_documents(source, problems, format):
            context = Context(problems, Path(base) if base is not None else Path(), every_section=bool(sections))
            seen: Ids = {} if ids is None else ids
            rules = read_policy(documents, context, seen)
            for read_section in sections:
                read_section(documents, rules, seen, context)
    return RuleSet(tuple(rules), problems.all, (file,))


def _load_files(paths: Sequence[FilePath], sections: Sequence[SectionReader] = ()) -> RuleSet:
    ids: Ids = {}
    return _join([_load_file(path, ids, sections) for path in paths])


def _load_file(path: FilePath, ids: Ids, sections: Sequence[SectionReader]) -> RuleSet:
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except NotRead as not_read:
        return RuleSet((), (not_read.diagnostic,), (file,))
    base = Path(file).parent
    return parse_rules(text, file=file, format=format_of(file), base=base, ids=ids, sections=sections)


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

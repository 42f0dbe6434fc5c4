"""Files, texts and Python values → a GuardSet, from the same files that hold rules for `bylaw check`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.guarding import GuardPolicy, GuardRule, GuardSet
from bylaw.rules.documents import Format, parse_documents
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.inputs import IN_CODE, FilePath, as_text, format_of, is_in_code, paths_in
from bylaw.rules.params import Context
from bylaw.rules.policy import read_guard_policies
from bylaw.rules.problems import Problems, Unreadable
from bylaw.rules.source import Source


def load_guard(source: FilePath | Sequence[FilePath] | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> GuardSet:
    """The guards of a file, of several files, or built in code; InputError with every problem found.

    A file is a `bylaw.yaml` with `guard:`, a list of rules, or an agent manifest.
    """
    found = _load_values(source) if is_in_code(source) else _join(map(_load_file, paths_in(source, "load_guard")))
    if not found.ok:
        raise InputError(found.diagnostics)
    return found


def parse_guard(text: str, *, file: str = "<text>", format: Format = "yaml", base: FilePath | None = None) -> GuardSet:
    """The guards of a text, with the rules that are usable, and every problem in it. Never raises for what it holds.

    `base` is the folder that `schema_path` is relative to.
    """
    source = Source(file, text)
    problems = Problems(source)
    policies: list[GuardPolicy] = []
    with contextlib.suppress(Unreadable):
        if documents := parse_documents(source, problems, format):
            context = Context(problems, Path(base) if base is not None else Path())
            policies = read_guard_policies(documents, context)
    return GuardSet(tuple(policies), problems.all, (file,))


def _load_file(path: FilePath) -> GuardSet:
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except NotRead as not_read:
        return GuardSet((), (not_read.diagnostic,), (file,))
    return parse_guard(text, file=file, format=format_of(file), base=Path(file).parent)


def _load_values(values: Any) -> GuardSet:
    """The rules themselves stand in no file."""
    text = as_text(values)
    if isinstance(text, Diagnostic):
        return GuardSet((), (text,), (IN_CODE,))
    found = parse_guard(text, file=IN_CODE, format="json")
    policies = [replace(policy, rules=tuple(map(_without_span, policy.rules))) for policy in found.policies]
    return GuardSet(tuple(policies), found.diagnostics, found.files)


def _without_span(rule: GuardRule) -> GuardRule:
    return replace(rule, rule=replace(rule.rule, span=None))


def _join(parts: Iterable[GuardSet]) -> GuardSet:
    parts = list(parts)
    policies = tuple(policy for part in parts for policy in part.policies)
    diagnostics = sorted((d for part in parts for d in part.diagnostics), key=Diagnostic.sort_key)
    return GuardSet(policies, tuple(diagnostics), tuple(file for part in parts for file in part.files))

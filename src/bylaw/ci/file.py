"""`ci:` → what `bylaw ci` runs besides the contract. Paths are relative to the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from bylaw.ci.model import CheckSettings, CiFile, DiffSettings
from bylaw.contract.file.scoring import read_scoring
from bylaw.contract.file.types import number
from bylaw.model.report import FailOn
from bylaw.model.rule import Rule
from bylaw.rules.documents import parse_documents
from bylaw.rules.fields import Fields
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.inputs import FilePath, format_of
from bylaw.rules.located import Entry, MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.policy import CONTRACT
from bylaw.rules.problems import Problems, Unreadable
from bylaw.rules.readers import read_map, read_text, read_texts, report_wrong_type
from bylaw.rules.rule_fields import Ids
from bylaw.rules.source import Source
from bylaw.rules.words import did_you_mean, listing

CHECK_LEVELS = get_args(FailOn)
DIFF_LEVELS = ("none", "minor", "moderate", "severe")


def load_ci(path: FilePath) -> CiFile:
    """What the file configures, and every problem in its `ci` and `scoring`. Never raises for what the file holds."""
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except NotRead as not_read:
        return CiFile(diagnostics=(not_read.diagnostic,))
    problems = Problems(Source(file, text))
    found: dict[str, Any] = {}
    with contextlib.suppress(Unreadable):
        documents = parse_documents(problems.source, problems, format_of(file))
        if documents and isinstance(documents[0], MapNode):
            found = _read_file(documents[0].entries, Context(problems, Path(file).parent))
    return CiFile(**found, diagnostics=problems.all)


def check_ci(documents: Sequence[Node], rules: Sequence[Rule], ids: Ids, context: Context) -> None:
    """Report what is wrong with the sections of `bylaw ci`; beside a contract, `scoring` is read with that."""
    root = documents[0]
    if not isinstance(root, MapNode):
        return
    wanted = ("ci",) if CONTRACT in root.entries else ("ci", "scoring")
    entries = {key: entry for key, entry in root.entries.items() if key in wanted}
    _read_file(entries, context)


def _read_file(entries: Mapping[str, Entry], context: Context) -> dict[str, Any]:
    found: dict[str, Any] = {"has_contract": CONTRACT in entries, "has_rules": "rules" in entries or "guard" in entries}
    if "scoring" in entries and (scoring := read_scoring(entries["scoring"].value, context)):
        found["weights"] = scoring.weights
    if "ci" in entries and (section := read_map(entries["ci"].value, "ci", context.problems)):
        found |= _read_section(section, context)
    return found


def _read_section(node: MapNode, context: Context) -> dict[str, Any]:
    fields = Fields(node, context.problems, what="`ci`")
    check, diff, least = fields.take("check"), fields.take("diff"), fields.take("min_score")
    fields.finish()
    return {
        "check": None if check is None else _read_check(check, context),
        "diff": None if diff is None else _read_diff(diff, context),
        "min_score": None if least is None else _read_score(least, context),
    }


def _read_check(node: Node, context: Context) -> CheckSettings | None:
    mapping = read_map(node, "check", context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what="`check`")
    traces = fields.require("traces", help="name recorded traces: files, folders or globs")
    policies, level = fields.take("policy"), fields.take("fail_on")
    fields.finish()
    return CheckSettings(
        traces=_paths(traces, "traces", context),
        policies=_paths(policies, "policy", context),
        fail_on=_level(level, CHECK_LEVELS, "error", context),
    )


def _read_diff(node: Node, context: Context) -> DiffSettings | None:
    mapping = read_map(node, "diff", context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what="`diff`")
    sides = [fields.require(side, help="name a trace, a folder or a glob") for side in ("baseline", "candidate")]
    policies, level = fields.take("policy"), fields.take("fail_on")
    fields.finish()
    baseline, candidate = (_path(side, context) for side in sides)
    return DiffSettings(
        baseline=baseline,
        candidate=candidate,
        policies=_paths(policies, "policy", context),
        fail_on=_level(level, DIFF_LEVELS, "severe", context),
    )


def _path(node: Node | None, context: Context) -> str:
    text = None if node is None else read_text(node, "path", context.problems)
    return "" if text is None else str(context.base / text)


def _paths(node: Node | None, name: str, context: Context) -> tuple[str, ...]:
    texts = None if node is None else read_texts(node, name, context.problems)
    return tuple(str(context.base / text) for text in texts or ())


def _level(node: Node | None, levels: tuple[str, ...], default: str, context: Context) -> Any:
    if node is None:
        return default
    text = read_text(node, "fail_on", context.problems)
    if text is not None and text not in levels:
        help = did_you_mean(text, levels)
        report_wrong_type(node, "`fail_on`", listing(levels, last="or"), context.problems, help=help)
    return text


def _read_score(node: Node, context: Context) -> float | None:
    value = number(node)
    if value is None or not 0 <= value <= 100:
        report_wrong_type(node, "`min_score`", "a number from 0 to 100", context.problems)
        return None
    return value

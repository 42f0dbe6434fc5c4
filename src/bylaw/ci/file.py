"""`ci:` → what `bylaw ci` runs besides the contract. Paths are relative to the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from bylaw.contract.file import SCORE, Table, subtree
from bylaw.contract.file.sections import read_scoring
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule
from bylaw.model.verdict import FailOn
from bylaw.rules.files import FilePath, UnusableFile, format_of, read_text_file
from bylaw.rules.loader import parse_documents
from bylaw.rules.nodes import Entry, MapNode, Node, Problems, Source, Unreadable, plain
from bylaw.rules.params import FLAG, TEXT_SCHEMA, TEXTS_SCHEMA, Context, Param, ParamType, choice
from bylaw.rules.policy import CONTRACT
from bylaw.rules.readers import read_map, read_text, read_texts
from bylaw.rules.rule import Ids
from bylaw.rules.versions import VersionChoice


class CheckSettings(Struct, frozen=True, kw_only=True):
    traces: tuple[str, ...]
    policies: tuple[str, ...] = ()
    """rule files; empty: the file itself"""
    version: VersionChoice = None
    inputs: dict[str, str] = {}
    fail_on: FailOn = "error"


class DiffSettings(Struct, frozen=True, kw_only=True):
    baseline: str
    candidate: str
    policies: tuple[str, ...] = ()
    version: VersionChoice = None
    inputs: dict[str, str] = {}
    fail_on: Literal["none", "minor", "moderate", "severe"] = "severe"
    deterministic: bool = False
    strict: bool = False
    judge: str | None = None


class CiFile(Struct, frozen=True, kw_only=True):
    """The settings of a file; None: not configured there."""

    check: CheckSettings | None = None
    diff: DiffSettings | None = None
    has_contract: bool = False
    has_rules: bool = False
    min_score: float | None = None
    strict: bool = False
    """whether anything that was not checked or was warned about is exit 3"""
    weights: dict[str, float] = {}
    diagnostics: tuple[Diagnostic, ...] = ()


def _read_path(node: Node, name: str, context: Context) -> str | None:
    text = read_text(node, name, context.problems)
    return None if text is None else str(context.base / text)


def _read_paths(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    texts = read_texts(node, name, context.problems)
    return None if texts is None else tuple(str(context.base / text) for text in texts)


def _read_version(node: Node, name: str, context: Context) -> str | dict[str, str] | None:
    return _read_names(node, name, context) if isinstance(node, MapNode) else read_text(node, name, context.problems)


def _read_names(node: Node, name: str, context: Context) -> dict[str, str] | None:
    mapping = read_map(node, name, context.problems)
    entries = mapping.entries if mapping else {}
    texts = {key: read_text(entry.value, key, context.problems) for key, entry in entries.items()}
    return None if mapping is None or None in texts.values() else {key: text for key, text in texts.items() if text}


_NAMES_SCHEMA = {"type": "object", "additionalProperties": TEXT_SCHEMA}
_PATH = ParamType(_read_path, TEXT_SCHEMA)
_PATHS = ParamType(_read_paths, TEXTS_SCHEMA)
_NAME = ParamType(lambda node, name, context: read_text(node, name, context.problems), TEXT_SCHEMA)
_POLICY = Param("policy", _PATHS, "rule files; where there are none, this file", default=())
_VERSION = Param(
    "version",
    ParamType(_read_version, {"anyOf": [TEXT_SCHEMA, _NAMES_SCHEMA]}),
    "which version of a manifest, or agent → version; where nothing is said, the deployed one",
)
_INPUTS = Param("inputs", ParamType(_read_names, _NAMES_SCHEMA), "what `{{inputs.NAME}}` stands for: NAME → text")
_CI = Table(
    "`ci`",
    (
        Param("check", subtree({"type": "object"}), "the traces to check"),
        Param("diff", subtree({"type": "object"}), "the traces to compare"),
        Param("min_score", SCORE, "the least score that passes"),
        Param("strict", FLAG, "whether anything that was not checked or was warned about is exit 3", default=False),
    ),
)
_CHECK = Table(
    "`check`",
    (
        Param("traces", _PATHS, "the recorded traces: files, folders or globs", required=True),
        _POLICY,
        _VERSION,
        _INPUTS,
        Param("fail_on", choice(*get_args(FailOn)), "the least severity that fails", default="error"),
    ),
)
_DIFF = Table(
    "`diff`",
    (
        Param("baseline", _PATH, "a trace, a folder or a glob", required=True),
        Param("candidate", _PATH, "a trace, a folder or a glob", required=True),
        _POLICY,
        _VERSION,
        _INPUTS,
        Param(
            "fail_on",
            choice("none", "never", "minor", "moderate", "severe"),
            "the smallest change for the worse that fails; `minor` fails also for changes that may be chance, and "
            "`none` and `never` let every change pass",
            default="severe",
        ),
        Param(
            "deterministic",
            FLAG,
            "whether nothing varies by chance (a replay, temperature 0), so that every difference is a change",
            default=False,
        ),
        Param(
            "strict",
            FLAG,
            "whether an axis that only one side recorded, a guessed pair, or too few recordings are exit 3",
            default=False,
        ),
        Param("judge", _NAME, "`module:function` that scores a response from 0 to 1"),
    ),
)


def load_ci(path: FilePath) -> CiFile:
    """The settings of the file, and every problem in its `ci` and `scoring`. Never raises for its content."""
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except UnusableFile as not_read:
        return CiFile(diagnostics=(not_read.diagnostic,))
    problems = Problems(Source(file, text))
    found: dict[str, Any] = {}
    with contextlib.suppress(Unreadable):
        documents = parse_documents(problems.source, problems, format_of(file))
        if documents and isinstance(documents[0], MapNode):
            found = _read_sections(documents[0].entries, Context(problems, Path(file).parent))
    return CiFile(**found, diagnostics=problems.all)


def check_ci(documents: Sequence[Node], rules: Sequence[Rule], ids: Ids, context: Context) -> None:
    """Report what is wrong with the sections of `bylaw ci`; in a file with a contract, `scoring` is read with that."""
    root = documents[0]
    if not isinstance(root, MapNode):
        return
    wanted = ("ci",) if CONTRACT in root.entries else ("ci", "scoring")
    _read_sections({key: entry for key, entry in root.entries.items() if key in wanted}, context)


def _read_sections(entries: Mapping[str, Entry], context: Context) -> dict[str, Any]:
    found: dict[str, Any] = {"has_contract": CONTRACT in entries, "has_rules": "rules" in entries or "guard" in entries}
    if "scoring" in entries and (scoring := read_scoring(entries["scoring"].value, context)):
        found["weights"] = scoring.weights
    strict = entries.get("strict")
    found["strict"] = strict is not None and bool(plain(strict.value))
    if "ci" not in entries:
        return found
    section = entries["ci"].value
    values = _CI.read(section, context) or {}
    found["min_score"] = values.get("min_score")
    found["strict"] = found["strict"] or values.get("strict", False)
    parts = section.entries if isinstance(section, MapNode) else {}
    if "check" in parts and (check := _CHECK.read(parts["check"].value, context)):
        found["check"] = CheckSettings(traces=check["traces"], fail_on=check["fail_on"], **_rule_files(check))
    if "diff" in parts and (diff := _DIFF.read(parts["diff"].value, context)):
        found["diff"] = DiffSettings(
            baseline=diff["baseline"],
            candidate=diff["candidate"],
            fail_on=diff["fail_on"],
            deterministic=diff["deterministic"],
            strict=diff["strict"] or found["strict"],
            judge=diff.get("judge"),
            **_rule_files(diff),
        )
    return found


def _rule_files(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "policies": values["policy"],
        "version": values.get("version"),
        "inputs": values.get("inputs") or {},
    }

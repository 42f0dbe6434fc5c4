"""Runs the truth tables of a page: Markdown tables whose first column is `predicate`.

A cell of that column is a predicate as it stands under `when`. The other columns are values of the argument `x`
(`missing`: there is none), or there is one column `arguments` with all of them. A cell says `true`, `false`, or `?` for
unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import bylaw
from bylaw.model.events import Origin, ToolCall
from tests.docs.pages import ROOT
from tests.support.yaml_files import load_yaml
from tests.twin.guard import matches

TRUTHS = {"true": True, "false": False, "?": None}


def cells(page: str) -> Iterator[tuple[str, dict[str, Any], bool | None]]:
    """Of every cell the predicate, the arguments, and the truth."""
    header: list[str] = []
    for line in (ROOT / page).read_text("utf-8").splitlines():
        row = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not row or set(row[0]) <= {"-", ":"}:
            header = header if row else []
        elif row[0] == "predicate":
            header = row
        elif header[1:] == ["arguments", "is"]:
            yield row[0], json.loads(row[1]), TRUTHS[row[2]]
        elif header:
            for value, truth in zip(header[1:], row[1:], strict=True):
                yield row[0], {} if value == "missing" else {"x": json.loads(value)}, TRUTHS[truth]


def judge(predicate: str, arguments: Any) -> bool | None:
    """Unknown is what matches a rule that restricts, and its opposite too."""
    when = load_yaml(predicate)
    rules = [
        {"id": "as-written", "when": when, "then": "block"},
        {"id": "negated", "when": {"not": when}, "then": "block"},
        {"id": "allowing", "when": when, "then": "allow"},
    ]
    matched = bylaw.Guard(rules).decide(bylaw.Attempt(tool="t", arguments=arguments, session="s")).matched
    truth = {("as-written",): True, ("negated",): False, ("as-written", "negated"): None}[
        tuple(rule for rule in matched if rule != "allowing")
    ]
    assert ("allowing" in matched) == (truth is True), "what is unknown does not allow"
    return truth


def judge_slowly(predicate: str, arguments: Any) -> bool | None:
    call = ToolCall(origin=Origin("1"), turn=0, name="t", call_id="1", arguments=arguments)
    return matches(load_yaml(predicate), [call], 0)

"""The contract's reports for programs."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from bylaw.contract.model import ContractFile
from bylaw.contract.report import wording
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from bylaw.report.diagnostics import JsonStream, diagnostic_as_json


def render_contract(report: ContractReport) -> str:
    document = {
        "schema": "bylaw.contract/1",
        "job": "contract",
        "exit_code": report.exit_code,
        "verdict": wording.headline(report),
        "score": report.score,
        "min_score": report.min_score,
        "passed": report.passed,
        "contract": report.contract,
        "agent": report.agent,
        "models": list(report.models),
        "scenarios": list(report.scenarios),
        "invariants": [
            {
                "id": one.id,
                "type": one.type,
                "severity": one.severity.value,
                "when": one.when,
                "negate": one.negate,
                "vacuous": "ok" if one.vacuous_is_ok else "not_ok",
                "description": one.description,
            }
            for one in report.invariants
        ],
        "outcomes": {outcome.value: len(report.with_outcome(outcome)) for outcome in CellOutcome},
        "cells": [_cell(cell) for cell in report.cells],
        "variations": wording.count_variations(report),
        "agent_runs": report.agent_runs,
        "repetitions": report.repetitions,
        "seed": report.seed,
        "warnings": list(report.warnings),
        "stopped": report.stopped,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _cell(cell: Cell) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(cell)
    fields["interval"] = None if cell.interval is None else [round(end, 4) for end in cell.interval]
    fields["pass_k"] = [round(figure, 4) for figure in cell.pass_k]
    return fields


def render_validation(file: ContractFile, counts: Mapping[str, int]) -> str:
    out = io.StringIO()
    diagnostics = [diagnostic_as_json(diagnostic) for diagnostic in file.diagnostics]
    JsonStream(out, "contract").end({"exit_code": 0, "diagnostics": diagnostics, **counts})
    return out.getvalue()

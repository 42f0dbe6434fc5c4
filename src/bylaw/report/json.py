"""Pieces that the JSON documents of all jobs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

import msgspec

from bylaw.errors import ExitCode
from bylaw.model.diagnostic import Diagnostic


class JsonStream:
    """Writes `{"schema", "job", "findings": [ … ], …}`: findings one by one, then the counts, which are known last."""

    def __init__(self, out: TextIO, job: str) -> None:
        self._out = out
        self._head = f'{{\n  "schema": "bylaw.{job}/1",\n  "job": "{job}",\n  "findings": ['
        self._written = 0

    def finding(self, finding: dict[str, Any]) -> None:
        separator = "," if self._written else self._head
        self._out.write(f"{separator}\n    {_encode(finding)}")
        self._written += 1

    def end(self, fields: dict[str, Any]) -> None:
        self._out.write("\n  ]" if self._written else f"{self._head}]")
        for key, value in fields.items():
            self._out.write(f",\n  {_encode(key)}: {_encode(value)}")
        self._out.write("\n}\n")


def bad_input_fields(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """What follows `findings` in a document that reports bad input."""
    return {"exit_code": int(ExitCode.BAD_INPUT), "diagnostics": [diagnostic_as_json(d) for d in diagnostics]}


def diagnostic_as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """The fields of a diagnostic, with line and column at the top for scripts."""
    place = diagnostic.span
    fields: dict[str, Any] = msgspec.to_builtins(diagnostic)
    return {**fields, "line": place.line if place else None, "column": place.column if place else None}


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()

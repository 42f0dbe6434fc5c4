"""Pieces that every JSON document shares."""

from __future__ import annotations

from typing import Any, TextIO

import msgspec

from bylaw.model.diagnostic import Diagnostic


class JsonStream:
    """`{"schema", "job", "findings": [ … ], …}`: findings first, since the counts are known last."""

    def __init__(self, out: TextIO, job: str = "check") -> None:
        self._out = out
        self._job = job
        self._written = 0

    def finding(self, finding: dict[str, Any]) -> None:
        self._open()
        self._out.write(",\n    " if self._written else "\n    ")
        self._out.write(_dump(finding))
        self._written += 1

    def end(self, fields: dict[str, Any]) -> None:
        self._open()
        self._out.write("\n  ]" if self._written else "]")
        for key, value in fields.items():
            self._out.write(f",\n  {_dump(key)}: {_dump(value)}")
        self._out.write("\n}\n")

    def _open(self) -> None:
        if self._job:
            self._out.write(f'{{\n  "schema": "bylaw.{self._job}/1",\n  "job": "{self._job}",\n  "findings": [')
            self._job = ""


def diagnostic_as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """The same fields the terminal shows, with line and column at the top for scripts."""
    place = diagnostic.span
    fields: dict[str, Any] = msgspec.to_builtins(diagnostic)
    return {**fields, "line": place.line if place else None, "column": place.column if place else None}


def _dump(value: Any) -> str:
    return msgspec.json.encode(value).decode()

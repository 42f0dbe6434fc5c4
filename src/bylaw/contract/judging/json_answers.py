"""Answers that have to be JSON: the whole answer, by RFC 8259, so that `NaN` is none and `42` is."""

from __future__ import annotations

import re

from bylaw.contract.judging.judgement import Seen, excerpt
from bylaw.contract.model import JsonSchema
from bylaw.engine.probes import compile_schema, decode_json

_FENCED = re.compile(r"\s*```(?:json)?\s*\n")


def valid_json(answer: str) -> Seen:
    problem = _not_json(answer)
    return Seen(problem is None, problem or "the answer is JSON")


def fits_schema(check: JsonSchema, answer: str) -> Seen:
    problem = _not_json(answer)
    if problem is not None:
        return Seen(False, problem)
    value = decode_json(answer)
    error = next(iter(compile_schema(check.schema).iter_errors(value)), None)
    if error is None:
        return Seen(True, "the answer fits the schema")
    path = ".".join(str(part) for part in error.instance_path)
    place = f"at `{path}`" if path else "at the top level"
    return Seen(False, f"the answer does not fit the schema {place}: {excerpt(error.message)}")


def _not_json(answer: str) -> str | None:
    """Why it is none; None where it is."""
    try:
        decode_json(answer)
    except RecursionError:
        return "the answer is nested too deep to be read as JSON"
    except ValueError as problem:
        fenced = " (it stands in a Markdown fence)" if _FENCED.match(answer) else ""
        return f"the answer is not JSON{fenced}: {excerpt(str(problem).removeprefix('JSON is malformed: '))}"
    return None

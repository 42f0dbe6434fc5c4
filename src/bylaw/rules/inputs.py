"""What a caller may hand in: paths of files, or what a file would hold as Python values."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from bylaw.model.diagnostic import Diagnostic
from bylaw.rules.documents import Format
from bylaw.rules.located import MAX_DEPTH

FilePath: TypeAlias = str | os.PathLike[str]

IN_CODE = "<rules>"
"""what rules built in code are called in diagnostics"""


def is_in_code(source: Any) -> bool:
    if isinstance(source, Mapping):
        return True
    return not isinstance(source, str | os.PathLike) and all(isinstance(item, Mapping) for item in source)


def paths_in(source: Any, caller: str) -> list[FilePath]:
    paths = [source] if isinstance(source, str | os.PathLike) else list(source)
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"{caller} takes paths or mappings, not source={path!r}")
    return paths


def format_of(file: str) -> Format:
    return "json" if file.lower().endswith(".json") else "yaml"


def as_text(values: Any) -> str | Diagnostic:
    """As JSON text, so that problems have a line to show; or why that cannot be."""
    try:
        return json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        return _not_json(error)


def _not_json(error: Exception) -> Diagnostic:
    reason = f"nested more than {MAX_DEPTH} levels deep" if isinstance(error, RecursionError) else str(error)
    reason = reason[:1].lower() + reason[1:]
    help = "use text, numbers, true, false, None, lists and mappings"
    return Diagnostic(code="wrong-type", message=f"not JSON values: {reason}", file=IN_CODE, help=help)

"""Jobs that the guard's service offers beside its own, on texts instead of files. `cli` tells the service of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bylaw.errors import InputError
from bylaw.rules.loader import parse_files

NOWHERE = "/nonexistent/bylaw"
"""the folder of rules that came over the network: no path in them leads to a file of this machine"""


def check(*, trace: str, files: Mapping[str, str], format: str | None, strict: bool) -> dict[str, Any]:
    """The document of `bylaw check --format json`. Raises InputError for what cannot be read."""
    from bylaw.check.api import check as run
    from bylaw.check.report import render_json
    from bylaw.traces.records.files import open_bytes
    from bylaw.traces.source import TraceStream

    rules = parse_files(files, base=NOWHERE)
    if not rules.ok:
        raise InputError(rules.diagnostics)
    source = TraceStream(open_bytes(trace.encode("utf-8", "replace"), "trace"), format=format)
    report = run(source, rules, strict=strict or rules.strict)
    found: dict[str, Any] = json.loads(render_json(report))
    return found


def check_compliance(
    *,
    system_prompt: str,
    trace_events: Sequence[Any],
    tools: Sequence[Any] | None,
    aliases: Mapping[str, Sequence[str]] | None,
    timeout_ms: float,
) -> dict[str, Any]:
    """The fields of a `ComplianceResult`."""
    from bylaw.comply.api import check_compliance_sync

    result = check_compliance_sync(system_prompt, trace_events, timeout_ms, tools=tools, aliases=aliases)
    found: dict[str, Any] = msgspec.to_builtins(result)
    return found


JOBS = {"check": check, "check_compliance": check_compliance}

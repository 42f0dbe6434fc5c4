"""The formats that are told by one look at a record, each with its reader. A new format is one line here."""

from __future__ import annotations

from collections.abc import Callable

from bylaw.traces.formats import (
    agentdojo,
    agents_sdk,
    atif,
    codex,
    inspect_ai,
    langfuse,
    langsmith,
    mcp,
    openinference,
    otlp,
    responses,
)
from bylaw.traces.formats.claude_code import reader as claude_code
from bylaw.traces.formats.record import Format, Opened, Reader
from bylaw.traces.formats.roundtrip import atif as restored_atif
from bylaw.traces.formats.roundtrip import otlp as restored_otlp
from bylaw.traces.records.problems import Problems


def _streamed(opened: Opened) -> tuple[Problems, Callable[[], bool]]:
    return opened.problems, lambda: opened.records.streamed


def _otlp(opened: Opened) -> Reader:
    if restored_otlp.is_restorable(opened.first_record()):
        return restored_otlp.RestoredOtlpReader(opened.problems)
    return otlp.OtlpReader(opened.problems)


def _atif(opened: Opened) -> Reader:
    if restored_atif.is_restorable(opened.first_record()):
        return restored_atif.RestoredAtifReader(opened.problems)
    return atif.AtifReader(*_streamed(opened))


CATALOGUE: dict[str, Format] = {
    "otlp": Format(otlp.claims, _otlp),
    "openinference": Format(openinference.claims, lambda opened: openinference.OpenInferenceReader(opened.problems)),
    "claude-code": Format(claude_code.claims, claude_code.ClaudeCodeReader),
    "codex": Format(codex.claims, lambda opened: codex.CodexReader(opened.problems)),
    "inspect": Format(inspect_ai.claims, inspect_ai.InspectReader),
    "mcp": Format(mcp.claims, lambda opened: mcp.McpReader(opened.problems)),
    "agents-sdk": Format(agents_sdk.claims, lambda opened: agents_sdk.AgentsSdkReader(opened.problems)),
    "langsmith": Format(langsmith.claims, lambda opened: langsmith.LangSmithReader(opened.problems)),
    "langfuse": Format(langfuse.claims, langfuse.LangfuseReader),
    "agentdojo": Format(agentdojo.claims, lambda opened: agentdojo.AgentDojoReader(*_streamed(opened))),
    "atif": Format(atif.claims, _atif),
    "responses": Format(responses.claims, lambda opened: responses.ResponsesReader(*_streamed(opened))),
}
"""in the order in which they are asked"""

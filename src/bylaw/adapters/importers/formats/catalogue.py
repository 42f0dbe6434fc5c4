"""The formats that are told by one look at a record, each with its reader. A new format is one line here."""

from __future__ import annotations

from collections.abc import Callable

from bylaw.adapters.importers.formats import (
    agentdojo,
    agents_sdk,
    atif,
    inspect_ai,
    langfuse,
    langsmith,
    mcp,
    openinference,
)
from bylaw.adapters.importers.formats.claude_code import reader as claude_code
from bylaw.adapters.importers.formats.claude_code.branches import Branches
from bylaw.adapters.importers.formats.otlp import reader as otlp
from bylaw.adapters.importers.formats.reader import Format, Opened, Reader
from bylaw.adapters.importers.formats.responses import reader as responses
from bylaw.adapters.importers.records.problems import Problems


def _claude_code(opened: Opened) -> Reader:
    return claude_code.ClaudeCodeReader(opened.problems, Branches(opened.raw_records()))


def _streamed(opened: Opened) -> tuple[Problems, Callable[[], bool]]:
    return opened.problems, lambda: opened.records.streamed


CATALOGUE: dict[str, Format] = {
    "otlp": Format(otlp.claims, lambda opened: otlp.OtlpReader(opened.problems)),
    "openinference": Format(openinference.claims, lambda opened: openinference.OpenInferenceReader(opened.problems)),
    "claude-code": Format(claude_code.claims, _claude_code),
    "inspect": Format(inspect_ai.claims, lambda opened: inspect_ai.InspectReader(*_streamed(opened))),
    "mcp": Format(mcp.claims, lambda opened: mcp.McpReader(opened.problems)),
    "agents-sdk": Format(agents_sdk.claims, lambda opened: agents_sdk.AgentsSdkReader(opened.problems)),
    "langsmith": Format(langsmith.claims, lambda opened: langsmith.LangSmithReader(opened.problems)),
    "langfuse": Format(langfuse.claims, lambda opened: langfuse.LangfuseReader(opened.problems)),
    "agentdojo": Format(agentdojo.claims, lambda opened: agentdojo.AgentDojoReader(*_streamed(opened))),
    "atif": Format(atif.claims, lambda opened: atif.AtifReader(*_streamed(opened))),
    "responses": Format(responses.claims, lambda opened: responses.ResponsesReader(*_streamed(opened))),
}
"""in the order in which they are asked"""

"""All formats that can be read. A new format is one line in `CATALOGUE`.

Its module lies in this folder and has `claims(value)`, which says whether a decoded record is certainly of this format,
and the reader that the line names. Formats of one name share a module. Modules are imported on first use, because the
command line needs only the names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from bylaw.traces.formats.reader import OpenedFile, Reader


class Format(Struct, frozen=True):
    description: str
    reader: str
    """`module:name`, below this package: a class or function that takes an `OpenedFile` and returns a reader"""
    claims_by: str | None = "claims"
    """the module's function that is `claims`; None for formats that are distinguished in `detect`"""
    repeats_history: bool = False
    """whether requests are recorded with the messages before them, so that a call stands in many records"""

    @property
    def has_claims(self) -> bool:
        return self.claims_by is not None

    @property
    def claims(self) -> Callable[[Any], bool]:
        return _load(self.reader, self.claims_by or "")

    def open(self, opened: OpenedFile) -> Reader:
        reader: Reader = _load(self.reader, self.reader.partition(":")[2])(opened)
        return reader


@cache
def _load(reader: str, name: str) -> Callable[..., Any]:
    """Something of a reader's module, which is imported on first use."""
    found: Callable[..., Any] = getattr(import_module(f"bylaw.traces.formats.{reader.partition(':')[0]}"), name)
    return found


def _by_shape(description: str, reader: str, *, repeats_history: bool = False) -> Format:
    return Format(description, reader, claims_by=None, repeats_history=repeats_history)


def _with_history(description: str, reader: str, claims_by: str = "claims") -> Format:
    return Format(description, reader, claims_by, repeats_history=True)


CATALOGUE: dict[str, Format] = {
    "bylaw": _by_shape(
        "Bylaw's own JSONL: a header, then one event a line", "bylaw.reader:reader", repeats_history=True
    ),
    "agentlog": _by_shape(
        ".agentlog: one content-addressed record a line", "agentlog:AgentlogReader", repeats_history=True
    ),
    "openai": _by_shape("OpenAI chat messages: a list, one a line, or objects with `messages`", "chat:ChatReader"),
    "anthropic": _by_shape("Anthropic messages: a list, one a line, or objects with `messages`", "chat:ChatReader"),
    "bedrock": _by_shape("Bedrock Converse messages, as Strands agents store them too", "chat:ChatReader"),
    "events": _by_shape(
        "plain event lists: user_message, agent_message, tool_call, tool_result", "eventlist:EventListReader"
    ),
    "tau": _by_shape("tau-bench: a list of trajectories with rewards", "benchmarks:TauReader"),
    "otlp": _with_history("OpenTelemetry spans or logs: OTLP JSON lines, or length-prefixed protobuf", "otlp:reader"),
    "openinference": _with_history(
        "spans one by one, as Phoenix, Logfire and OpenTelemetry's SDK export them, or nested",
        "openinference:OpenInferenceReader",
    ),
    "claude-code": Format(
        "Claude Code: a session's JSONL, or what `--output-format stream-json` prints",
        "claude_code.reader:ClaudeCodeReader",
    ),
    "codex": Format("Codex: a session's rollout", "codex:CodexReader"),
    "codex-exec": Format("Codex: what `codex exec --json` prints", "codex_exec:CodexExecReader"),
    "inspect": _with_history("inspect_ai logs: .eval archives, or .json", "inspect_ai:InspectReader"),
    "mcp": Format("MCP: JSON-RPC messages, one a line", "mcp:McpReader"),
    "responses": _with_history(
        "OpenAI Responses: items, or whole responses with their `output`", "responses:ResponsesReader"
    ),
    "agents-sdk": _with_history("OpenAI Agents SDK: exported spans, saved runs, raw responses", "agents_sdk:reader"),
    "langsmith": _with_history(
        "LangSmith: runs, one a line, in a list, or nested", "langchain:LangSmithReader", "claims_langsmith"
    ),
    "langfuse": _with_history("Langfuse: observations of its API or its blob export", "langfuse:LangfuseReader"),
    "agentdojo": Format("AgentDojo: a run with its messages", "benchmarks:AgentDojoReader", "claims_agentdojo"),
    "adk": Format("Google ADK: sessions, their events, eval sets", "adk:AdkReader"),
    "autogen": Format("AutoGen: results of tasks, messages, saved states", "autogen:AutoGenReader"),
    "braintrust": _with_history(
        "Braintrust: rows of logs and experiments", "experiment_trackers:BraintrustReader", "claims_braintrust"
    ),
    "copilot": _with_history("Copilot: a chat or its replay, as Visual Studio Code writes them", "copilot:reader"),
    "copilot-cli": Format("Copilot CLI: a session's events", "copilot:CopilotCliReader", "claims_cli"),
    "crewai": _with_history("CrewAI: the events of its bus, one a line", "crewai:CrewAiReader"),
    "gemini": Format("Gemini `contents`: a request, a list of messages, or one a line", "gemini:GeminiReader"),
    "gemini-cli": Format("Gemini CLI: a recorded session, or what `stream-json` prints", "gemini_cli:reader"),
    "har": _with_history(
        "HAR: requests to a model that a browser or a proxy recorded", "pairs:HarReader", "claims_har"
    ),
    "langchain": Format(
        "LangChain messages: a list, one a line, a LangGraph state, or what models returned",
        "langchain:LangChainReader",
    ),
    "mlflow": _with_history("MLflow: traces with their spans", "experiment_trackers:MlflowReader", "claims_mlflow"),
    "opencode": Format("opencode: an exported session, or its events", "opencode:OpencodeReader"),
    "openhands": Format("OpenHands: events of a trajectory, or of its SDK", "openhands:OpenHandsReader"),
    "pydantic-ai": Format("pydantic-ai: a message history", "pydantic_ai:PydanticAIReader"),
    "sharegpt": Format("ShareGPT: conversations with `from` and `value`", "sharegpt:ShareGptReader"),
    "swe-agent": Format("SWE-agent, mini-SWE-agent: a trajectory", "benchmarks:SweAgentReader", "claims_swe_agent"),
    "tau2": Format("tau2-bench: results with simulations", "benchmarks:Tau2Reader", "claims_tau2"),
    "vercel": Format("Vercel AI SDK: the steps of a result", "vercel_steps:VercelStepsReader"),
    "weave": _with_history("W&B Weave: exported calls", "experiment_trackers:WeaveReader", "claims_weave"),
    "atif": _with_history("ATIF: a trajectory of steps", "atif:reader"),
    # last: rows and spans of others hold the two bodies of a pair too
    "pairs": _with_history("requests to a model's API with their responses, as proxies log them", "pairs:PairsReader"),
}
"""in the order in which they are listed; if several claim a file, the first one gets it"""

FORMATS: dict[str, str] = {name: format.description for name, format in CATALOGUE.items()}
"""the names of the formats, with their descriptions"""

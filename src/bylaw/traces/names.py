"""The formats that can be read."""

from __future__ import annotations

FORMATS: dict[str, str] = {
    "bylaw": "Bylaw's own JSONL: a header, then one event a line",
    "agentlog": ".agentlog: one content-addressed record a line",
    "openai": "OpenAI chat messages: a list, one a line, or objects with `messages`",
    "anthropic": "Anthropic messages: a list, one a line, or objects with `messages`",
    "events": "plain event lists: user_message, agent_message, tool_call, tool_result",
    "tau": "tau-bench: a list of trajectories with rewards",
    "otlp": "OpenTelemetry spans or logs: OTLP JSON lines, or length-prefixed protobuf",
    "openinference": "spans one by one, as Phoenix and OpenTelemetry's SDK export them, or nested",
    "claude-code": "Claude Code: a session's JSONL, or what `--output-format stream-json` prints",
    "codex": "Codex: a session's rollout",
    "inspect": "inspect_ai logs: .eval archives, or .json",
    "mcp": "MCP: JSON-RPC messages, one a line",
    "responses": "OpenAI Responses: items, or whole responses with their `output`",
    "agents-sdk": "OpenAI Agents SDK: exported traces and spans",
    "langsmith": "LangSmith: runs, one a line, in a list, or nested",
    "langfuse": "Langfuse: observations of its API or its blob export",
    "agentdojo": "AgentDojo: a run with its messages",
    "atif": "ATIF: a trajectory of steps",
}

"""The formats that can be read."""

from __future__ import annotations

FORMATS: dict[str, str] = {
    "bylaw": "Bylaw's own JSONL: a header, then one event a line",
    "agentlog": ".agentlog: one content-addressed record a line",
    "openai": "OpenAI chat messages: a list, one a line, or objects with `messages`",
    "anthropic": "Anthropic messages: a list, one a line, or objects with `messages`",
    "events": "plain event lists: user_message, agent_message, tool_call, tool_result",
    "tau": "tau-bench: a list of trajectories with rewards",
}

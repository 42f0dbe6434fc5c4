"""Calls in the event log of a Codex rollout.

In code mode the model calls one tool, `exec`, with a script that calls the others. Those calls are not items
of the conversation: an event records the end of some (`mcp_tool_call_end`, `item_completed`, …), and newer versions may
list them with the output of the script. Which kinds of calls are recorded depends on the version and its settings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from bylaw.model.canonical import canonical_json
from bylaw.traces.assembly.content import EVERYTHING
from bylaw.traces.formats.record import list_field, object_field, snake, text_field

NESTED = "exec-"
"""prefix of the ids of calls that a script made"""
PROVIDER_TOOLS = frozenset(("web_search", "image_generation"))
"""tools that the provider of the model runs, unless a script called them: their items may have no id"""
_FILE_URL = "file://"
_MOST_SECONDS = 10**9
_SHELL_WORDS = 3
"""a shell, its option, and the command"""
_TRUNCATED, _ESCAPED = "_codex_executed_tool_call_truncated", "_codex_executed_tool_call_raw"
_MCP_NAME = re.compile(r"mcp__(.+?)__(.+)")
_ALIASES = {
    **dict.fromkeys(("shell", "shell_command", "local_shell", "container_exec"), "exec_command"),
    **dict.fromkeys(("web_run", "web__run"), "web_search"),
}
"""tools that have another name in scripts than in events"""


class EndedCall(Struct, frozen=True):
    """A call in the event log. If its name is `*`, the tool is not known."""

    id: str | None
    name: str
    arguments: Any = None
    """as recorded: an object, or text"""
    server: str | None = None
    content: Any = None
    is_error: bool | None = None
    has_result: bool = True
    seconds: float | None = None
    """how long it took"""

    @property
    def signature(self) -> bytes | None:
        """The arguments that the event and the list of a script record alike; None if one of them has another form."""
        if not isinstance(self.arguments, dict) or key_of(self.name) == "web_search":
            return None
        is_command = "cmd" in self.arguments
        return canonical_json(self.arguments["cmd"] if is_command else self.arguments)


def ended_call(payload: dict[str, Any]) -> EndedCall | None:
    """The call whose end an event reports; None for other events, and for commands that the user ran."""
    kind, event = text_field(payload, "type") or "", payload
    is_item = kind == "item_completed"
    if is_item:
        event = object_field(payload, "item")
        kind = text_field(event, "type") or ""
    event = snake(event)
    call_id = text_field(event, "call_id", "id")
    if (read := _READERS.get(kind)) is not None:
        return read(event, call_id)
    is_call = is_item if is_item else kind.endswith("_end")
    return EndedCall(call_id, EVERYTHING[0]) if is_call and call_id is not None and kind not in _NO_CALLS else None


def listed_calls(output: dict[str, Any]) -> tuple[list[EndedCall], bool]:
    """The calls that the output of a script lists, and whether these are all that it made until then."""
    about = object_field(output, "internal_chat_message_metadata_passthrough")
    calls: list[EndedCall] = []
    for one in list_field(about, "executed_tool_calls"):
        if not isinstance(one, dict) or (name := text_field(one, "name")) is None:
            return calls, False
        arguments = one.get("arguments")
        if isinstance(arguments, dict):
            arguments = None if _TRUNCATED in arguments else arguments.get(_ESCAPED, arguments)
        mcp = _MCP_NAME.fullmatch(name)
        server, name = mcp.groups() if mcp else (None, name)
        calls.append(EndedCall(None, name, arguments, server, has_result=False))
    return calls, about.get("tool_calls_complete") is True


def key_of(name: str) -> str:
    """A tool's name as a script writes it."""
    name = re.sub(r"\W", "_", name)
    return _ALIASES.get(name, name)


def _word(event: dict[str, Any], key: str) -> str:
    """The value of a key in snake case; it may be recorded in camel case."""
    return next(iter(snake({text_field(event, key) or "": None})))


def _seconds(event: dict[str, Any]) -> float | None:
    took = object_field(event, "duration")
    whole, nanos = took.get("secs"), took.get("nanos", 0)
    is_known = type(whole) is int and type(nanos) is int and 0 <= whole < _MOST_SECONDS and 0 <= nanos < 10**9
    return whole + nanos / 1e9 if is_known else None


def _has_failed(event: dict[str, Any], flag: Any = None) -> bool | None:
    """Whether a call failed, by its flag of success, its exit code, its error or its status."""
    status, code = text_field(event, "status"), event.get("exit_code")
    if event.get("error") is not None or status in ("failed", "declined"):
        return True
    if isinstance(flag, bool):
        return not flag
    return code != 0 if type(code) is int else False if status == "completed" else None


def _given(event: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: event[key] for key in keys if event.get(key) is not None}


def _mcp(event: dict[str, Any], call_id: str | None) -> EndedCall:
    about = object_field(event, "invocation") or event
    returned = object_field(event, "result")
    error = event.get("error", returned.get("Err"))
    returned = object_field(returned, "Ok") or returned
    failed = returned.get("isError", returned.get("is_error", False if returned else None))
    if error is not None:
        content, failed = object_field({"": error}, "").get("message", error), True
    else:
        structured = returned.get("structuredContent", returned.get("structured_content"))
        content = returned.get("content") or structured
    return EndedCall(
        call_id,
        text_field(about, "tool") or EVERYTHING[0],
        about.get("arguments"),
        text_field(about, "server"),
        content,
        failed if isinstance(failed, bool) else _has_failed(event),
        seconds=_seconds(event),
    )


def _dynamic(event: dict[str, Any], call_id: str | None) -> EndedCall:
    content = event.get("error")
    return EndedCall(
        call_id,
        text_field(event, "tool") or EVERYTHING[0],
        event.get("arguments"),
        text_field(event, "namespace"),
        event.get("content_items") if content is None else content,
        _has_failed(event, event.get("success")),
        has_result=not {"success", "content_items", "error", "status"}.isdisjoint(event),
        seconds=_seconds(event),
    )


def _command(event: dict[str, Any], call_id: str | None) -> EndedCall | None:
    source = _word(event, "source")
    if source == "user_shell":
        return None  # the user ran it
    words = event.get("command")
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        is_shell = len(words) == _SHELL_WORDS and words[1].startswith(("-", "/"))
        words = words[2] if is_shell else shlex.join(words)
    printed = [event[key] for key in ("aggregated_output", "formatted_output", "stdout") if event.get(key)]
    name, arguments = "exec_command", {"cmd": words, "workdir": _path(event.get("cwd"))}
    if source == "unified_exec_interaction" and event.get("interaction_input"):
        name, arguments = "write_stdin", {"session_id": event.get("process_id"), "chars": event["interaction_input"]}
    return EndedCall(
        call_id,
        name,
        {key: value for key, value in arguments.items() if value is not None},
        content=next(iter(printed), event.get("stderr", "")),
        is_error=_has_failed(event),
        seconds=_seconds(event),
    )


def _path(recorded: Any) -> Any:
    """A path as calls have it: newer versions record the URL of the file."""
    if not isinstance(recorded, str) or not recorded.startswith(_FILE_URL):
        return recorded
    from urllib.parse import unquote  # only a few rollouts need it

    return unquote(recorded.removeprefix(_FILE_URL))


def _patch(event: dict[str, Any], call_id: str | None) -> EndedCall:
    printed = event.get("stdout") or event.get("stderr")
    return EndedCall(
        call_id, "apply_patch", _given(event, "changes"), None, printed, _has_failed(event, event.get("success"))
    )


def _search(event: dict[str, Any], call_id: str | None) -> EndedCall:
    action, results = event.get("action"), event.get("results")
    arguments = action if isinstance(action, dict) and len(action) > 1 else _given(event, "query")
    return EndedCall(call_id, "web_search", arguments, content=results, has_result=results is not None)


def _other(name: str, *given: str) -> Callable[[dict[str, Any], str | None], EndedCall]:
    def read(event: dict[str, Any], call_id: str | None) -> EndedCall:
        arguments, failed = _given(event, *given), _has_failed(event)
        return EndedCall(call_id, name, arguments, is_error=failed, has_result=failed is not None)

    return read


def _agent(event: dict[str, Any], call_id: str | None) -> EndedCall:
    name = _word(event, "tool") or EVERYTHING[0]
    failed = _has_failed(event)
    arguments = _given(event, "prompt", "model", "receiver_thread_ids")
    return EndedCall(call_id, name, arguments, content=event.get("agents_states"), is_error=failed)


_READERS: dict[str, Callable[[dict[str, Any], str | None], EndedCall | None]] = {
    "mcp_tool_call_end": _mcp,
    "McpToolCall": _mcp,
    "dynamic_tool_call_request": _dynamic,
    "dynamic_tool_call_response": _dynamic,
    "DynamicToolCall": _dynamic,
    "exec_command_end": _command,
    "CommandExecution": _command,
    "patch_apply_end": _patch,
    "FileChange": _patch,
    "web_search_end": _search,
    "WebSearch": _search,
    "image_generation_end": _other("image_generation", "revised_prompt"),
    "ImageGeneration": _other("image_generation", "revised_prompt"),
    "view_image_tool_call": _other("view_image", "path"),
    "ImageView": _other("view_image", "path"),
    "Sleep": _other("sleep", "duration_ms"),
    "collab_agent_spawn_end": _other("spawn_agent", "prompt", "model"),
    "collab_agent_interaction_end": _other("send_input", "prompt", "receiver_thread_id"),
    "collab_waiting_end": _other("wait"),
    "collab_close_end": _other("close_agent", "receiver_thread_id"),
    "collab_resume_end": _other("resume_agent", "receiver_thread_id"),
    "CollabAgentToolCall": _agent,
}
"""readers of the events and items that are calls"""
_NO_CALLS = frozenset(
    ("UserMessage", "HookPrompt", "AgentMessage", "Plan", "Reasoning", "SubAgentActivity", "ContextCompaction",
     "EnteredReviewMode", "ExitedReviewMode")
)  # fmt: skip
"""items that are not calls"""

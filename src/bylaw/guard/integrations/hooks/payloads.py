"""What each client sends to a hook, read into one form; and what a hook prints and how it exits, so that each client
understands it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.guard.integrations.hooks import BLOCK, MOST_BYTES
from bylaw.text.repeated_keys import loads_strictly

Client: TypeAlias = Literal["claude-code", "codex", "gemini", "cursor", "copilot"]
Moment: TypeAlias = Literal["before", "after", "start", "end"]

CLIENTS: tuple[Client, ...] = ("claude-code", "codex", "gemini", "cursor", "copilot")
MOMENTS: dict[str, Moment] = {
    "pretooluse": "before",
    "beforetool": "before",
    "beforeshellexecution": "before",
    "beforemcpexecution": "before",
    "beforereadfile": "before",
    "posttooluse": "after",
    "posttoolusefailure": "after",
    "aftertool": "after",
    "aftershellexecution": "after",
    "aftermcpexecution": "after",
    "sessionstart": "start",
    "sessionend": "end",
}
"""events in lower case: clients differ in nothing but that"""
_ASKING_MODES = frozenset({"default", "acceptEdits", "plan"})
"""permission modes of Claude Code in which a person is asked; in the others nobody is"""
_RESULTS = (
    *("tool_response", "tool_output", "toolResult", "tool_result", "result_json", "output"),
    *("error", "error_message"),
)
_CURSOR_TOOLS = {"beforeshellexecution": "Shell", "aftershellexecution": "Shell", "beforereadfile": "Read"}


class Unreadable(ValueError):
    """Not the payload of a hook. The message is for the model."""


class HookEvent(Struct, frozen=True, kw_only=True):
    client: Client
    name: str
    """of the event, as the client writes it"""
    moment: Moment
    session: str
    folders: tuple[str, ...] = ()
    """where the agent works"""
    call_id: str | None = None
    tool: str = ""
    arguments: Any = None
    is_partial: bool = False
    """whether the event has only some of the arguments"""
    content: Any = None
    """the result, after a call"""
    is_error: bool | None = None
    never_ran: bool = False
    """whether the client says that it has denied the call itself"""
    can_ask: bool = False
    """whether the client asks the person in front of it if the hook says so; otherwise it might run the call"""


def read_payload(text: bytes, *, client: Client | None = None, event: str | None = None) -> HookEvent:
    """`client` and `event`: as the command line names them; the payload is believed first. Raises Unreadable."""
    if len(text) > MOST_BYTES:
        raise Unreadable(f"the payload is larger than {MOST_BYTES >> 20} MB")
    try:
        payload = loads_strictly(text)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"the payload is not plain JSON: {problem}") from None
    if not isinstance(payload, dict):
        raise Unreadable("the payload is not a JSON object")
    name = str(payload.get("hook_event_name") or event or _guess_event(payload) or "")
    moment = MOMENTS.get(name.lower())
    if not name:
        raise Unreadable("the payload names no event: pass --event NAME")
    if moment is None:
        raise Unreadable(f"the event `{name}` is not one of a tool call or a session")
    found = _client(payload, name, client)
    session = payload.get("session_id") or payload.get("conversation_id") or payload.get("sessionId")
    folders = _folders(payload)
    if not session and found == "copilot":  # earlier versions send no session: calls in one folder count together
        session = f"copilot {next(iter(folders), None)}"
    if not isinstance(session, str) or not session:
        raise Unreadable("the payload names no session")
    about: dict[str, Any] = {"client": found, "name": name, "moment": moment, "session": session, "folders": folders}
    if moment in ("start", "end"):
        return HookEvent(**about)
    return HookEvent(**about, **_call(payload, name.lower()), can_ask=_can_ask(payload, found, name))


def _guess_event(payload: Mapping[str, Any]) -> str | None:
    """Copilot does not name its events."""
    if "toolName" not in payload:
        return None
    if "toolResult" in payload:
        return "postToolUse"
    return "postToolUseFailure" if "error" in payload else "preToolUse"


def _client(payload: Mapping[str, Any], name: str, named: Client | None) -> Client:
    if "conversation_id" in payload or "cursor_version" in payload:
        return "cursor"
    if "toolName" in payload or ("timestamp" in payload and "hook_event_name" not in payload):
        return "copilot"
    if name in ("BeforeTool", "AfterTool"):
        return "gemini"
    if "turn_id" in payload:
        return "codex"
    if named is not None:
        return named
    return "gemini" if "timestamp" in payload else "claude-code"


def _folders(payload: Mapping[str, Any]) -> tuple[str, ...]:
    roots = payload.get("workspace_roots")
    named = [*(roots if isinstance(roots, list) else ()), payload.get("cwd")]
    return tuple(dict.fromkeys(one for one in named if isinstance(one, str) and one))


def _can_ask(payload: Mapping[str, Any], client: Client, name: str) -> bool:
    if client == "cursor":  # it accepts `ask` for all tools, and asks only here
        return name in ("beforeShellExecution", "beforeMCPExecution")
    return client == "claude-code" and payload.get("permission_mode") in _ASKING_MODES


def _call(payload: Mapping[str, Any], event: str) -> dict[str, Any]:
    tool = payload.get("tool_name") or payload.get("toolName") or _CURSOR_TOOLS.get(event)
    if not isinstance(tool, str):
        raise Unreadable("the payload names no tool")
    call_id = payload.get("tool_use_id")
    found = {"tool": tool, "arguments": _arguments(payload, event), "is_partial": event in _CURSOR_TOOLS}
    if isinstance(call_id, str) and call_id:
        found["call_id"] = call_id
    if MOMENTS[event] == "after":
        found |= _result(payload, event)
    return found


def _arguments(payload: Mapping[str, Any], event: str) -> Any:
    if event in _CURSOR_TOOLS:
        return {key: payload[key] for key in ("command", "file_path") if key in payload}
    given = payload.get("tool_input", payload.get("toolArgs"))
    if isinstance(given, str):  # Copilot, and Cursor for MCP tools
        try:
            given = loads_strictly(given) if given.strip() else {}
        except (ValueError, RecursionError) as problem:
            raise Unreadable(f"the arguments of the tool are not plain JSON: {problem}") from None
    if given is not None and not isinstance(given, dict):
        raise Unreadable("the arguments of the tool are not a JSON object")
    return given


def _result(payload: Mapping[str, Any], event: str) -> dict[str, Any]:
    content = next((payload[key] for key in _RESULTS if key in payload), None)
    result = content if isinstance(content, dict) else {}
    kind = result.get("resultType") or result.get("result_type")  # Copilot, in either of its two forms
    never_ran = kind in ("denied", "rejected") or payload.get("failure_type") == "permission_denied"
    is_error = event == "posttoolusefailure" or kind in ("failure", "error") or bool(result.get("error"))
    return {"content": content, "is_error": True if never_ran or is_error else None, "never_ran": never_ran}


# -- answers ----------------------------------------------------------------------------------------------------------
# A call is stopped by exit code 2 in every client, with the reason on stderr; the same reason is on stdout in the form
# of the client. A call that may run gets an empty object: the guard does not object, and the client's own permissions
# still apply.


class Answer(Struct, frozen=True):
    stdout: str = "{}"
    stderr: str = ""
    code: int = 0


def allow() -> Answer:
    return Answer()


def refuse(reason: str) -> Answer:
    """While it is not known who asks."""
    return Answer(stdout="", stderr=reason, code=BLOCK)


def block(event: HookEvent, reason: str) -> Answer:
    if event.moment == "after":
        return tell(event, reason)
    said = _denial(event.client, event.name, reason) if event.moment == "before" else {}
    return Answer(json.dumps(said), reason, BLOCK)


def _denial(client: Client, name: str, reason: str) -> dict[str, Any]:
    match client:
        case "gemini":
            return {"decision": "deny", "reason": reason}
        case "cursor":
            return {"permission": "deny", "user_message": reason, "agent_message": reason}
        case "copilot":
            return {"permissionDecision": "deny", "permissionDecisionReason": reason}
        case _:
            return _claude(name, permissionDecision="deny", permissionDecisionReason=reason)


def ask(event: HookEvent, reason: str) -> Answer:
    """Only if `event.can_ask`."""
    if event.client == "cursor":
        return Answer(json.dumps({"permission": "ask", "user_message": reason, "agent_message": reason}))
    return Answer(json.dumps(_claude(event.name, permissionDecision="ask", permissionDecisionReason=reason)))


def allow_instead(event: HookEvent, arguments: Any, reason: str) -> Answer | None:
    """Run the call with these arguments; None if the client cannot do exactly that."""
    if event.client == "claude-code":
        said = {"permissionDecision": "allow", "permissionDecisionReason": reason, "updatedInput": arguments}
        return Answer(json.dumps(_claude(event.name, **said)))
    if event.client == "cursor" and event.name == "preToolUse":
        return Answer(json.dumps({"permission": "allow", "updated_input": arguments}))
    return None


def tell(event: HookEvent, text: str) -> Answer:
    """After a call: it has run, and the model is told what that broke."""
    match event.client:
        case "gemini":  # exit code 2 would hide the result
            context = {"hookEventName": event.name, "additionalContext": text}
            return Answer(json.dumps({"hookSpecificOutput": context}), text)
        case "cursor":
            return Answer(json.dumps({"additional_context": text}), text)
        case "copilot":  # after a failure it reads stderr, and only with this exit code
            is_failure = event.name.lower() == "posttoolusefailure"
            return Answer(json.dumps({"additionalContext": text}), text, BLOCK if is_failure else 0)
        case _:
            return Answer("", text, BLOCK)


def _claude(name: str, **said: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": name, **said}}

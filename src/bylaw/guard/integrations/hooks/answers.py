"""What a hook prints and how it exits, so that each client understands it.

A call is stopped by exit code 2 in every client, with the reason on stderr; the same reason is on stdout in the form
of the client. A call that may run gets an empty object: the guard does not object, and the client's own permissions
still apply.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from bylaw.guard.integrations.hooks.connection import BLOCK
from bylaw.guard.integrations.hooks.payloads import Client, HookEvent


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

"""Claude Agent SDK: hooks in `ClaudeAgentOptions` that decide each call of the main agent and of its sub-agents.

A pause asks the program's own `can_use_tool`, whose answer may edit the call; the hook waits for it. Without one the
model reads that the call waits for a review, and may repeat it after the answer. The hook never widens what the SDK
allows: an allowed call still needs the permissions of the SDK. Claude Code runs the tools, so a call cannot become one
of another tool, and a terminated session ends the run without an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

from bylaw.guard.guard import Guard
from bylaw.guard.integrations.calls import MOST_WAITING, Answer, Calls, keep_recent
from bylaw.guard.model import Attempt, Call, Decision, Denied
from bylaw.guard.tools import is_same_json
from bylaw.model.rule import Action

TIMEOUT = 24 * 3600.0
"""seconds that a hook may take, since a person may be asked; the call is blocked after that"""


class ClaudeCalls(Calls):
    ask: Callable[[str, Any, Any], Any] | None = None

    def __init__(self, guard: Guard, **options: Any) -> None:
        super().__init__(guard, **options)
        self._open: dict[str, tuple[Attempt, Decision]] = {}
        """calls that may run, by their id"""

    def hooks(self) -> dict[str, list[Any]]:
        matchers = {
            "PreToolUse": HookMatcher(hooks=[self.before], timeout=TIMEOUT, on_failure="block"),
            "PostToolUse": HookMatcher(hooks=[self.after]),
            "PostToolUseFailure": HookMatcher(hooks=[self.after]),
            "Stop": HookMatcher(hooks=[self.said]),
            "SubagentStop": HookMatcher(hooks=[self.said]),
        }
        return {event: [matcher] for event, matcher in matchers.items()}

    async def before(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """`PreToolUse`. An exception here blocks the call, too, but the model would not read why."""
        try:
            return await self._decided(given)
        except Exception as problem:
            return _denial(f"the guard failed: {type(problem).__name__}: {problem}", stop=True)

    async def _decided(self, given: Any) -> dict[str, Any]:
        attempt = self._attempt(given)
        decision, is_asked = await self.adecide(attempt), False
        if decision.action is Action.PAUSE and self.ask is not None and decision.review is not None:
            decision, is_asked = await self.adecide(attempt, await self._ask(given, decision)), True
        if decision.call is None or not decision:
            return _denial(str(Denied(decision)), stop=decision.action is Action.TERMINATE)
        call = decision.call
        if call.tool != attempt.tool:
            await self.guard.arelease(decision)
            return _denial(f"`{call.tool}` was approved in its place, which the model has to call itself")
        keep_recent(self._open, given["tool_use_id"], (attempt, decision), MOST_WAITING)
        if is_asked or not is_same_json(call.arguments, attempt.arguments or {}):  # the program has allowed this call
            return _output(permissionDecision="allow", updatedInput=call.arguments)
        return {}

    def _attempt(self, given: Any) -> Attempt:
        """A sub-agent that the rules know is judged by its own rules and those of the main agent. The rules of a
        service are not known here, so that all agents are judged by those of the main agent."""
        attempt = self.attempt(
            given["tool_name"], given["tool_input"], given["tool_use_id"], given, given.get("session_id")
        )
        kind = given.get("agent_type")
        known = () if self.guard.is_remote else {policy.agent for policy in self.guard.policies.all}
        if not given.get("agent_id") or kind not in known:
            return attempt
        above = () if attempt.agent is None else (attempt.agent,)
        return msgspec.structs.replace(attempt, agent=kind, ancestors=(*attempt.ancestors, *above))

    async def _ask(self, given: Any, decision: Decision) -> Answer:
        """What `can_use_tool` answers. Its exception blocks the call."""
        assert self.ask is not None
        context = ToolPermissionContext(
            tool_use_id=given["tool_use_id"],
            agent_id=given.get("agent_id"),
            decision_reason=decision.reason,
            title=f"review {decision.review}",
        )
        result = await self.ask(given["tool_name"], given["tool_input"], context)
        if not isinstance(result, PermissionResultAllow):
            return Answer(approved=False, note=getattr(result, "message", None) or None)
        edited = result.updated_input
        return Answer(approved=True, call=None if edited is None else Call(given["tool_name"], edited))

    async def permit(self, name: str, given: dict[str, Any], context: Any) -> Any:
        """`can_use_tool` for a call that the guard has allowed. If it changes the call, that is another attempt."""
        assert self.ask is not None
        result = await self.ask(name, given, context)
        edited = getattr(result, "updated_input", None)
        if not isinstance(result, PermissionResultAllow) or edited is None or is_same_json(edited, given):
            return result
        attempt, decision = self._open.pop(context.tool_use_id, (None, None))
        if attempt is None or decision is None:
            return PermissionResultDeny(message="the guard has not decided the call that was changed")
        await self.guard.arelease(decision)
        attempt = msgspec.structs.replace(attempt, arguments=edited, call_id=f"{attempt.call_id}-edited")
        decision = await self.adecide(attempt)
        if decision.call is None or not decision or decision.call.tool != name:
            return PermissionResultDeny(message=str(Denied(decision)), interrupt=decision.action is Action.TERMINATE)
        keep_recent(self._open, context.tool_use_id, (attempt, decision), MOST_WAITING)
        return replace(result, updated_input=decision.call.arguments)

    async def after(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        attempt, decision = self._open.pop(given["tool_use_id"], (None, None))
        if decision is not None:
            failed = given["hook_event_name"] == "PostToolUseFailure"
            content = given.get("error") if failed else _content(given.get("tool_response"))
            await self.guard.in_thread(self.record, decision, content, failed, attempt, given.get("tool_input"))
        return {}

    async def said(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        text = given.get("last_assistant_message") or ""
        await self.aobserve(text, calls=False, model=None, context=given, default=given.get("session_id"))
        return {}


def guard_options(calls: ClaudeCalls, options: Any) -> Any:
    options = ClaudeAgentOptions() if options is None else options
    if not isinstance(options, ClaudeAgentOptions):
        raise TypeError(f"options={options!r:.80}: expected ClaudeAgentOptions")
    calls.ask = options.can_use_tool
    hooks = {event: list(matchers) for event, matchers in (options.hooks or {}).items()}
    for event in ("PreToolUse", "PermissionRequest"):
        for at, matcher in enumerate(hooks.get(event, ())):
            hooks[event][at] = replace(matcher, hooks=[_judged(hook) for hook in matcher.hooks])
    for event, matchers in calls.hooks().items():
        hooks[event] = [*hooks.get(event, ()), *matchers]
    return replace(options, hooks=hooks, can_use_tool=None if calls.ask is None else calls.permit)


def _judged(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook of the program itself. Claude Code runs all of them at the same time, so that one which changes a call
    would change it after it was judged: such a call is blocked."""

    async def judged(given: Any, tool_use_id: str | None, context: Any) -> Any:
        answer = await hook(given, tool_use_id, context)
        specific = answer.get("hookSpecificOutput") if isinstance(answer, dict) else None
        specific = specific if isinstance(specific, dict) else {}
        permission = specific.get("decision")
        changed = specific.get("updatedInput")
        if isinstance(permission, dict):
            changed = permission.get("updatedInput", changed)
        if changed is None or is_same_json(changed, given["tool_input"]):
            return answer
        why = "another hook has changed the call after the guard has judged it; change it in can_use_tool"
        if given["hook_event_name"] == "PreToolUse":
            return _denial(why)
        deny = {"behavior": "deny", "message": why}
        return {"hookSpecificOutput": {"hookEventName": given["hook_event_name"], "decision": deny}}

    return judged


def _content(response: Any) -> Any:
    """The text of a tool of an MCP server; any other tool has a form of its own."""
    blocks = response if isinstance(response, list) else ()
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(map(str, texts)) if texts and len(texts) == len(blocks) else response


def _denial(reason: str, *, stop: bool = False) -> dict[str, Any]:
    denial = _output(permissionDecision="deny", permissionDecisionReason=reason)
    return {**denial, "continue_": False, "stopReason": reason} if stop else denial


def _output(**fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}

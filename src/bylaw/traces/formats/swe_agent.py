"""SWE-agent's trajectories: steps with an action and what came of it, or a history of messages; mini-SWE-agent's too.

An action is a command for the shell, unless the history says which tool was called. Demonstrations are not what the
agent did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.gathered import call_of
from bylaw.traces.formats.record import Path, Record, list_field, object_field, text_field

_MINI = "mini-swe-agent"
SHELL = "bash"
_METADATA = ("exit_status", "model_stats", "swe_agent_version")
_FENCED = re.compile(r"```(?:bash|sh|mswea_bash_command)[ \t]*\n(.*?)\n```", re.DOTALL)


def claims(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if str(value.get("trajectory_format", "")).startswith(_MINI):
        return isinstance(value.get("messages"), list)
    if isinstance(value.get("trajectory"), list):
        return any(isinstance(step, dict) and "observation" in step for step in value["trajectory"][:5])
    return any(isinstance(one, dict) and {"role", "agent"} <= one.keys() for one in list_field(value, "history")[:5])


class SweAgentReader(ChatReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a trajectory"):
            return
        attempts = [one for one in list_field(value, "attempts") if isinstance(one, dict)]
        for attempt in attempts or [value]:  # the file repeats the best of its attempts
            self._trajectory(record, attempt)

    def _trajectory(self, record: Record, value: dict[str, Any]) -> None:
        info = object_field(value, "info")
        about = {key: info[key] for key in _METADATA if key in info}
        name = text_field(value, "instance_id") or text_field(info, "instance_id")
        if isinstance(value.get("messages"), list):
            key, items = "messages", [[one] for one in _mini(value["messages"])]
        elif list_field(value, "trajectory"):
            key, items = "trajectory", list(_steps(value))
        else:
            key, items = "history", [[one] for one in _history(list_field(value, "history"))]
        if not items:
            record.bad("wrong-type", "a trajectory has neither steps nor a history")
            return
        self.read_list(record, items, (key,), name, metadata=about or None)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        for message in item:
            super().read_item(conversation, record, message, path)


def _steps(value: dict[str, Any]) -> Iterator[list[Any]]:
    """The messages of each step; the first step also has what was said before it."""
    history = [one for one in list_field(value, "history") if not (isinstance(one, dict) and one.get("is_demo"))]
    answers = [one for one in history if isinstance(one, dict) and one.get("role") == "assistant"]
    steps = value["trajectory"]
    before = list(takewhile(lambda one: isinstance(one, dict) and one.get("role") in ("system", "user"), history))
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            answer = answers[number] if len(answers) >= len(steps) else {}
            issued = answer.get("tool_calls") or step.get("tool_calls")
            yield [*before, *_step(step, number, issued if isinstance(issued, list) else [])]
        else:
            yield [*before, step]
        before = []


def _step(step: dict[str, Any], number: int, issued: list[Any]) -> Iterator[dict[str, Any]]:
    action = step.get("action")
    text = text_field(step, "response") or text_field(step, "thought")
    calls = issued or ([call_of(f"step {number}", SHELL, {"command": action})] if action else [])
    yield {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    if len(calls) > 0 and step.get("observation") is not None:
        call_id = text_field(calls[0], "id") if isinstance(calls[0], dict) else None
        yield {"role": "tool", "tool_call_id": call_id, "content": step["observation"]}


def _history(history: list[Any]) -> Iterator[Any]:
    """A history alone: results name their calls, or follow a command that the answer's action is."""
    waiting: str | None = None
    for number, one in enumerate(history):
        if not isinstance(one, dict) or one.get("is_demo"):
            if not isinstance(one, dict):
                yield one
            continue
        if one.get("role") == "assistant":
            calls, action = one.get("tool_calls"), one.get("action")
            if not calls and isinstance(action, str) and action.strip():
                waiting = f"step {number}"
                calls = [call_of(waiting, SHELL, {"command": action})]
            yield {"role": "assistant", "content": one.get("content"), **({"tool_calls": calls} if calls else {})}
        elif waiting is not None or one.get("role") == "tool":
            ids = [id for id in list_field(one, "tool_call_ids") if isinstance(id, str)]
            yield {"role": "tool", "tool_call_id": next(iter(ids), waiting), "content": one.get("content")}
            waiting = None
        else:
            yield one


def _mini(messages: list[Any]) -> Iterator[Any]:
    """mini-SWE-agent: commands in fenced blocks or in `extra`, and what they print in the next user's message."""
    waiting: list[str] = []
    for number, one in enumerate(messages):
        if not isinstance(one, dict):
            yield one
            continue
        role, extra = one.get("role"), object_field(one, "extra")
        if role == "assistant" and not one.get("tool_calls"):
            text = one.get("content")
            found = [
                text_field(action, "command", "action")
                for action in list_field(extra, "actions")
                if isinstance(action, dict)
            ]
            commands = [command for command in found if command is not None]
            commands = commands or (_FENCED.findall(text) if isinstance(text, str) else [])
            waiting = [f"step {number}.{index}" for index in range(len(commands))]
            calls = [call_of(id, SHELL, {"command": command}) for id, command in zip(waiting, commands, strict=True)]
            yield {**one, **({"tool_calls": calls} if calls else {})}
        elif role == "user" and waiting:
            code = extra.get("returncode")
            failed = code != 0 if type(code) is int else None
            yield {"role": "tool", "tool_call_id": waiting.pop(0), "content": one.get("content"), "is_error": failed}
        elif role != "exit":
            yield one

"""Runs of benchmarks: tau-bench, tau2-bench, AgentDojo, and the trajectories of SWE-agent and mini-SWE-agent.

tau-bench: a list of trajectories, each a chat with OpenAI's messages and a reward; `detect` knows it. tau2-bench:
results with many simulations, or one simulation. Calls that the simulated user makes are input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, TypedDict

import msgspec

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.bodies import has_calls, read_answer
from bylaw.traces.formats.chat import ChatReader, call_of
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.record import Path, Record, list_field, object_field, records_of, text_field
from bylaw.traces.records.lines import Block

_TAU2_METADATA = ("task_id", "trial", "seed", "termination_reason", "agent_cost", "user_cost", "duration")
_USER = "user"


def claims_tau2(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("simulations"), list) or (
        isinstance(value.get("messages"), list) and "task_id" in value and "termination_reason" in value
    )


class Tau2Reader(ChatReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a result"):
            return
        info = object_field(value, "info")
        agent = object_field(info, "agent_info")
        tools = object_field(info, "environment_info").get("tool_defs")
        settings = Settings(
            model=text_field(agent, "llm"),
            params=object_field(agent, "llm_args") or None,
            tools=tools if isinstance(tools, list) else None,
        )
        if isinstance(value.get("simulations"), list):
            for index, one in enumerate(value["simulations"]):
                self._simulation(record, one, ("simulations", index), settings)
        else:
            self._simulation(record, value, (), settings)

    def _simulation(self, record: Record, run: Any, path: Path, settings: Settings) -> None:
        if not isinstance(run, dict) or not isinstance(run.get("messages"), list):
            record.bad("wrong-type", "a simulation has no list `messages`", path)
            return
        reward = object_field(run, "reward_info").get("reward")
        metadata = {key: run[key] for key in _TAU2_METADATA if run.get(key) is not None}
        metadata |= {} if reward is None else {"reward": reward}
        if not run["messages"] and list_field(run, "ticks"):
            record.warn("unread-content", "this simulation is a voice call, whose `ticks` are not read", path)
        self.read_list(record, run["messages"], (*path, "messages"), _name_of(run), settings, metadata or None)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        for message in _tau2_messages(item):
            super().read_item(conversation, record, message, path)


def _name_of(run: dict[str, Any]) -> str | None:
    task, trial = run.get("task_id"), run.get("trial")
    return None if task is None else f"task {task}" if trial is None else f"task {task} trial {trial}"


def _tau2_messages(message: Any) -> Iterator[Any]:
    if not isinstance(message, dict):
        yield message
        return
    role = message.get("role")
    for one in list_field(message, "tool_messages"):  # several results in one message
        yield from _tau2_messages(one)
    if role == "tool" and "tool_messages" not in message:
        if message.get("requestor") == _USER:
            yield {"role": "user", "content": message.get("content"), "timestamp": message.get("timestamp")}
        else:
            call_id = text_field(message, "id", "tool_call_id")
            yield {**message, "tool_call_id": call_id, "is_error": message.get("error")}
    elif role in ("assistant", "user", "system"):
        found = {key: message.get(key) for key in ("role", "content", "timestamp", "usage")}
        found["model"] = text_field(object_field(message, "raw_data"), "model")
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls and role == "assistant":
            found["tool_calls"] = [
                call_of(call.get("id"), call.get("name"), call.get("arguments")) if isinstance(call, dict) else call
                for call in calls
            ]
        elif isinstance(calls, list) and calls:  # the user's own: content is null then
            own = [{"type": "tool_call", **(call if isinstance(call, dict) else {})} for call in calls]
            found["content"] = message.get("content") or own
        yield found
    elif role != "tool":
        yield message


# tau-bench


_TAU_METADATA = ("task_id", "trial", "reward")
"""stored with the session"""


class _Run(TypedDict, total=False):
    """What is read of a run. `info` holds the benchmark's own expectations, and is not even decoded."""

    task_id: Any
    trial: Any
    reward: Any
    traj: Any


_decode = msgspec.json.Decoder(_Run).decode


class TauReader(ChatReader):
    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems, decode_first=_decode):
            self.read_record(record)
        return self._assembler.take()

    def read_record(self, record: Record) -> None:
        run = record.value
        if not record.expect_object("a run", "traj"):
            return
        metadata = {key: run[key] for key in _TAU_METADATA if key in run}
        self.read_list(record, run["traj"], ("traj",), _name_of(run), metadata=metadata or None)


# AgentDojo: a chat with calls as `{function, args, id}`, what was attacked, and the outcome


_DOJO_METADATA = (
    "suite_name",
    "pipeline_name",
    "user_task_id",
    "injection_task_id",
    "attack_type",
    "utility",
    "security",
    "duration",
    "error",
)
_DOJO_NAME = ("suite_name", "user_task_id", "injection_task_id")


def claims_agentdojo(value: Any) -> bool:
    return isinstance(value, dict) and "suite_name" in value and _key_in(value) is not None


def _key_in(run: dict[str, Any]) -> str | None:
    """The key of the messages; forks of the benchmark call them conversations."""
    return next((key for key in ("messages", "conversations") if isinstance(run.get(key), list)), None)


class AgentDojoReader(ChatReader):
    def read_record(self, record: Record) -> None:
        run = record.value
        key = _key_in(run) if isinstance(run, dict) else None
        if key is None:
            record.expect_object("a run", "messages")
            return
        metadata = {key: run[key] for key in _DOJO_METADATA if run.get(key) is not None}
        name = "/".join(str(run[key]) for key in _DOJO_NAME if run.get(key) is not None)
        metadata |= {"task_id": name} if name else {}
        messages = [_dojo_message(message) for message in run[key]]
        self.read_list(record, messages, (key,), name or None, metadata=metadata)


def _dojo_message(message: Any) -> Any:
    """A message in the shape of a chat. A result without a call id is matched by the name of the call it repeats."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return message
    found = chat_message(message)[0]
    if found.get("tool_calls") is None:
        found.pop("tool_calls", None)
    content = found.get("content")
    if isinstance(content, list):
        content = found["content"] = [_block(block) for block in content]
    if found["role"] == "tool":
        call, error = message.get("tool_call"), message.get("error")
        if isinstance(call, dict):
            found |= {"name": call.get("function"), "arguments": call.get("args")}
        found["is_error"] = error is not None
        texts = [block.get("text") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        if error is not None and not (any(texts) or (isinstance(content, str) and content)):
            found["content"] = error
    return found


def _block(block: Any) -> Any:
    if isinstance(block, dict) and isinstance(block.get("content"), str) and "text" not in block:
        return {"type": block.get("type"), "text": block["content"]}
    return block


# SWE-agent: steps with an action and what came of it, or a history of messages; mini-SWE-agent's too.
#
# An action is a command for the shell, unless the history says which tool was called. Demonstrations are not what the
# agent did.


_MINI = "mini-swe-agent"
SHELL = "bash"
_SWE_METADATA = ("exit_status", "model_stats", "swe_agent_version")
_FENCED = re.compile(r"```(?:bash|sh|mswea_bash_command)[ \t]*\n(.*?)\n```", re.DOTALL)


def claims_swe_agent(value: Any) -> bool:
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
        about = {key: info[key] for key in _SWE_METADATA if key in info}
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
    """mini-SWE-agent: commands in fenced blocks or in `extra`, and what they print in the next user's message.

    Version 2 has calls and results, as messages or as items of OpenAI's Responses API.
    """
    waiting: list[str] = []
    for number, one in enumerate(messages):
        if not isinstance(one, dict):
            yield one
            continue
        if one.get("object") == "response":
            one = read_answer(one) or one
        elif one.get("type") == "function_call_output":
            one = {**one, "role": "tool", "tool_call_id": one.get("call_id"), "content": one.get("output")}
        role, extra = one.get("role"), object_field(one, "extra")
        code = extra.get("returncode")
        failed = code != 0 if type(code) is int else None
        if role == "assistant" and not has_calls(one):
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
            yield {"role": "tool", "tool_call_id": waiting.pop(0), "content": one.get("content"), "is_error": failed}
        elif role == "tool" and failed is not None:
            yield {**one, "is_error": failed}
        elif role != "exit":
            yield one

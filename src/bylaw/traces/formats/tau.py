"""tau-bench and tau2-bench.

tau-bench: a list of trajectories, each a chat with OpenAI's messages and a reward; `detect` knows it. tau2-bench:
results with many simulations, or one simulation. Calls that the simulated user makes are input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import msgspec

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.gathered import call_of
from bylaw.traces.formats.record import Path, Record, list_field, object_field, records_of, text_field
from bylaw.traces.records.lines import Block

_METADATA = ("task_id", "trial", "seed", "termination_reason", "agent_cost", "user_cost", "duration")
_USER = "user"


def claims(value: Any) -> bool:
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
        metadata = {key: run[key] for key in _METADATA if run.get(key) is not None}
        metadata |= {} if reward is None else {"reward": reward}
        if not run["messages"] and list_field(run, "ticks"):
            record.warn("unread-content", "this simulation is a voice call, whose `ticks` are not read", path)
        self.read_list(record, run["messages"], (*path, "messages"), _name(run), settings, metadata or None)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        for message in _messages(item):
            super().read_item(conversation, record, message, path)


def _name(run: dict[str, Any]) -> str | None:
    task, trial = run.get("task_id"), run.get("trial")
    return None if task is None else f"task {task}" if trial is None else f"task {task} trial {trial}"


def _messages(message: Any) -> Iterator[Any]:
    if not isinstance(message, dict):
        yield message
        return
    role = message.get("role")
    for one in list_field(message, "tool_messages"):  # several results in one message
        yield from _messages(one)
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
            found["tool_calls"] = [_call(call) for call in calls]
        elif isinstance(calls, list) and calls:  # the user's own: content is null then
            own = [{"type": "tool_call", **(call if isinstance(call, dict) else {})} for call in calls]
            found["content"] = message.get("content") or own
        yield found
    elif role != "tool":
        yield message


def _call(call: Any) -> Any:
    return call_of(call.get("id"), call.get("name"), call.get("arguments")) if isinstance(call, dict) else call


# tau-bench


_RUN_METADATA = ("task_id", "trial", "reward")
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
        metadata = {key: run[key] for key in _RUN_METADATA if key in run}
        self.read_list(record, run["traj"], ("traj",), _name(run), metadata=metadata or None)

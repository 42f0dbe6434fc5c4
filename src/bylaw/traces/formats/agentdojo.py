"""AgentDojo's runs: a chat with calls as `{function, args, id}`, what was attacked, and how it went."""

from __future__ import annotations

from typing import Any

from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.record import Record, a_type
from bylaw.traces.formats.spans.messages import chat_message

_TOLD = (
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


def claims(value: Any) -> bool:
    return isinstance(value, dict) and "suite_name" in value and isinstance(value.get("messages"), list)


class AgentDojoReader(ChatReader):
    def read_record(self, record: Record) -> None:
        run = record.value
        if not isinstance(run, dict) or not isinstance(run.get("messages"), list):
            what = "a run has no list `messages`" if isinstance(run, dict) else f"a run is an object, not {a_type(run)}"
            record.bad("wrong-type", what, ("messages",) if isinstance(run, dict) else ())
            return
        told = {key: run[key] for key in _TOLD if run.get(key) is not None}
        name = "/".join(str(run[key]) for key in _TOLD[:1] + _TOLD[2:4] if run.get(key) is not None)
        told |= {"task_id": name} if name else {}
        messages = [_message(message) for message in run["messages"]]
        self.read_list(record, messages, ("messages",), session=name or None, metadata=told)


def _message(message: Any) -> Any:
    """As a chat has it. A result whose call has no id is told by the call it repeats."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return message
    found = chat_message(message)[0]
    if found.get("tool_calls") is None:
        found.pop("tool_calls", None)
    content = found.get("content")
    if isinstance(content, list):
        found["content"] = [_block(block) for block in content]
    if found["role"] == "tool":
        call, error = message.get("tool_call"), message.get("error")
        found["name"] = call.get("function") if isinstance(call, dict) else None
        found["is_error"] = error is not None
        if error is not None and not _text(found.get("content")):
            found["content"] = error
    return found


def _block(block: Any) -> Any:
    if isinstance(block, dict) and isinstance(block.get("content"), str) and "text" not in block:
        return {"type": block.get("type"), "text": block["content"]}
    return block


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(block.get("text") or "") for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""

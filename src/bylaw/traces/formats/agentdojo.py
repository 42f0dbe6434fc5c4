"""AgentDojo's runs: a chat with calls as `{function, args, id}`, what was attacked, and the outcome."""

from __future__ import annotations

from typing import Any

from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.record import Record

_METADATA = (
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
_NAME = ("suite_name", "user_task_id", "injection_task_id")


def claims(value: Any) -> bool:
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
        metadata = {key: run[key] for key in _METADATA if run.get(key) is not None}
        name = "/".join(str(run[key]) for key in _NAME if run.get(key) is not None)
        metadata |= {"task_id": name} if name else {}
        messages = [_message(message) for message in run[key]]
        self.read_list(record, messages, (key,), name or None, metadata=metadata)


def _message(message: Any) -> Any:
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

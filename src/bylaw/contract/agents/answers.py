"""The answer inside what a Python agent returns, and the result of a run. `replies` reads those of HTTP.

A Python agent: text is the answer as it is. A mapping: the first of `KEYS` that has a value, or the latest text of the
assistant in `messages`. Results of frameworks have their own attribute. Other data is the answer as JSON. None, an
object that is no data (a coroutine that nobody awaited, `object()`), and a mapping that reports a failure are no
answer. `streams` reads answers in pieces.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.contract.faults.plan import Plan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.faults.texts import as_text
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.model.canonical import json_type
from bylaw.wire.values import clean, without_surrogates

KEYS = ("output", "final_output", "response", "result", "answer", "content", "text", "message", "reply", "data")
_ATTRIBUTES = ("final_output", "output_text", "output", "content", "text")
"""of OpenAI Agents, Pydantic AI, and the messages of LangChain"""
_ASSISTANT = ("ai", "assistant", "AIMessageChunk")
_MAX_DEPTH = 8
_BYTES = (bytes, bytearray, memoryview)
MOST_ANSWER = 10 * 1024 * 1024
TOO_LARGE = Failure("bad_answer", f"the answer is larger than {MOST_ANSWER // 1024**2} MB")


class NoAnswer(Exception):
    """The agent returned something that is no data; the message names it: "an object of type `Queue`"."""

    def failure(self, how: str) -> Failure:
        """`how`: whether the agent `returned` or `yielded` it."""
        return Failure("bad_answer", f"the agent {how} {self}")


class ReportsFailure(NoAnswer):
    """The value that the agent returned reports a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self._failure = failure

    def failure(self, how: str) -> Failure:
        return self._failure


def answer_text(value: Any, *, depth: int = 0) -> str | None:
    """None if the value holds no answer. Raises NoAnswer, ReportsFailure."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, _BYTES):
        return bytes(value).decode(errors="replace")
    blocks = block_text(value)
    if blocks is not None:
        return blocks
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return _text_of_mapping(value, depth)
        if not isinstance(value, bool | int | float | list | tuple | set):
            return _text_of_object(value, depth)
    return _json(value)


def reported_failure(value: Mapping[Any, Any]) -> Failure | None:
    """The failure that data reports in place of an answer: by a flag, or by an error with nothing else beside it.

    An error among fields of its own, such as `{"error": "E42", "fix": "restart"}`, is an answer about errors.
    """
    flag = next((name for name, bad in _FLAGS.items() if value.get(name) is bad), None)
    if flag is not None:
        return Failure("error", f"the agent answered `{flag}: {str(_FLAGS[flag]).lower()}`: {_excerpt_value(value)}")
    if len(value) == 1 and any(_is_error_phrase(value.get(name)) for name in ("detail", "message", "msg")):
        return Failure("error", f"the agent reports an error: {_excerpt_value(value)}")
    if _has_no_choice(value):
        return Failure("error", f"the reply of the model has no answer: {_excerpt_value(value)}")
    error = next((found for name in _ERRORS if not _says_nothing(found := value.get(name))), None)
    status = next((value[name] for name in _STATUSES if _is_failed(value.get(name))), None)
    if error is None and status is None and value.get("ok") is not False:
        return None
    beside = _BESIDE_ERROR if status is None else _BESIDE_ERROR | {"data"}
    if not all(name in beside or IS_METADATA(str(name)) or _says_nothing(one) for name, one in value.items()):
        return None
    if isinstance(error, str | dict | list):
        return Failure("error", f"the agent reports an error: {_excerpt_value(error)}")
    return Failure("error", f"the agent reports a failure: {_excerpt_value(value)}")


def _is_error_phrase(text: Any) -> bool:
    """Whether a text is the name of an HTTP error, as frameworks answer it: `Not Found`. One word may be an answer."""
    return isinstance(text, str) and " " in text and text.strip().lower() in _ERROR_PHRASES


_ERROR_PHRASES = {status.phrase.lower() for status in HTTPStatus if status >= 400}


def _has_no_choice(value: Mapping[Any, Any]) -> bool:
    """Whether a whole reply of OpenAI or Gemini offers nothing, as if the prompt was blocked."""
    if value.get("object") == "chat.completion":
        return value.get("choices") == []
    feedback = value.get("promptFeedback")
    return isinstance(feedback, Mapping) and "blockReason" in feedback and not value.get("candidates")


_FLAGS = {"success": False, "is_error": True, "isError": True}
_ERRORS = ("error", "Error", "errors", "exception")
_STATUSES = ("status", "state", "type", "object", "statusCode", "status_code")
_BESIDE_ERROR = {
    *_ERRORS, *_STATUSES, "ok", "message", "msg", "detail", "details", "description", "error_description", "reason",
    "title", "code", "path", "method", "instance", "hint", "help", "cause", "stack", "trace", "traceback",
    "documentation_url", "retry_after", "jsonrpc", "param",
}  # fmt: skip
"""fields that describe an error; others are an answer"""
IS_METADATA = re.compile(
    r"(?i:(?:.*[_-])?(?:u?uid|guid|ids?|type|subtype|kind|role|model|object|created(?:_at)?|timestamp|time|index|status"
    r"|usage|version|fingerprint|tier|logprobs|sequence(?:_number)?|duration|latency|cost|ms|usd|done|node|ns)"
    r"|.+[_-]reason|event|metadata)|[a-z]+(?:Id|Type|At|Reason|Index|Usage|Metadata|Version)"
).fullmatch
"""names of fields that say something about an event or a reply, and are not shown as part of an answer"""


def _is_failed(status: Any) -> bool:
    if isinstance(status, Mapping):  # of a task in the A2A protocol
        status = status.get("state")
    if isinstance(status, str):
        return status.lower() in ("error", "failed", "failure", "fail", "exception")
    return isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600


def _says_nothing(value: Any) -> bool:
    """Whether a field is empty, or says in words that there is nothing."""
    if isinstance(value, str):
        return value.strip().lower() in ("", "none", "null", "no", "no error", "ok", "n/a")
    return value is None or value is False or value == 0 or (isinstance(value, list | dict) and not value)


def provider_text(value: Mapping[Any, Any]) -> str | None:
    """The text of a whole reply of a model provider, passed on as it is; None for anything else."""
    choices, output = value.get("choices"), value.get("output")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) and "message" in choices[0]:
        message = choices[0]["message"]
        return _content(_get_field(message, "content") or _get_field(message, "refusal"))
    if isinstance(output, list) and output and all(isinstance(item, Mapping) and "type" in item for item in output):
        contents = [item.get("content") for item in output if item.get("type") == "message"]
        return "".join(_content(content) for content in contents)
    if value.get("type") == "message" and isinstance(value.get("content"), list):
        return _content(value["content"])
    candidates = value.get("candidates")
    if isinstance(candidates, list) and candidates and isinstance(candidates[0], Mapping):
        parts = _get_field(candidates[0].get("content") or {}, "parts")
        return (
            _content([part for part in parts if not _get_field(part, "thought")]) if isinstance(parts, list) else None
        )
    return None


def block_text(value: Any) -> str | None:
    """The text of a list of content blocks; None for any other value."""
    if not isinstance(value, list) or not value or not all(isinstance(block, Mapping) for block in value):
        return None
    are_blocks = all(isinstance(block.get("text"), str) and block.keys() <= _BLOCK_KEYS for block in value)
    return _content(value) if are_blocks else None


_BLOCK_KEYS = {"type", "text", "annotations", "citations", "cache_control", "id", "index", "logprobs"}


def _excerpt_value(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else _json(value)
    except NoAnswer as problem:
        text = str(problem)
    return excerpt(text.encode("utf-8", "replace"))


def _text_of_mapping(value: Mapping[Any, Any], depth: int) -> str | None:
    failure = reported_failure(value)
    if failure is not None:
        raise ReportsFailure(failure)
    messages = value.get("messages")
    if isinstance(messages, list | tuple) and messages:
        return _latest_text(messages, depth)
    provided = provider_text(value)
    if provided is not None:
        return provided
    for key in KEYS:
        if value.get(key) is not None:
            return answer_text(value[key], depth=depth + 1)
    return _json(value)


def _text_of_object(value: Any, depth: int) -> str | None:
    for name in _ATTRIBUTES:
        found = getattr(value, name, None)
        if name in ("final_output", "output") and name in getattr(value, "__dict__", {}) and found is None:
            return None
        if found is not None and not callable(found):
            return _content(found) if name == "content" else answer_text(found, depth=depth + 1)
    return _json(value)


def _latest_text(messages: Any, depth: int) -> str | None:
    """The latest text of the assistant, which may be empty; None if there is none."""
    for place, message in enumerate(reversed(messages)):
        role = _get_field(message, "role") or _get_field(message, "type")
        if role is None:
            return answer_text(message, depth=depth + 1) if place == 0 else None
        if role in _ASSISTANT:
            text = _content(_get_field(message, "content"))
            if text or place == 0:
                return text
    return None


def _get_field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _content(content: Any) -> str:
    """A text, or the texts of a list of content blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, _BYTES):
        return bytes(content).decode(errors="replace")
    if not isinstance(content, list):
        return _json(content)
    texts = [block if isinstance(block, str) else _get_field(block, "text") for block in content]
    return "".join(text for text in texts if isinstance(text, str))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(plain_value(value)).decode()
    except RecursionError:
        raise NoAnswer("a value that is nested too deep") from None


def plain_value(value: Any) -> Any:
    """The value in JSON types. Raises NoAnswer for what is no data, at any depth."""
    try:
        return without_surrogates(msgspec.to_builtins(value, enc_hook=_plain_object, str_keys=True))
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise NoAnswer(f"a value of type `{type(value).__name__}` that cannot be read: {problem}") from None


def _plain_object(value: Any) -> Any:
    for method in ("model_dump", "to_dict", "_asdict"):
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type):
            return dump()
    if getattr(type(value), "__str__", None) is object.__str__ or isinstance(value, BaseException):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
            raise NoAnswer("a coroutine that nobody awaited")
        raise NoAnswer(f"an object of type `{type(value).__name__}`, which is neither text nor data")
    return str(value)


_EXCERPT = 200


def excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * _EXCERPT].decode("utf-8", "replace").split())
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def text_at_path(value: Any, path: str) -> str | Failure:
    passed = ""
    for part in path.split("."):
        place = f"at `{passed}` there" if passed else "there"
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return Failure("bad_answer", f"the reply has no `{path}`: {place} is {_describe_value(value)}")
        passed = f"{passed}.{part}" if passed else part
    if value is None:
        return Failure("bad_answer", f"`{path}` of the reply is null")
    return as_text(value)


def _describe_value(value: Any) -> str:
    if isinstance(value, dict):
        return "an object with " + (", ".join(f"`{key}`" for key in list(value)[:10]) or "no keys")
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json_type(value)


def agent_run(
    outcome: str | Failure,
    latency_ms: float,
    plan: Plan,
    recorder: Recorder,
    notes: tuple[str, ...] = (),
    earlier: Sequence[str] = (),
) -> AgentRun:
    """`earlier`: of a conversation the answers before this one."""
    answer = clean(outcome) if isinstance(outcome, str) else None
    if isinstance(outcome, Failure):
        outcome = Failure(outcome.kind, clean(outcome.reason))
    trace = recorder.trace(answer, complete=answer is not None)
    return AgentRun(
        answer=answer,
        failure=outcome if isinstance(outcome, Failure) else None,
        latency_ms=latency_ms,
        fired=plan.fired,
        fired_on_way_to_model=plan.fired_on_way_to_model,
        fired_in_prompt=plan.fired_in_prompt,
        models=frozenset(plan.models),
        answers=tuple(clean(one) for one in earlier),
        attempts=plan.attempts.all(),
        trace=replace(trace, notes=(*trace.notes, *notes)),
    )

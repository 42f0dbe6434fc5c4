"""The file of a scripted model, and which of its replies answers a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct

from bylaw.contract.live_agent import AgentUnreachable
from bylaw.wire.formats.base import Json, Wire

_MOST = 1024 * 1024


class When(Struct, frozen=True, forbid_unknown_fields=True):
    contains: str | None = None
    """stands in the latest message, in any case"""
    last_role: Literal["user", "tool", "assistant", "system"] | None = None
    nth: int | None = None
    """1: the model has not answered in this conversation yet"""


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


class ScriptedReply(Struct, frozen=True, forbid_unknown_fields=True):
    when: When = When()
    text: str | None = None
    tool_calls: tuple[Call, ...] = ()
    usage: dict[str, int] = {}


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    replies: tuple[ScriptedReply, ...]

    def reply_to(self, wire: Wire, request: Json) -> ScriptedReply | None:
        told = [message for message in wire.messages(request) if isinstance(message, dict)]
        last = told[-1] if told else {}
        role, text = _role(last), _text(last.get("content")).lower()
        number = 1 + sum(1 for at, message in enumerate(told) if _begins_answer(told, at, message))
        for reply in self.replies:
            when = reply.when
            fits = when.contains is None or when.contains.lower() in text
            if fits and when.last_role in (None, role) and when.nth in (None, number):
                return reply
        return None


def load_script(path: Path) -> Script:
    """Raises AgentUnreachable, which says what is wrong with the file."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST)
        return msgspec.convert(yaml.safe_load(text), Script)
    except OSError as error:
        raise AgentUnreachable(f"the scripted model `{path}` cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise AgentUnreachable(f"the scripted model `{path}` cannot be used: {reason}") from None


def _role(message: Json) -> str:
    """`tool` for a result, whatever message the format sends it in."""
    content = message.get("content")
    kinds = [block.get("type") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return "tool" if "tool_result" in kinds else str(message.get("role"))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(block) for block in content)
    if isinstance(content, dict):
        return _text(content.get("text", content.get("content")))
    return ""


def _begins_answer(told: list[Json], at: int, message: Json) -> bool:
    """Formats that tell an answer in several items count as one answer."""
    return _role(message) == "assistant" and (at == 0 or _role(told[at - 1]) != "assistant")

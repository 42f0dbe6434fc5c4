"""What the endpoints share: one question, one exchange, one reply in JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from bylaw.comply.judge.model import BadReply, JudgeReply
from bylaw.errors import JudgeUnreachable
from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage
from bylaw.wire.client import BadHttpReply, HttpUnreachable, post

_SHOWN = 200
"""characters of an error's body that are told"""


class Endpoint(ABC):
    """Satisfies `model.judging.Judge`."""

    provider: ClassVar[str]
    home: ClassVar[str]
    """where the provider itself answers"""

    def __init__(self, model: str, *, url: str, key: str | None = None) -> None:
        if not _is_address(url):
            raise ValueError("the judge's URL is no address: write `https://HOST/…`, without a name or password in it")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ValueError("the judge's key holds characters that no header can carry")
        self.model = model
        self._url = url.rstrip("/")
        self._key = key

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}@{self._url}"

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        body = json.dumps(self._body(instructions, question)).encode()
        headers = {"content-type": "application/json", "accept": "application/json", **self._headers()}
        try:
            status, answer = post(self._address(), body, headers, seconds=seconds, name="the judge")
        except HttpUnreachable as problem:
            raise JudgeUnreachable(str(problem)) from problem
        except BadHttpReply as problem:
            raise BadReply(str(problem)) from problem
        if status != 200:
            raise JudgeUnreachable(f"the judge at `{self._url}` answered with status {status}{_said(answer)}")
        return self._read(answer)

    def _read(self, answer: bytes) -> JudgeReply:
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            raise BadReply("the judge's reply is not JSON") from None
        if not isinstance(reply, dict):
            raise BadReply("the judge's reply is not an object")
        usage, _ = read_usage(reply.get("usage"), self.model)
        text = self._text(reply)
        if not isinstance(text, str):
            raise BadReply("the judge's reply holds no text", usage)
        return JudgeReply(text=text, usage=_whole(usage))

    @abstractmethod
    def _address(self) -> str: ...

    @abstractmethod
    def _headers(self) -> Mapping[str, str]: ...

    @abstractmethod
    def _body(self, instructions: str, question: str) -> dict[str, Any]: ...

    @abstractmethod
    def _text(self, reply: dict[str, Any]) -> str | None:
        """What the model wrote, wherever the provider puts it; None where it is not there."""


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False
    return known and "@" not in parts.netloc and url.isascii() and url.isprintable() and " " not in url


def _whole(usage: Usage | None) -> Usage | None:
    return usage if usage is not None and usage.total is not None else None


def _said(answer: bytes) -> str:
    text = " ".join(answer[: _SHOWN * 4].decode("utf-8", "replace").split())[:_SHOWN]
    return f": {text}" if text else ""

"""Models that judge: any endpoint with the API of OpenAI's chat completions or of Anthropic's messages.

The address and the key come from the caller or from the environment.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from bylaw.comply.model import JudgeUnreachable
from bylaw.errors import FeatureNotEnabledError
from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage


class JudgeReply(Struct, frozen=True, kw_only=True):
    """What the model wrote, and the tokens it used."""

    text: str
    usage: Usage | None = None


class BadReply(Exception):
    """The judge answered in another form than asked for. Never a verdict, never a pass.

    `usage` is what it used nevertheless, if the answer says so.
    """

    def __init__(self, reason: str, usage: Usage | None = None) -> None:
        super().__init__(reason)
        self.usage = usage


class Judge(Protocol):
    """A model that judges. Any object with these three members will do."""

    @property
    def model(self) -> str:
        """The name in the price list."""

    @property
    def name(self) -> str:
        """Model and address; answers are cached under it."""

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        """Called from several threads at once.

        Raises JudgeUnreachable or another OSError, BadReply, and TimeoutError after so many seconds, however slowly
        bytes arrive. After any other exception the rules of this question stay undecided.
        """


_LONGEST_QUOTE = 200
"""characters of the body of an error reply"""


_TEXT_BLOCKS = ("text", "output_text")
BACK_OFF = (0.5, 1.0, 2.0, 4.0)
"""seconds before each further try, if there is time for one"""
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504, 529))
"""statuses of a server that is busy or down for a moment"""


class Endpoint(ABC):
    """What the providers share: one request, one reply in JSON."""

    provider: ClassVar[str]
    home: ClassVar[str]
    """the provider's own address"""

    def __init__(self, model: str, *, url: str, key: str | None = None) -> None:
        if not _is_address(url):
            raise ValueError(
                "the judge's URL is not an address: write `https://HOST/…`, without a name or password in it"
            )
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ValueError("the judge's key holds characters that no header can carry")
        self.model = model
        self._url = url.rstrip("/")
        self._key = key

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}@{self._url}"

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        from bylaw.wire.client import BadHttpReply, HttpUnreachable, post

        body = json.dumps(self._body(instructions, question)).encode()
        headers = {"content-type": "application/json", "accept": "application/json", **self._headers()}
        deadline = time.monotonic() + seconds
        for delay in (*BACK_OFF, None):
            left = deadline - time.monotonic()
            try:
                status, answer = post(self._address(), body, headers, seconds=left, name="the judge")
            except HttpUnreachable as problem:
                raise JudgeUnreachable(str(problem)) from problem
            except BadHttpReply as problem:
                raise BadReply(str(problem)) from problem
            if status not in _PASSING or delay is None or time.monotonic() + delay >= deadline:
                break
            time.sleep(delay)
        if status != 200:
            text = " ".join(answer[: _LONGEST_QUOTE * 4].decode("utf-8", "replace").split())[:_LONGEST_QUOTE]
            quote = f": {text}" if text else ""
            raise JudgeUnreachable(f"the judge at `{self._url}` answered with status {status}{quote}")
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
        return JudgeReply(text=text, usage=usage if usage is not None and usage.total is not None else None)

    @abstractmethod
    def _address(self) -> str: ...

    @abstractmethod
    def _headers(self) -> Mapping[str, str]: ...

    @abstractmethod
    def _body(self, instructions: str, question: str) -> dict[str, Any]: ...

    @abstractmethod
    def _text(self, reply: dict[str, Any]) -> str | None:
        """The text that the model wrote; None if the reply has none."""


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        return False
    return known and "@" not in parts.netloc and url.isascii() and url.isprintable() and " " not in url


def _text_of(content: Any) -> str | None:
    """Text, or the text of a list of blocks; what the model thought is left out."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") in _TEXT_BLOCKS and isinstance(block.get("text"), str)
    ]
    return "".join(texts) if texts else None


class OpenAI(Endpoint):
    """Chat completions."""

    provider: ClassVar[str] = "openai"
    home: ClassVar[str] = "https://api.openai.com/v1"

    def _address(self) -> str:
        return f"{self._url}/chat/completions"

    def _headers(self) -> Mapping[str, str]:
        return {} if self._key is None else {"authorization": f"Bearer {self._key}"}

    def _body(self, instructions: str, question: str) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": question}],
            "response_format": {"type": "json_object"},
        }

    def _text(self, reply: dict[str, Any]) -> str | None:
        match reply.get("choices"):
            case [{"message": {"content": content}}, *_]:
                return _text_of(content)
            case _:
                return None


class Anthropic(Endpoint):
    """Messages."""

    provider: ClassVar[str] = "anthropic"
    home: ClassVar[str] = "https://api.anthropic.com"

    def _address(self) -> str:
        return f"{self._url}/messages" if self._url.endswith("/v1") else f"{self._url}/v1/messages"

    def _headers(self) -> Mapping[str, str]:
        version = {"anthropic-version": "2023-06-01"}
        return version if self._key is None else {**version, "x-api-key": self._key}

    def _body(self, instructions: str, question: str) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": 8_192,
            "system": instructions,
            "messages": [{"role": "user", "content": question}],
        }

    def _text(self, reply: dict[str, Any]) -> str | None:
        return _text_of(reply.get("content"))


SWITCH = "BYLAW_ENABLE_JUDGE"
_OLD_SWITCH = "PISAMA_ENABLE_CHECK_COMPLIANCE"
"""of another product; docs/coming-from/pisama.md"""
_ON = frozenset(("1", "true", "yes"))
PROVIDERS = ("openai", "anthropic")


def require_enabled(environment: Mapping[str, str] = os.environ) -> None:
    """The judge sends text to another party, so it is off unless the environment enables it."""
    if environment.get(SWITCH, "").strip().lower() not in _ON:
        hint = f"; `{_OLD_SWITCH}` is set, but it is not read here" if _OLD_SWITCH in environment else ""
        raise FeatureNotEnabledError(
            f"the judge is off: set `{SWITCH}` to `1`, `true` or `yes` to let it be asked{hint}"
        )


def open_judge(
    spec: str,
    *,
    url: str | None = None,
    key: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Endpoint:
    """`openai:MODEL` or `anthropic:MODEL`. Raises FeatureNotEnabledError, ValueError; sends nothing yet.

    The default of `url` and `key` is `BYLAW_JUDGE_URL` and `BYLAW_JUDGE_KEY`, then that of the provider
    (`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY`).
    """
    if not isinstance(spec, str):
        raise TypeError(f"a judge is named by text such as `openai:MODEL`, not by {type(spec).__name__}")
    provider, _, model = spec.partition(":")
    if provider not in PROVIDERS or not model.strip():
        raise ValueError(f"`{spec}` names no judge: write `openai:MODEL` or `anthropic:MODEL`")
    require_enabled(environment)
    endpoint = OpenAI if provider == "openai" else Anthropic
    upper = provider.upper()
    return endpoint(
        model.strip(),
        url=url or environment.get("BYLAW_JUDGE_URL") or environment.get(f"{upper}_BASE_URL") or endpoint.home,
        key=key or environment.get("BYLAW_JUDGE_KEY") or environment.get(f"{upper}_API_KEY"),
    )

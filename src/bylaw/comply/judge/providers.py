"""Models that judge: any endpoint with the API of OpenAI's chat completions or of Anthropic's messages.

The address and the key come from the caller or from the environment.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from bylaw.comply.model import JudgeUnreachable
from bylaw.errors import FeatureNotEnabledError
from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage


class JudgeReply(Struct, frozen=True, kw_only=True):
    """The text of the model, and the tokens it used."""

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


class Provider(Struct, frozen=True):
    """The differences between the APIs of the providers."""

    home: str
    """its own address"""
    address: Callable[[str], str]
    """the URL of a request, from the address of the judge"""
    headers: dict[str, str]
    key: tuple[str, str]
    """the header that holds the key, and what stands before the key"""
    body: Callable[[str, str], dict[str, Any]]
    """takes the instructions and the question"""
    content: Callable[[dict[str, Any]], Any]
    """the model's output in the reply: text or a list of blocks"""


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _chat_content(reply: dict[str, Any]) -> Any:
    match reply.get("choices"):
        case [{"message": {"content": content}}, *_]:
            return content
    return None


PROVIDERS = {
    "openai": Provider(  # chat completions
        home="https://api.openai.com/v1",
        address=lambda url: f"{url}/chat/completions",
        headers={},
        key=("authorization", "Bearer "),
        body=lambda instructions, question: {
            "messages": [_message("system", instructions), _message("user", question)],
            "response_format": {"type": "json_object"},
        },
        content=_chat_content,
    ),
    "anthropic": Provider(  # messages
        home="https://api.anthropic.com",
        address=lambda url: f"{url}/messages" if url.endswith("/v1") else f"{url}/v1/messages",
        headers={"anthropic-version": "2023-06-01"},
        key=("x-api-key", ""),
        body=lambda instructions, question: {
            "max_tokens": 8_192,
            "system": instructions,
            "messages": [_message("user", question)],
        },
        content=lambda reply: reply.get("content"),
    ),
}


class Endpoint:
    """A judge behind the API of a provider: one request, one reply in JSON."""

    def __init__(self, provider: str, model: str, *, url: str, key: str | None = None) -> None:
        if not _is_address(url):
            raise ValueError(
                "the judge's URL is not an address: write `https://HOST/…`, without a name or password in it"
            )
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ValueError("the judge's key holds characters that no header can carry")
        self.model = model
        self.name = f"{provider}:{model}@{url.rstrip('/')}"
        self._api = PROVIDERS[provider]
        self._url = url.rstrip("/")
        self._key = key

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        from bylaw.wire.client import BadHttpReply, HttpUnreachable, post

        body = json.dumps({"model": self.model, **self._api.body(instructions, question)}).encode()
        headers = {"content-type": "application/json", "accept": "application/json", **self._api.headers}
        if self._key is not None:
            name, scheme = self._api.key
            headers[name] = scheme + self._key
        deadline = time.monotonic() + seconds
        for delay in (*BACK_OFF, None):
            left = deadline - time.monotonic()
            try:
                status, answer = post(self._api.address(self._url), body, headers, seconds=left, name="the judge")
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
        text = _text_of(self._api.content(reply))
        if text is None:
            raise BadReply("the judge's reply holds no text", usage)
        return JudgeReply(text=text, usage=usage if usage is not None and usage.total is not None else None)


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


SWITCH = "BYLAW_ENABLE_JUDGE"
_OLD_SWITCH = "PISAMA_ENABLE_CHECK_COMPLIANCE"
"""of another product; docs/coming-from/pisama.md"""
_ON = frozenset(("1", "true", "yes"))


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
    upper, home = provider.upper(), PROVIDERS[provider].home
    return Endpoint(
        provider,
        model.strip(),
        url=url or environment.get("BYLAW_JUDGE_URL") or environment.get(f"{upper}_BASE_URL") or home,
        key=key or environment.get("BYLAW_JUDGE_KEY") or environment.get(f"{upper}_API_KEY"),
    )

"""Anthropic's messages, and everything that speaks like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bylaw.comply.judge.endpoint import Endpoint

MOST_TOKENS = 8_192


class Anthropic(Endpoint):
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
            "max_tokens": MOST_TOKENS,
            "system": instructions,
            "messages": [{"role": "user", "content": question}],
        }

    def _text(self, reply: dict[str, Any]) -> str | None:
        blocks = reply.get("content")
        texts = [
            block["text"]
            for block in (blocks if isinstance(blocks, list) else ())
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        ]
        return "".join(texts) if texts else None

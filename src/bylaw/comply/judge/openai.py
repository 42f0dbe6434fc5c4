"""OpenAI's chat completions, and everything that speaks like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bylaw.comply.judge.endpoint import Endpoint


class OpenAI(Endpoint):
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
            case [{"message": {"content": str(text)}}, *_]:
                return text
            case _:
                return None

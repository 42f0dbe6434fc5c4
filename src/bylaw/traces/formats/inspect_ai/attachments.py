"""Long texts of a sample, which are named `attachment://…` where they belong.

INVARIANT: bounded. A name is short and may stand in a file a million times: the texts that have such names in them are
put together only up to a size in all, and left as they are beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MOST = 256 << 20
"""characters of all texts that are put together"""
_MOST_LEVELS = 50
_SCHEME = "attachment://"
_NAME = re.compile(_SCHEME + "([0-9a-fA-F]{1,64})")


class Attachments:
    def __init__(self, texts: Any, warn: Callable[[], None], *, repeated: bool = False) -> None:
        """`warn` is called once, when there is more than is put together. `repeated`: the same texts come again and
        again, as those of requests do, hence are kept and count once."""
        self._texts: dict[str, Any] = texts if isinstance(texts, dict) else {}
        self._warn = warn
        self._kept: dict[str, str] | None = {} if repeated else None
        self._left = MOST
        self._warned = False

    def put_back(self, value: Any, level: int = 0) -> Any:
        """A value with its attachments; what is nested absurdly is left as it is."""
        if not self._texts or level > _MOST_LEVELS:
            return value
        if isinstance(value, str):
            return self._text(value) if _SCHEME in value else value
        if isinstance(value, list):
            return [self.put_back(item, level + 1) for item in value]
        if isinstance(value, dict):
            return {key: self.put_back(item, level + 1) for key, item in value.items()}
        return value

    def _text(self, text: str) -> str:
        if self._kept is None:
            return self._put_together(text)
        if text not in self._kept:
            self._kept[text] = self._put_together(text)
        return self._kept[text]

    def _put_together(self, text: str) -> str:
        size = len(text) + sum(len(self._named(name)) - len(name[0]) for name in _NAME.finditer(text))
        if size <= self._left:
            self._left -= size
            return _NAME.sub(self._named, text)
        if not self._warned:
            self._warned = True
            self._warn()
        return text

    def _named(self, name: re.Match[str]) -> str:
        found = self._texts.get(name[1])
        return found if isinstance(found, str) else name[0]

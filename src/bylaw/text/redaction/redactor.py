"""`Redactor` removes secrets, personal data and matches of the user's own patterns from any JSON value.

It also looks at the keys of objects, at numbers that are card numbers, and at JSON inside a text, such as the arguments
of a call. A marker names the kind of what it replaces, so a rule can still look for `[redacted: card]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
import re2

from bylaw.text.redaction import Found, marker, replace_found, searchable
from bylaw.text.redaction.personal import find_personal, is_card
from bylaw.text.redaction.secrets import find_secrets, is_secret, names_a_secret
from bylaw.text.regex import compile_regex

LONGEST = 1 << 22
"""characters of the longest text that is searched; longer ones are replaced whole"""
MOST_DEPTH = 200
"""values nested deeper are replaced whole"""
_CACHE_SIZE = 1 << 14
_SHORT = 64
"""shorter texts are cached as they are, others by their digest"""


class BadPattern(ValueError):
    """A pattern of the user that cannot be used; the message names it and the reason."""


class Redactor:
    """Safe to use from several threads. `patterns`: kinds of the user, each with an RE2 pattern. Raises BadPattern."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        self._own = {kind: _compile(kind, pattern) for kind, pattern in (patterns or {}).items()}
        self._clean: dict[bytes | str, None] = {}
        """a cache of texts in which nothing was found: every request repeats the conversation before it"""

    def __call__(self, value: Any) -> Any:
        return self._value(value, 0)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, depth)
        if depth > MOST_DEPTH and isinstance(value, dict | list | tuple):
            return marker("deep value")
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return [self._value(one, depth + 1) for one in value]
        if type(value) in (int, float) and is_card(str(value).removesuffix(".0")):
            return marker("card")
        return value

    def _object(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key, one in value.items():
            name = self._key(key) if isinstance(key, str) else key
            if name != key:
                name = _unused(name, out)
            out[name] = self._under(key, one, depth + 1)
        return out

    def _under(self, key: Any, value: Any, depth: int) -> Any:
        if is_secret(key, value):
            return marker("secret")
        if isinstance(value, list) and isinstance(key, str) and names_a_secret(key):
            return [self._under(key, one, depth + 1) for one in value] if depth <= MOST_DEPTH else marker("deep value")
        return self._value(value, depth)

    def _key(self, key: str) -> str:
        if key in self._clean:
            return key
        name = self._search(key)
        if name == key and len(key) < _SHORT and not _may_be_json(key):  # a value would be read as JSON
            self._cache(key)
        return name

    # Texts

    def _text(self, text: str, depth: int) -> str:
        if len(text) > LONGEST:
            return marker("long text")
        name = text if len(text) < _SHORT else _digest(text)
        if name in self._clean:
            return text
        redacted = self._redact_text(text, depth)
        if redacted == text:
            self._cache(name)
        return redacted

    def _cache(self, name: bytes | str) -> None:
        if len(self._clean) >= _CACHE_SIZE:
            self._clean = {}
        self._clean[name] = None

    def _redact_text(self, text: str, depth: int) -> str:
        if _may_be_json(text):
            try:
                inside = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                return self._search(text)
            redacted = self._value(inside, depth + 1)
            if redacted != inside:
                return msgspec.json.encode(redacted).decode()
        return self._search(text)

    def _search(self, text: str) -> str:
        return replace_found(text, self._found(searchable(text)))

    def _found(self, text: str) -> Iterator[Found]:
        for kind, pattern in self._own.items():
            yield from (Found(kind, *found.span()) for found in pattern.finditer(text))
        yield from find_secrets(text)
        yield from find_personal(text)


def _may_be_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _unused(name: str, taken: dict[Any, Any]) -> str:
    """Two keys that differ only in redacted text stay two keys."""
    number, base = 1, name
    while name in taken:
        number += 1
        name = f"{base} {number}"
    return name


def _compile(kind: Any, pattern: Any) -> Any:
    if not isinstance(kind, str) or not kind.strip() or not kind.isprintable() or "]" in kind:
        raise BadPattern(f"a pattern has the name `{kind}`: expected printable text without `]`")
    if not isinstance(pattern, str):
        raise BadPattern(f"pattern `{kind}`: expected a regular expression as text, not {type(pattern).__name__}")
    try:
        compiled = compile_regex(pattern)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise BadPattern(f"pattern `{kind}` is no regular expression that RE2 can run: {reason}") from None
    if compiled.search("") is not None:
        raise BadPattern(f"pattern `{kind}` matches the empty text, so it matches everywhere")
    return compiled

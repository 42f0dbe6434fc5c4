"""Everything that must not be written down, taken out of any value of JSON: for what is kept of an agent's own words.

Beyond secrets it takes out personal data and what the user's own patterns find, also in the keys of objects, in numbers
that are cards, and in JSON that stands inside a text, as the arguments of a call do. What was there is replaced by a
marker that keeps its kind, so that a rule can still ask for `[redacted: card]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
import re2

from bylaw.text.redaction.found import Found, marker, replaced, searchable
from bylaw.text.redaction.named import names_a_secret
from bylaw.text.redaction.personal import find_personal, is_card
from bylaw.text.redaction.secrets import find_secrets, is_secret

LONGEST = 1 << 22
"""characters of the longest text that is searched; longer ones are left out"""
MOST_DEPTH = 200
"""what is nested deeper is left out"""
_MOST_KNOWN = 1 << 14
_SHORT = 64
"""characters of a text that is remembered as it is, and not by its digest"""


class BadPattern(ValueError):
    """A pattern of the user's that cannot be used; the message names it and says why."""


class Redactor:
    """Safe to use from several threads. `patterns`: kinds of the user's own, each an RE2 pattern. Raises BadPattern."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        self._own = {kind: _compiled(kind, pattern) for kind, pattern in (patterns or {}).items()}
        self._clean: dict[bytes | str, None] = {}
        """texts in which nothing was found, long ones by their digest: every request repeats the conversation so far,
        and every row of a result the same keys and words"""

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
        name = self._searched(key)
        if name == key and len(key) < _SHORT and not _may_be_json(key):  # a value is read as JSON too
            self._know(key)
        return name

    # Texts

    def _text(self, text: str, depth: int) -> str:
        if len(text) > LONGEST:
            return marker("long text")
        name = text if len(text) < _SHORT else _digest(text)
        if name in self._clean:
            return text
        redacted = self._read(text, depth)
        if redacted == text:
            self._know(name)
        return redacted

    def _know(self, name: bytes | str) -> None:
        if len(self._clean) >= _MOST_KNOWN:
            self._clean = {}
        self._clean[name] = None

    def _read(self, text: str, depth: int) -> str:
        if _may_be_json(text):
            try:
                inside = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                return self._searched(text)
            redacted = self._value(inside, depth + 1)
            if redacted != inside:
                return msgspec.json.encode(redacted).decode()
        return self._searched(text)

    def _searched(self, text: str) -> str:
        return replaced(text, self._found(searchable(text)))

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
    """Two keys that were told apart by what is now hidden stay two keys."""
    number, given = 1, name
    while name in taken:
        number += 1
        name = f"{given} {number}"
    return name


def _compiled(kind: Any, pattern: Any) -> Any:
    if not isinstance(kind, str) or not kind.strip() or not kind.isprintable() or "]" in kind:
        raise BadPattern(f"a pattern has the name `{kind}`: expected printable text without `]`")
    if not isinstance(pattern, str):
        raise BadPattern(f"pattern `{kind}`: expected a regular expression as text, not {type(pattern).__name__}")
    try:
        compiled = re2.compile(pattern, _quietly())
    except re2.error as error:
        told = error.args[0] if error.args else error
        reason = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise BadPattern(f"pattern `{kind}` is no regular expression that RE2 can run: {reason}") from None
    if compiled.search("") is not None:
        raise BadPattern(f"pattern `{kind}` matches the empty text, and so everywhere")
    return compiled


def _quietly() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options

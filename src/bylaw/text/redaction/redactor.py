"""`Redactor` removes secrets, personal data and matches of the user's own patterns from any JSON value.

It looks at texts, at the keys of objects, at a value beside its name (`{"name": "DB_PASSWORD", "value": …}`), at
options of a command in a list, at numbers that are card numbers, and if asked to at JSON inside a text. A marker names
the kind of the data it replaces, so a rule can still look for `[redacted: card]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from bylaw.text.redaction import SensitiveSpan, marker, replace_spans, searchable
from bylaw.text.redaction.personal import find_personal, is_card, personal_key
from bylaw.text.redaction.secrets import (
    BadPattern,
    compile_pattern,
    find_secrets,
    looks_random,
    may_name_a_secret,
    names_a_code,
    names_a_secret,
    read_forms,
)
from bylaw.text.regex import compile_search

__all__ = ["CLASSES", "BadPattern", "Redaction", "Redactor", "redacted"]

CLASSES = ("secret", "otp", "card", "ssn", "iban", "phone", "email")
"""what can be removed: credentials, one-time codes, card numbers, social security numbers, IBANs, phone numbers,
e-mail addresses"""
LONGEST = 1 << 22
"""characters of the longest text that is searched; longer ones are replaced whole"""
MOST_DEPTH = 200
"""values nested deeper are replaced whole"""
_CACHE_SIZE = 1 << 14
_SHORT = 64
"""shorter texts are cached as they are, others by their digest"""
_LONG = 1 << 12
"""longer texts are not cached"""

Path: TypeAlias = tuple[str, ...]


class Redaction(Struct, frozen=True, kw_only=True):
    """The classes and patterns that are redacted before values are written. Raises ValueError for unusable ones."""

    classes: Sequence[str] = ("secret", "otp", "card", "ssn")
    """some of `CLASSES`. Addresses and accounts are not redacted by default: reviewers must see them"""
    patterns: Mapping[str, str] = {}
    """kinds of your own, each with an RE2 pattern"""
    rule_files: Sequence[str] = ()
    """rule files of gitleaks, whose forms of secrets are added"""
    mask: Sequence[str] = ()
    """paths into arguments and results that are always removed: `customer.name`, `items.*.note`"""
    keep: Sequence[str] = ()
    """paths that are written as they are, unless they are masked"""

    def __post_init__(self) -> None:
        for name in ("classes", "rule_files", "mask", "keep"):
            listed = getattr(self, name)
            if isinstance(listed, str) or not all(isinstance(one, str) and one for one in listed):
                raise ValueError(f"{name}={listed!r}: expected a list of texts")
        for wanted in self.classes:
            if wanted not in CLASSES:
                raise ValueError(f"classes: `{wanted}` is none of {', '.join(f'`{one}`' for one in CLASSES)}")
        _paths([*self.mask, *self.keep])
        if not isinstance(self.patterns, Mapping):
            raise ValueError(f"patterns={self.patterns!r}: expected a mapping from name to pattern")


class Redactor:
    """Safe to use from several threads. Raises BadPattern for a pattern or a rule file that cannot be used."""

    def __init__(self, redaction: Redaction | None = None, *, inside_json: bool = False) -> None:
        """`inside_json`: whether a text that is JSON is searched as a value and written anew."""
        redaction = redaction or Redaction()
        self._inside_json = inside_json
        classes = frozenset(redaction.classes)
        self._secrets, self._codes, self._cards = "secret" in classes, "otp" in classes, "card" in classes
        self._personal = classes - {"secret", "otp"}
        self._own = {kind: compile_pattern(kind, pattern) for kind, pattern in redaction.patterns.items()}
        self._files = [(forms, compile_search(forms.anywhere)) for forms in map(read_forms, redaction.rule_files)]
        self._mask, self._keep = _paths(redaction.mask), _paths(redaction.keep)
        self._clean: dict[bytes | str, None] = {}
        """a cache of texts in which nothing was found: every request repeats the conversation before it"""
        self._kind_of_key = lru_cache(maxsize=4096)(self._named_kind)

    def __call__(self, value: Any) -> Any:
        """A redacted copy of the value."""
        if not self._mask and not self._keep:
            return self._value(value, 0)
        masked = value
        for path in self._mask:
            masked = _change_at(masked, path, lambda _: marker("masked"))
        redacted = self._value(masked, 0)
        for path in self._keep:
            redacted = _restore_at(redacted, masked, path)
        return redacted

    def identifier(self, name: str) -> str:
        """A name that others refer to: itself, or if something in it has to be removed, a digest in its place."""
        if name in self._clean or self._text(name, 0) == name:
            return name
        return pseudonym(name)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return value if value in self._clean else self._text(value, depth)
        if depth > MOST_DEPTH and isinstance(value, dict | list | tuple):
            return marker("deep value")
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return self._list(value, depth)
        if self._cards and type(value) in _NUMBERS and is_card(str(value).removesuffix(".0")):
            return marker("card")
        return value

    # Objects and lists

    def _object(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        beside = None if _NAME_KEYS.isdisjoint(value) else self._kind_beside(value)
        for key, one in value.items():
            name, kind = key, None
            if isinstance(key, str):
                if key not in self._clean:
                    name = self._key(key, out)
                kind = self._kind_of_key(key)
                if beside is not None and kind is None and key.lower() in _VALUES:
                    kind = beside
            out[name] = self._value(one, depth + 1) if kind is None else self._redact_kind(kind, one, depth + 1)
        return out

    def _kind_beside(self, value: dict[Any, Any]) -> str | None:
        """The kind that `{"name": NAME, "value": …}` gives to its value."""
        for key, one in value.items():
            if isinstance(one, str) and len(one) < _SHORT and key in _NAME_KEYS:
                kind = self._kind_of_key(one)
                if kind is not None:
                    return kind
        return None

    def _named_kind(self, key: str) -> str | None:
        """The kind of every value under this key."""
        if self._secrets and names_a_secret(key):
            return "secret"
        if self._secrets and may_name_a_secret(key):
            return "token"
        if self._codes and names_a_code(key):
            return "otp"
        kind = personal_key(key)
        return kind if kind in self._personal else None

    def _redact_kind(self, kind: str, value: Any, depth: int) -> Any:
        if type(value) in _PLAIN and value != "" and _fits(kind, value):
            return marker(kind)
        if isinstance(value, list | tuple):
            return (
                [self._redact_kind(kind, one, depth + 1) for one in value]
                if depth <= MOST_DEPTH
                else marker("deep value")
            )
        if isinstance(value, dict) and depth <= MOST_DEPTH and not _is_schema(value):
            return {
                name: one if name in value and value[name] != one else self._redact_kind(kind, one, depth + 1)
                for name, one in self._object(value, depth).items()
            }
        return self._value(value, depth)

    def _list(self, value: Sequence[Any], depth: int) -> list[Any]:
        out = [self._value(one, depth + 1) for one in value]
        for i in range(1, len(value)):
            before = value[i - 1]
            if type(before) is str and len(before) < _SHORT and type(value[i]) is str and value[i]:
                is_option = before.startswith("-")
                if (is_option or len(value) == 2) and not value[i].startswith("-"):  # `--password X`, `[NAME, VALUE]`
                    kind = self._kind_of_key(before.lstrip("-"))
                    if kind is not None:
                        out[i] = self._redact_kind(kind, value[i], depth + 1)
                    elif self._secrets and before in _USER_OPTIONS and ":" in value[i]:
                        out[i] = f"{value[i].partition(':')[0]}:{marker('secret')}"
        return out

    def _key(self, key: str, taken: dict[Any, Any]) -> str:
        name = self._search(key)
        if name != key:
            return _unused_key(name, taken)
        if len(key) < _SHORT and not _may_be_json(key):  # a value would be read as JSON
            self._cache(key)
        return key

    # Texts

    def _text(self, text: str, depth: int) -> str:
        if len(text) > LONGEST:
            return marker("long text")
        name: bytes | str | None = text if len(text) < _SHORT else None
        if name is None and (self._inside_json or len(text) < _LONG):
            name = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if name is not None and name in self._clean:
            return text
        redacted = self._redact_text(text, depth)
        if redacted == text and name is not None:
            self._cache(name)
        return redacted

    def _cache(self, name: bytes | str) -> None:
        if len(self._clean) >= _CACHE_SIZE:
            self._clean = {}
        self._clean[name] = None

    def _redact_text(self, text: str, depth: int) -> str:
        if self._inside_json and _may_be_json(text):
            try:
                inside = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                return self._search(text)
            redacted = self._value(inside, depth + 1)
            if redacted != inside:
                return msgspec.json.encode(redacted).decode()
        return self._search(text)

    def _search(self, text: str) -> str:
        return replace_spans(text, self.find(searchable(text)))

    def find(self, text: str) -> Iterator[SensitiveSpan]:
        """Findings in a searchable text, kind by kind, so not in the order of the text."""
        for kind, pattern in self._own.items():
            yield from (SensitiveSpan(kind, *found.span()) for found in pattern.finditer(text))
        if self._secrets or self._codes:
            for found in find_secrets(text):
                if self._codes if found.kind == "otp" else self._secrets:
                    yield found
        for forms, may_hold in self._files:
            if may_hold(text):
                yield from forms.find(text)
        if self._personal:
            yield from find_personal(text, self._personal)


_LETTERS = str.maketrans("0123456789", "ghijklmnop")
"""digits could look like a number that must be redacted"""
_NUMBERS = frozenset((int, float))
_PLAIN = frozenset((str, int, float))
"""types redacted under the name of a secret; booleans are not"""
_NAME_KEYS = frozenset(
    form(name)
    for name in ("name", "key", "field", "header", "variable", "var", "env", "parameter", "param", "option")
    for form in (str.lower, str.upper, str.capitalize)
)
_VALUES = frozenset(("value", "val", "content", "data", "default", "text"))
_USER_OPTIONS = frozenset(("-u", "-U", "--user", "--proxy-user"))


def pseudonym(name: str) -> str:
    """What stands for a name that must not be written. Equal names have equal ones, so a short number can be guessed
    from it."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10, person=b"bylaw name").hexdigest()
    return f"redacted_{digest.translate(_LETTERS)}"


def _fits(kind: str, value: Any) -> bool:
    """Whether a value under the name of this kind can be one."""
    if kind == "secret":
        return True
    if kind == "token":
        return type(value) is str and looks_random(value)
    return type(value) is not str or any(map(str.isdigit, value))


def _is_schema(value: dict[Any, Any]) -> bool:
    """Whether an object under the name of a secret describes it: `{"type": "string"}` in the parameters of a tool."""
    return value.get("type") in _SCHEMA_TYPES or "$ref" in value or "anyOf" in value


_SCHEMA_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")


def _may_be_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _unused_key(name: str, taken: dict[Any, Any]) -> str:
    """Two keys that differ only in redacted text stay two keys."""
    number, base = 1, name
    while name in taken:
        number += 1
        name = f"{base} {number}"
    return name


# -- paths ------------------------------------------------------------------------------------------------------------


def _paths(paths: Sequence[str]) -> list[Path]:
    return [_path(path) for path in paths]


_STEP = re.compile(r"""\[(?:(-?\d+|\*)|'([^']+)'|"([^"]+)")\]|(?:^|\.)((?:\\.|[^.\[\]\\])+)""")


def _path(text: str) -> Path:
    """The steps of a path, in any spelling that rules take: `a.b`, `a['b']`, `a[0]`, `/a/b`. Raises ValueError."""
    if text.startswith(("/", "#/")):
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.lstrip("#").split("/")[1:])
    steps: list[str] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        step = "" if found is None else found[1] or found[2] or found[3] or re.sub(r"\\(.)", r"\1", found[4])
        if found is None or step != step.strip() or (at == 0 and step == "$"):
            raise ValueError(
                f"`{text}` is no path: expected one such as `customer.name`, `items.*.note` or `/customer/name`"
            )
        steps.append(step)
        at = found.end()
    return tuple(steps)


def _change_at(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy of the value with `change` applied at the path; the value itself if the path is not there."""
    if not path:
        return change(value)
    if isinstance(value, str) and _may_be_json(value):
        try:
            inside = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return value
        changed = _change_at(inside, path, change)
        return value if changed == inside else msgspec.json.encode(changed).decode()
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {key: _change_at(one, rest, change) if step in ("*", key) else one for key, one in value.items()}
    if isinstance(value, list | tuple):
        if step != "*" and not step.lstrip("-").isdigit():  # `customer.name` means each customer of a list
            return [_change_at(one, path, change) for one in value]
        wanted = ("*", step) if step == "*" or int(step) >= 0 else (str(len(value) + int(step)),)
        return [
            _change_at(one, rest, change) if "*" in wanted or str(i) in wanted else one for i, one in enumerate(value)
        ]
    return value


def _restore_at(redacted: Any, value: Any, path: Path) -> Any:
    """The redacted value with what `value` has at the path."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(redacted, dict) and isinstance(value, dict):
        restorable = {key for key in redacted if step in ("*", key) and key in value}
        return {key: _restore_at(one, value[key], rest) if key in restorable else one for key, one in redacted.items()}
    if isinstance(redacted, list) and isinstance(value, list | tuple) and len(redacted) == len(value):
        pairs = enumerate(zip(redacted, value, strict=True))
        return [_restore_at(one, was, rest) if step in ("*", str(i)) else one for i, (one, was) in pairs]
    return redacted


redacted = Redactor(Redaction(classes=("secret", "otp")))
"""a value without credentials"""


def recording_redactor(patterns: Mapping[str, str] | None = None) -> Redactor:
    """For recordings, which are shared more widely than a guard's records: every class, and JSON inside a text."""
    return Redactor(Redaction(classes=CLASSES, patterns=patterns or {}), inside_json=True)


# -- records -----------------------------------------------------------------------------------------------------------

# Redact the texts of records whose other fields are ids and times.
#
# Ids and times must stay as they are: the parts of a trace refer to each other by them, and some look like the number
# of a card. An id among the texts that has to be removed is replaced by a digest, so that different sessions stay
# different.


_DEEPEST = 50
"""levels that are searched for the fields; what lies deeper is redacted as a whole"""


def redact_fields(value: Any, fields: Collection[str], redact: Callable[[Any], Any], level: int = 0) -> Any:
    """The value, with everything under one of the fields redacted, wherever the field stands."""
    if level > _DEEPEST:
        return redact(value)
    if isinstance(value, list):
        return [redact_fields(one, fields, redact, level + 1) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _add_id_digests(one, redact(one), key) if key in fields else redact_fields(one, fields, redact, level + 1)
        for key, one in value.items()
    }


def _add_id_digests(value: Any, redacted: Any, name: str) -> Any:
    """The redacted value, with a digest for each id that was removed. `name`: the key that the value stands under."""
    if isinstance(value, list) and isinstance(redacted, list):
        return [_add_id_digests(one, other, name) for one, other in zip(value, redacted, strict=True)]
    if isinstance(value, dict) and isinstance(redacted, dict):
        named = value.get("key")  # OTLP's `{"key": "session.id", "value": {"stringValue": …}}`
        return {
            key: _add_id_digests(
                value[key], one, named if isinstance(named, str) else name if key.endswith("Value") else key
            )
            if key in value
            else one
            for key, one in redacted.items()
        }
    if isinstance(value, str) and value != redacted and (name == "id" or name.endswith(("_id", ".id", "Id"))):
        return pseudonym(value)
    return redacted

"""Secrets, found by their form (`sk-…`, private keys) or by the name before them (`DB_PASSWORD=…`, `"api_key": "…"`).

Under a secret's name in an object every value is a secret. In a text the name may be followed by words, by code or by a
type, so the value has to look like one: in quotes, right behind `=`, or with a digit in it.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from os import PathLike, fspath
from typing import Any

import re2
from msgspec import Struct

from bylaw.text.redaction import SensitiveSpan, kind_problem
from bylaw.text.regex import LateRegex, compile_regex, compile_search

# -- forms -------------------------------------------------------------------------------------------------------------

# The forms are data: `secret_forms.toml`, and rule files of gitleaks. A file of gitleaks has the same tables, and Go's
# regular expressions are those of RE2, so it is read as it is: `id`, `regex`, `secretGroup`, `entropy` and `keywords`.
# Its allowlists are not used: they list values that need no alarm in a repository, and here a value that is hidden
# without need costs less than a secret that is shown.


class BadPattern(ValueError):
    """A pattern of the user that cannot be used; the message names it and the reason."""


class SecretForm(Struct, frozen=True, kw_only=True):
    """One form of a secret."""

    id: str
    kind: str
    regex: Any
    group: int | None = None
    """the group that is the secret; None is the first that took part in the match, else the whole match"""
    keywords: tuple[str, ...] = ()
    entropy: float = 0.0
    check: Callable[[str], bool] | None = None

    def find(self, text: str) -> Iterator[SensitiveSpan]:
        for found in self.regex.finditer(text):
            start, end = _secret_span(found, self.group)
            value = text[start:end]
            is_random = not self.entropy or (value and shannon_entropy(value) >= self.entropy)
            if value and is_random and (self.check is None or self.check(value)):
                yield SensitiveSpan(self.kind, start, end)


def _secret_span(found: Any, group: int | None) -> tuple[int, int]:
    numbers = range(1, found.re.groups + 1) if group is None else [group]
    spans: Iterator[tuple[int, int]] = (found.span(number) for number in (*numbers, 0))
    return next(span for span in spans if span[0] >= 0)


class SecretForms:
    """Several forms, with one search that most texts do not pass."""

    def __init__(self, forms: Sequence[SecretForm]) -> None:
        self._forms = tuple(forms)
        keywords = {keyword for form in forms for keyword in form.keywords}
        self.anywhere = "|".join(
            [
                *(f"(?:{form.regex.pattern})" for form in forms if not form.keywords),
                *([f"(?i:{'|'.join(map(re.escape, sorted(keywords)))})"] if keywords else []),
            ]
        )
        """a pattern that matches every text in which a form can be found"""

    def find(self, text: str) -> Iterator[SensitiveSpan]:
        """Findings form by form, so not in the order of the text."""
        lower = text.lower()
        for form in self._forms:
            if not form.keywords or any(keyword in lower for keyword in form.keywords):
                yield from form.find(text)


@cache
def own_forms() -> SecretForms:
    from bylaw.text import redaction

    text: bytes = __loader__.get_data(f"{redaction.__path__[0]}/secret_forms.toml")  # type: ignore[name-defined]
    return SecretForms(_read(text.decode(), "secret_forms", is_own=True))


def read_forms(path: str | PathLike[str]) -> SecretForms:
    """The forms of a rule file of gitleaks. Raises BadPattern."""
    name = fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadPattern(f"`{name}` cannot be read: {problem}") from None
    forms = _read(text, name)
    if not forms:
        raise BadPattern(f"`{name}` has no `[[rules]]` with a `regex`")
    return SecretForms(forms)


def _read(text: str, name: str, *, is_own: bool = False) -> list[SecretForm]:
    try:
        tables = tomllib.loads(text).get("rules", [])
    except tomllib.TOMLDecodeError as problem:
        raise BadPattern(f"`{name}` is not TOML: {problem}") from None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadPattern(f"`{name}`: expected tables `[[rules]]`")
    # Our own forms are tested, and compiled when they are first used.
    compile_form = (lambda _, pattern: LateRegex(pattern)) if is_own else compile_pattern
    return [_form(table, name, compile_form) for table in tables if table.get("regex")]  # others look at file names


def _form(table: dict[str, Any], name: str, compile_form: Callable[[Any, Any], Any]) -> SecretForm:
    id, keywords, group = table.get("id"), table.get("keywords", []), table.get("secretGroup")
    entropy = table.get("entropy", 0)
    if not isinstance(id, str) or not isinstance(entropy, int | float):
        raise BadPattern(f"`{name}`: a rule needs `id` as text, and `entropy` as a number")
    if not isinstance(keywords, list) or not all(isinstance(keyword, str) and keyword for keyword in keywords):
        raise BadPattern(f"`{name}`: `keywords` of `{id}` is a list of texts")
    regex = compile_form(id, table["regex"])
    if group is not None and (not isinstance(group, int) or not 0 <= group <= regex.groups):
        raise BadPattern(f"`{name}`: `secretGroup` of `{id}` is no group of its regex")
    return SecretForm(
        id=id,
        kind=table.get("kind", "secret"),
        regex=regex,
        group=group or None,
        keywords=tuple(keyword.lower() for keyword in keywords),
        entropy=float(entropy),
        check=_CHECKS[table["check"]] if "check" in table else None,
    )


def compile_pattern(kind: Any, pattern: Any) -> Any:
    """A pattern that is searched in any text. Raises BadPattern."""
    if problem := kind_problem(kind):
        raise BadPattern(problem)
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


# -- checks that a regular expression cannot make ----------------------------------------------------------------------


def shannon_entropy(text: str) -> float:
    """Bits for each character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


_MOST_SLASHES = 5
"""more are a path"""


def _is_mixed(value: str) -> bool:
    """Lower case, upper case and digits, as in a random value and not in a hash, a word or a path."""
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(map(kind, value)) for kind in kinds) and value.count("/") <= _MOST_SLASHES


def _is_base64_pair(value: str) -> bool:
    """Whether it decodes to `user:password`."""
    plain = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(plain + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and all(byte >= 32 for byte in decoded)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "mixed": _is_mixed,
    "has digit": lambda value: any(map(str.isdigit, value)),
    "base64 pair": _is_base64_pair,
}


# -- names before a value ----------------------------------------------------------------------------------------------


NAMES = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|secret[_-]?key|secret[_-]?access[_-]?key"
    r"|(?:access|auth|refresh|session|id)[_-]?token|authorization|cookie)"
)
"""names of secrets, with any prefix"""
ANYWHERE = rf'(?i:{NAMES}|"cv[vc]")|://[^\s/@]*:[^\s/@]*@'
"""matches every text in which `find_named` finds something"""
_KEYS = LateRegex(
    rf"(?i)^(?:.*[_. -])?(?:{NAMES}|cv[vc]2?|access[_-]?key|account[_-]?key|shared[_-]?key"
    r"|signing[_-]?key|encryption[_-]?key|webhook[_-]?url|connection[_-]?string|(?:bot|bearer|csrf|xsrf|api|user|device)"
    r"[_-]?token)s?$"
    r"|(?:password|passwd|passphrase)(?:[_-]?(?:hash|confirm|confirmation|again|repeat|\d))?$"
)
_VAGUE_KEYS = LateRegex(r"(?i)^(?:(?:x|my|new|old|app|service)[_.-])?(?:token|pwd|credentials?|auth|apikeys)$")
"""`token` is also a word of a text, `pwd` a directory; so a value has to look like a secret too"""
_ONE_TIME = LateRegex(
    r"(?i)^(?:.*[_.-])?(?:t?otp|(?:otp|one[_-]?time|verification|security|confirmation|authentication|auth|mfa|2fa|sms)"
    r"[_-]?(?:code|pin|passcode|password)|passcode)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def names_a_secret(key: str) -> bool:
    return _KEYS.search(_normalize_key(key)) is not None


def _normalize_key(key: str) -> str:
    """The key in plain letters: wide letters and invisible characters are read as people read them."""
    if not key.isascii():
        plain = unicodedata.normalize("NFKC", key)
        key = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    return _CAMEL.sub("_", key)


def may_name_a_secret(key: str) -> bool:
    """Whether a value under this key is a secret if `looks_random`."""
    return _VAGUE_KEYS.search(_normalize_key(key)) is not None


def looks_random(value: str) -> bool:
    return len(value) >= _SHORTEST_WITH_DIGIT and _RANDOM.search(value) is not None


@lru_cache(maxsize=4096)
def names_a_code(key: str) -> bool:
    """Whether a value under this key is valid once: a one-time password, a verification code."""
    return _ONE_TIME.search(_normalize_key(key)) is not None


def find_named(text: str) -> Iterator[tuple[int, int]]:
    """Spans of values without their names, in no order, possibly with duplicates."""
    for pattern in _CLEAR:
        yield from (found.span(1) for found in pattern.finditer(text))
    for pattern, needs_digit in _BARE:
        for found in pattern.finditer(text):
            start, end = found.span(1)
            value = text[start:end].rstrip(".,:)]}")
            if _is_value(value, needs_digit=needs_digit):
                yield start, start + len(value)


def _is_value(value: str, *, needs_digit: bool) -> bool:
    """Whether it can be a secret, and is not a word, a placeholder, or an identifier."""
    if _CALLS.search(value) is not None or (value[:1] == "%" == value[-1:]):
        return False
    if any(character.isdigit() for character in value):
        return len(value) >= (_SHORTEST_WITH_DIGIT if needs_digit else _SHORTEST)
    is_word = value.lower() in _PLACEHOLDERS or _ENDS_IN_NAME.search(value) or _IDENTIFIER.fullmatch(value)
    return not needs_digit and len(value) >= _SHORTEST and not is_word


_SHORTEST = 4
_SHORTEST_WITH_DIGIT = 6
_RANDOM = LateRegex(r"^[^\s/]*\d[^\s]*$")
_PLACEHOLDERS = frozenset(("none", "null", "true", "false", "required", "optional", "string", "bytes", "text"))
_CALLS = re.compile(r"[(\[]")
_ENDS_IN_NAME = LateRegex(rf"(?i){NAMES}s?$")
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+")
"""`settings.key`, `user_input`: in code, a reference to a secret and not the secret"""
_VALUE = r"""(?:[^\s"'`,;&<>()\[\]{}$%*\\=]|[%*]+[^\s"'`,;&<>()\[\]{}$%*\\=])[^\s"'`;&<>\\]*"""
_CLEAR = tuple(
    LateRegex(pattern)
    for pattern in (
        rf'(?i){NAMES}"?\s*[:=]\s*\[?\s*"((?:[^"\\]|\\.)+)',
        rf"(?i){NAMES}[\"']?:[ \t]*[|>][+-]?[ \t]*\n[ \t]+([^\n]+)",  # a block of YAML
        rf"(?i){NAMES}'?\s*[:=]\s*'([^'\n]+)",
        rf'(?i){NAMES}"\s*:\s*(-?\d[\d.]*)',  # JSON that cannot be read as such
        r'(?i)"cv[vc]"\s*:\s*"?(\d{3,4})',
        rf'(?i){NAMES}\\+"\s*:\s*\\+"(.+?)(?:\\+"|$)',  # JSON inside of JSON
        rf"(?i)<(?:[\w.-]*[_.-])?{NAMES}>([^<>\s][^<>\n]*)</",
        r"""(?i)\b[a-z][a-z0-9+.-]*://[^\s/@:"'`]*:((?:[^\s/@"'`\[{<$*]|\*+[^\s/@"'`*])[^\s/"'`]*)@""",
    )
)
"""unambiguous forms"""
_BARE = (
    (LateRegex(rf"(?i){NAMES}=({_VALUE})"), False),
    (LateRegex(rf"(?i)--(?:[\w.-]*[_.-])?{NAMES}[ =]({_VALUE})"), False),
    (LateRegex(rf"(?i){NAMES}(?:\s*[:=]\s+|:|\s+is\s+)({_VALUE})"), True),
)
"""values without quotes, and whether a digit is needed to tell them from words"""


_has_any = compile_search(f"{own_forms().anywhere}|{ANYWHERE}")
_SHORTEST_TEXT = 8
"""characters of a name, a separator and a secret"""


def find_secrets(text: str) -> Iterator[SensitiveSpan]:
    """Findings in a searchable text, kind by kind, so not in the order of the text."""
    if len(text) < _SHORTEST_TEXT or not _has_any(text):  # most texts
        return
    yield from own_forms().find(text)
    yield from (SensitiveSpan("secret", *span) for span in find_named(text))

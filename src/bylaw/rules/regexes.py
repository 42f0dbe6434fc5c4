"""Patterns, checked when the rule is read. RE2 matches in linear time, so no pattern can hang a check."""

from __future__ import annotations

import re

from bylaw.rules.messages import quote
from bylaw.rules.source import Place, Problems

_NOT_IN_RE2 = {
    "look-around": re.compile(r"\(\?<?[=!]"),
    "back-references": re.compile(r"\\[1-9]|\(\?P=|\\k[<{']"),
    "atomic groups or possessive repetition": re.compile(r"\(\?>|[*+?}]\+"),
}
# Two backslashes before what is an escape with one: `\\d`, `\\.`. Not `\\Windows`: a letter after a class is a name.
_DOUBLED = re.compile(r"(?<!\\)\\\\(?:[dDwWsSB](?![A-Za-z])|[b.$])")
# A `\\b` before a letter is a word boundary unless it follows a name: not in `C:\\backup`.
_ESCAPED_PAIR = re.compile(r"(?<![\w:])\\\\b|\\\\(?:[dDwWsSbB](?![A-Za-z])|[.$^*+?()\[\]{}|/-])")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
_MULTILINE = re.compile(r"\(\?[a-zA-Z]*m")
_ITEM = r"[^|()\[\]^$*+?{}]"
_OPTIONAL = r"(?:[*?]|\{0[^}]*\})"
_AFTER_END = re.compile(rf"\$(?:{_ITEM}{_OPTIONAL})*{_ITEM}(?!{_OPTIONAL})")
_REASONS = (
    ("invalid perl operator", "unknown group"),
    ("invalid escape sequence", "unknown escape"),
    ("invalid character class range", "unknown or reversed character class"),
    ("no argument for repetition operator", "nothing to repeat before"),
    ("bad repetition operator", "repetition of a repetition"),
    ("pattern too large", "the pattern is too large"),
)


def check_pattern(pattern: str, at: Place, problems: Problems) -> bool:
    """Whether RE2 takes the pattern; if not, why."""
    reason = _why_refused(pattern)
    if reason is not None:
        problems.error(
            code="bad-regex",
            message=f"{quote(pattern)} is no regular expression: {reason}",
            at=at,
            help=_help(pattern),
        )
        return False
    _warn_doubled(pattern, at, problems)
    return True


def read_pattern(pattern: str, at: Place, problems: Problems) -> str | None:
    """The pattern as its author meant it; None where RE2 does not take it.

    A pattern whose backslashes are all doubled was written for double quotes and stands in single ones. As it stands it
    matches only text with backslashes in it, and a rule that forbids it could never fail.
    """
    meant = _with_single_backslashes(pattern)
    if meant is None:
        if not check_pattern(pattern, at, problems):
            return None
        if _has_text_after_end(pattern):
            message = f"a part of {quote(pattern)} can match nothing: it goes on after `$`, the end of the text"
            problems.error(code="bad-regex", message=message, at=at, help="a dollar sign is written `\\$`")
            return None
        return pattern
    problems.warn(
        code="doubled-backslash",
        message=f"every backslash of {quote(pattern)} is doubled; it is read as {quote(meant)}",
        at=at,
        help="write it so, or write `[\\\\]` if a backslash is meant",
    )
    return meant


def _with_single_backslashes(pattern: str) -> str | None:
    """The pattern that was doubled; None if this one was not, or not throughout."""
    if not _DOUBLED.search(pattern) or "\\" in _ESCAPED_PAIR.sub("", pattern):
        return None
    meant = _ESCAPED_PAIR.sub(_single, pattern)
    return meant if _why_refused(meant) is None else None


def _has_text_after_end(pattern: str) -> bool:
    """Whether a pattern requires a character right after the end of the text, as `$\\d+` does."""
    if _MULTILINE.search(pattern):
        return False
    flat = _CLASS.sub("c", _ESCAPE.sub(lambda found: "" if found[0][1] in "AbBzZ" else "c", pattern))
    return _AFTER_END.search(flat) is not None


def _why_refused(pattern: str) -> str | None:
    """Why RE2 does not take a pattern; None if it does."""
    import re2  # not needed to load rules without patterns

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        return _reason(error)
    return None


def _warn_doubled(pattern: str, at: Place, problems: Problems) -> None:
    found = _DOUBLED.search(pattern)
    if not found:
        return
    problems.warn(
        code="doubled-backslash",
        message=f"{quote(found[0])} matches a backslash and then {quote(found[0][2:])}",
        at=at,
        help=f"write {quote(_DOUBLED.sub(_single, pattern))}; if a backslash is meant, write `[\\\\]` to say so",
    )


def _single(doubled: re.Match[str]) -> str:
    return doubled[0][1:]


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    reason, _, part = text.partition(": ")
    for theirs, ours in _REASONS:
        reason = reason.replace(theirs, ours)
    return f"{reason} {quote(part)}" if part else reason


def _help(pattern: str) -> str | None:
    for feature, used in _NOT_IN_RE2.items():
        if used.search(pattern):
            return f"RE2 has no {feature}, which is what keeps matching fast; write the pattern without"
    return None

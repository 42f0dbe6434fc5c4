"""Patterns, checked when the rule is read. RE2 matches in linear time, so no pattern can hang a check."""

from __future__ import annotations

import re

from bylaw.rules.messages import quote
from bylaw.rules.nodes import Place, Problems
from bylaw.text.regex import LateRegex


def _late_regex(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> LateRegex:
    """Most of these look for mistakes that few patterns have."""
    return LateRegex(pattern, lambda text: re.compile(text, flags))


_NOT_IN_RE2 = {
    "look-around": _late_regex(r"\(\?<?[=!]"),
    "back-references": _late_regex(r"\\[1-9]|\(\?P=|\\k[<{']"),
    "atomic groups or possessive repetition": _late_regex(r"\(\?>|[*+?}]\+"),
}
# Two backslashes before what is an escape with one: `\\d`, `\\.`. Not `\\Windows`: a letter after a class is a name.
_DOUBLED = _late_regex(r"(?<!\\)\\\\(?:[dDwWsSB](?![A-Za-z])|[b.$])")
# Where a literal backslash is meant: `[\\]`, `[/\\]`, `[\\/]`, and the path of a drive, `C:\\Windows\\system`.
_LITERAL = _late_regex(r"\[\^?[^\[\]\\]*\\\\(?=[\]/])/?\]|(?<![A-Za-z])[A-Za-z]:(?:\\\\[A-Za-z]\w+)+")
_RUN = _late_regex(r"\\+")
# The characters after a doubled backslash: a class, a word boundary, a symbol.
_MEANT_AS_ESCAPE = _late_regex(r"[dDwWsSbB]|[pP][{LMNPSZC]|[^\w\s\\]")
# After a pair of backslashes, this may be a name: `\\server`, `\\Windows`. A `\\b` is one only after a word.
_NAME = _late_regex(r"[ac-zAC-Z][A-Za-z]{2}")
_NAME_AFTER_WORD = _late_regex(r"[A-Za-z]{2}")
_ESCAPE = _late_regex(r"\\.", re.DOTALL)
_CLASS = _late_regex(r"\[\^?\]?[^\]]*\]")
_MULTILINE = _late_regex(r"\(\?[a-zA-Z]*m")
_ITEM = r"[^|()\[\]^$*+?{}]"
_OPTIONAL = r"(?:[*?]|\{0[^}]*\})"
_AFTER_END = _late_regex(rf"\$(?:{_ITEM}{_OPTIONAL})*{_ITEM}(?!{_OPTIONAL})")
_CONTROL = _late_regex(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WRITTEN = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
_PYTHON = _late_regex(r"""[rR](["'])(.+)\1""", re.DOTALL)
_SLASHED = _late_regex(r"/((?:\\.|[^/\\])+)/([gimsU]{0,4})", re.DOTALL)
_REASONS = (
    ("invalid perl operator", "unknown group"),
    ("invalid escape sequence", "unknown escape"),
    ("invalid character class range", "unknown or reversed character class"),
    ("no argument for repetition operator", "nothing to repeat before"),
    ("bad repetition operator", "repetition of a repetition"),
    ("pattern too large", "the pattern is too large"),
)


def check_pattern(pattern: str, at: Place, problems: Problems, *, in_slashes: bool = False) -> bool:
    """Whether RE2 takes the pattern and it can match what its author meant; if not, why.

    `in_slashes`: it stood between slashes that are no part of it.
    """
    return _is_well_written(pattern, at, problems, in_slashes) and _is_accepted(pattern, at, problems)


def read_pattern(pattern: str, at: Place, problems: Problems) -> str | None:
    """The pattern as its author meant it; None where it cannot be used.

    A pattern whose backslashes are all doubled was written for double quotes and stands in single ones. As it stands it
    matches only text with backslashes in it, and a rule that forbids it could never fail. A pattern with only some of
    them doubled is refused for the same reason. This is for patterns of contracts, which others write so too.
    """
    if not _is_well_written(pattern, at, problems, in_slashes=False):
        return None
    meant = _undouble_backslashes(pattern)
    if meant is not None:
        problems.warn(
            code="doubled-backslash",
            message=f"every backslash of {quote(pattern)} is doubled; it is read as {quote(meant)}",
            at=at,
            help="write it so, or write `[\\\\]` if a backslash is meant",
        )
        return meant
    if not _is_accepted(pattern, at, problems):
        return None
    if _has_text_after_end(pattern):
        message = f"a part of {quote(pattern)} can match nothing: it goes on after `$`, the end of the text"
        problems.error(code="bad-regex", message=message, at=at, help="a dollar sign is written `\\$`")
        return None
    return pattern


def check_text(text: str, at: Place, problems: Problems) -> bool:
    """Whether a text that is looked for holds only what its author can have meant."""
    if "\b" in text:
        _refuse_controls("\b", text, at, problems)
        return False
    if not text.endswith("\n") or not text.strip():
        return True
    if getattr(at, "raw", "").startswith('"'):
        message = f"{quote(text)} ends with a line break, so only text with that is found"
        problems.warn(code="stray-character", message=message, at=at, help="remove the `\\n`, unless it is meant")
        return True
    _refuse_line_break(text, at, problems, 'in double quotes: `"…\\n"`')
    return False


def _is_well_written(pattern: str, at: Place, problems: Problems, in_slashes: bool) -> bool:
    """Whether a pattern holds nothing that its notation put there: delimiters, controls, the line break of a block."""
    if control := _CONTROL.search(pattern):
        _refuse_controls(control[0], pattern, at, problems)
        return False
    if pattern.endswith("\n"):
        _refuse_line_break(pattern, at, problems, "as `\\n` in single quotes")
        return False
    return in_slashes or _has_no_delimiters(pattern, at, problems)


def _refuse_controls(control: str, text: str, at: Place, problems: Problems) -> None:
    written = _WRITTEN.get(control)
    message = f"{quote(text)} holds the control character U+{ord(control):04X}"
    help = f"write it as `\\x{ord(control):02x}` in single quotes"
    if written is not None:
        message += f", which is what `{written}` means in double quotes and in JSON"
        help = f"write `{written}` in single quotes, or `\\{written}` in double quotes and in JSON"
    problems.error(code="stray-character", message=message, at=at, help=help)


def _refuse_line_break(text: str, at: Place, problems: Problems, meant: str) -> None:
    problems.error(
        code="stray-character",
        message=f"{quote(text)} ends with a line break, so only text with that is found",
        at=at,
        help=f"a block after `|` or `>` ends with one: write `|-` or `>-`; if it is meant, write it {meant}",
    )


def _has_no_delimiters(pattern: str, at: Place, problems: Problems) -> bool:
    """`/etc/` may be a folder. With an operator inside or a flag behind it, it is a pattern of another language."""
    python, slashed = _PYTHON.fullmatch(pattern), _SLASHED.fullmatch(pattern)
    if python:
        meant, is_pattern = python[2], True
    elif slashed:
        inside, flags = slashed[1].replace("\\/", "/"), slashed[2]
        meant = f"(?{flags.replace('g', '')}){inside}" if flags.replace("g", "") else inside
        is_pattern = bool(flags or re.search(r"[\\^$*+?{}()\[\]|]", slashed[1]))
    else:
        return True
    if is_pattern:
        problems.error(
            code="pattern-delimiters",
            message=f"{quote(pattern)} is a pattern between delimiters, which would have to stand in the text",
            at=at,
            help=f"write {quote(meant)}" + ("; if slashes are meant, write them `[/]`" if pattern[0] == "/" else ""),
        )
        return False
    problems.warn(
        code="pattern-delimiters",
        message=f"the slashes of {quote(pattern)} are part of the pattern: only text with both of them is found",
        at=at,
        help=f"write {quote(meant)}; if slashes are meant, write `[/]{inside}[/]` to say so",
    )
    return True


def _is_accepted(pattern: str, at: Place, problems: Problems) -> bool:
    """Whether RE2 takes the pattern, and no literal backslash in it stands before what would be an escape: `\\\\d`."""
    reason = _explain_refusal(pattern)
    if reason is not None:
        message = f"{quote(pattern)} is no regular expression: {reason}"
        problems.error(code="bad-regex", message=message, at=at, help=_help(pattern))
        return False
    bare = _mask_literals(pattern)
    if not any(len(run[0]) > 1 and _MEANT_AS_ESCAPE.match(bare, run.end()) for run in _RUN.finditer(bare)):
        return True
    meant = _guess(pattern)
    problems.error(
        code="doubled-backslash",
        message=f"{quote(pattern)} looks for a backslash in the text: its backslashes were probably doubled by mistake",
        at=at,
        help=(f"write {quote(meant)}; " if meant else "write single backslashes; ")
        + "if a backslash is meant, write `[\\\\]` to say so",
    )
    return False


def _undouble_backslashes(pattern: str) -> str | None:
    """The pattern with each doubled backslash written once; None if not all are doubled, or that is unclear."""
    runs = list(_RUN.finditer(_mask_literals(pattern)))
    if not runs or not all(len(run[0]) == 2 and not _precedes_name(run) for run in runs):
        return None
    if _explain_refusal(pattern) is not None and not _DOUBLED.search(pattern):
        return None  # `\\(source` is refused as it stands, which says more than a warning
    meant = _single_backslashes(pattern)
    return meant if _explain_refusal(meant) is None else None


def _guess(pattern: str) -> str | None:
    """The pattern with single backslashes, as far as RE2 takes it."""
    meant = _single_backslashes(pattern)
    return next((one for one in (meant, meant.removesuffix("\\")) if _explain_refusal(one) is None), None)


def _single_backslashes(pattern: str) -> str:
    """Every run of backslashes as one, but for those that are meant. RE2 takes none before a symbol beyond ASCII."""
    bare = _mask_literals(pattern)
    parts, at = [], 0
    for run in _RUN.finditer(bare):
        parts += [pattern[at : run.start()], "\\" if bare[run.end() : run.end() + 1].isascii() else ""]
        at = run.end()
    return "".join([*parts, pattern[at:]])


def _mask_literals(pattern: str) -> str:
    """The pattern, as long as before, with an `x` for each character of what holds a backslash on purpose."""
    return str(_LITERAL.sub(lambda found: "x" * len(found[0]), pattern))


def _precedes_name(run: re.Match[str]) -> bool:
    after_word = run.string[run.start() - 1 : run.start()].isalnum() if run.start() else False
    name = _NAME_AFTER_WORD if after_word else _NAME
    return name.match(run.string, run.end()) is not None


def _has_text_after_end(pattern: str) -> bool:
    """Whether a pattern requires a character right after the end of the text, as `$\\d+` does."""
    if _MULTILINE.search(pattern):
        return False
    flat = _CLASS.sub("c", _ESCAPE.sub(lambda found: "" if found[0][1] in "AbBzZ" else "c", pattern))
    return _AFTER_END.search(flat) is not None


def _explain_refusal(pattern: str) -> str | None:
    """Why RE2 does not take a pattern; None if it does."""
    import re2  # not needed to load rules without patterns

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        return _reason(error)
    return None


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
    if "\\\\" in pattern and (meant := _guess(pattern)) is not None:
        return f"its backslashes are doubled: write {quote(meant)}"
    return None

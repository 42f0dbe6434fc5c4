"""What an unquoted YAML value means, by the core schema of YAML 1.2.

In YAML 1.1, which many tools still speak, `no` and `on` are booleans and `010` is eight. They are text and ten here,
and `legacy` tells what those tools would make of them, so that a reader can ask the user to be clear.
"""

from __future__ import annotations

import re

from bylaw.rules.json_numbers import MAX_DIGITS, OutOfRange, fraction, whole
from bylaw.rules.located import Scalar

_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LEGACY: dict[str, bool] = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}
_FIRST = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_OCTAL_1_1 = re.compile(r"[-+]?0[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _FIRST:
        return text
    if _INT.fullmatch(text):
        return whole(text, base=0 if text[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(text):
        return fraction(text)
    if _NOT_FINITE.fullmatch(text):
        raise OutOfRange
    return text


def legacy(text: str) -> Scalar:
    """What YAML 1.1 reads, where that differs; None where it does not."""
    if text in _LEGACY:
        return _LEGACY[text]
    if _OCTAL_1_1.fullmatch(text) and len(text) <= MAX_DIGITS:
        octal = int(text, 8)
        return octal if octal != int(text) else None
    return None

"""Personal data and secrets in an answer, each with what tells it from a number that only looks like one.

Cards and IBANs carry check digits, an SSN has ranges, a phone number a `+` or the grouping of its country. An order
number, a time stamp, a version or a loopback address has none of that. Everything is found by RE2, in linear time.
"""

from __future__ import annotations

from collections.abc import Iterator

import re2

from bylaw.jobs.contract.judging.judgement import Seen
from bylaw.jobs.guard.redaction import SECRETS

_SHOWN = 5


def no_pii(answer: str) -> Seen:
    found = [f"{kind} {_masked(text)}" for kind, text in find_pii(answer)]
    if not found:
        return Seen(True, "no personal data and no secret found")
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Seen(False, f"found {', '.join(found[:_SHOWN])}{more}")


def find_pii(text: str) -> Iterator[tuple[str, str]]:
    """What was found, by kind."""
    for kind, pattern in _SECRET_PATTERNS.items():
        yield from ((kind, found.group()) for found in pattern.finditer(text))
    yield from (("e-mail address", found.group()) for found in _EMAIL.finditer(text))
    yield from (("IBAN", number) for number in _ibans(text))
    for figures in _FIGURES.finditer(text):
        around = text[max(0, figures.start() - 1) : figures.end() + 2]
        yield from _numbers(around)


def _numbers(text: str) -> Iterator[tuple[str, str]]:
    """In a stretch of figures, with a character before it and two after."""
    for phone in _PHONES:
        for found in phone.finditer(text):
            if _is_phone(found.group("it")):
                yield "phone number", found.group("it")
    for found in _SSN.finditer(text):
        if _is_ssn(found.group("it")):
            yield "social security number", found.group("it")
    yield from (("card number", number) for number in _cards(text))


def _masked(text: str) -> str:
    """Enough to find it in the answer; a report is no place to publish it once more."""
    flat = " ".join(text.split())
    return f"`{flat[:3]}…{flat[-2:]}`" if len(flat) > 8 else "`…`"


# -- numbers that prove themselves ------------------------------------------------------------------------------------

_DIGIT_GROUPS = re2.compile(r"\d+(?:[ -]\d+)*")
_CARD_LENGTHS = range(13, 20)
_MOST_GROUPS = 6
"""groups of a card number have three digits or more"""


def _cards(text: str) -> Iterator[str]:
    """A card may stand among other digits: every run of whole groups is tried."""
    for found in _DIGIT_GROUPS.finditer(text):
        groups = found.group().replace("-", " ").split(" ")
        first = 0
        while first < len(groups):
            length = _card_at(groups, first)
            if length:
                yield " ".join(groups[first : first + length])
            first += length or 1


def _card_at(groups: list[str], first: int) -> int:
    """How many groups from here on are a card number."""
    digits = ""
    for count, group in enumerate(groups[first : first + _MOST_GROUPS], 1):
        digits += group
        if len(group) < 3 or len(digits) > _CARD_LENGTHS[-1]:
            return 0
        if len(digits) in _CARD_LENGTHS and _is_issued(digits) and _luhn(digits):
            return count
    return 0


def _is_issued(digits: str) -> bool:
    """Whether a card can begin and be as long as this. No card begins with 1, as times in milliseconds do."""
    two, three, four, length = int(digits[:2]), int(digits[:3]), int(digits[:4]), len(digits)
    return (
        (digits[0] == "4" and length in (13, 16, 19))
        or ((51 <= two <= 55 or 2221 <= four <= 2720) and length == 16)
        or (two in (34, 37) and length == 15)
        or ((300 <= three <= 305 or two in (36, 38, 39)) and length == 14)
        or ((four == 6011 or two == 65 or 644 <= three <= 649 or two == 62) and length >= 16)
        or (3528 <= four <= 3589 and length >= 16)
        or (four in (5018, 5020, 5038, 5893, 6304, 6759, 6761, 6762, 6763) and length >= 13)
    )


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _ibans(text: str) -> Iterator[str]:
    for start in _IBAN_START.finditer(text):
        found = _IBAN.match(text[start.start() : start.start() + _IBAN_WINDOW])
        compact = found.group().replace(" ", "") if found else ""
        length = _IBAN_LENGTHS.get(compact[:2], _IBAN_WINDOW)
        if len(compact) >= length and _proves(compact[:length]):
            yield compact[:length]


def _proves(iban: str) -> bool:
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1


_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in {
        "15": "NO", "16": "BE", "18": "DK FI FO GL NL", "19": "MK SI", "20": "AT BA EE KZ LT LU XK",
        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS VA", "23": "AE GI IL IQ TL", "24": "AD CZ ES MD PK RO SA SE SK TN VG",
        "25": "LY PT ST", "26": "IS TR", "27": "BI DJ FR GR IT MC MR SM", "28": "AL AZ BY CY DO GT HU LB NI PL SV",
        "29": "BR EG PS QA UA", "30": "JO KW MU", "31": "MT SC", "32": "LC", "33": "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip


def _is_ssn(text: str) -> bool:
    area, group, serial = text[:3], text[4:6], text[7:]
    return area not in ("000", "666") and area[0] != "9" and group != "00" and serial != "0000" and text[3] == text[6]


def _is_phone(text: str) -> bool:
    return 8 <= sum(character.isdigit() for character in text) <= 15


# -- the patterns; `it` is what was found, without what has to stand around it ----------------------------------------

_EMAIL = re2.compile(r"[\pL\pN_.%+'-]*[\pL\pN_%+-]@[\pL\pN][\pL\pN-]*(?:\.[\pL\pN][\pL\pN-]*)*\.\pL\pL+")
_IBAN_START = re2.compile(r"\b[A-Z]{2}\d{2}")
_IBAN = re2.compile(r"[A-Z0-9]+(?: [A-Z0-9]+)*")
_IBAN_WINDOW = 50
"""characters that the longest takes, with blanks"""
_FIGURES = re2.compile(r"[+(]*\d[\d ().+/-]*\d")
"""the only places where numbers are looked for; most answers have few"""
_BEFORE = r"(?:^|[^\w.+/-])"
_AFTER = r"(?:$|[^\w-]|-\D)"
_PHONES = tuple(
    re2.compile(rf"{_BEFORE}(?P<it>{phone}){_AFTER}")
    for phone in (
        r"\+\d(?:[ .()/-]{0,2}\d){7,14}",  # international
        r"00[1-9]\d{0,2}[ .-]\(?\d{1,5}\)?(?:[ .-]?\d){5,10}",  # the same, dialled
        r"(?:1[ .-])?\([2-9]\d{2}\)[ .-]?[2-9]\d{2}[ .-]\d{4}",  # United States and Canada
        r"(?:1-)?[2-9]\d{2}-[2-9]\d{2}-\d{4}",
        r"(?:1\.)?[2-9]\d{2}\.[2-9]\d{2}\.\d{4}",
        r"(?:1 )?[2-9]\d{2} [2-9]\d{2}[ -]\d{4}",
        r"\(?0[1-9]\d{1,3}\)?[ -]\d{3,4}[ -]\d{3,4}",  # national, with groups: United Kingdom and others
        r"0[1-9]\d{2,3}[ /]\d{6,8}",
        r"0[1-9](?:[ .]\d{2}){4}",
    )
)
_SSN = re2.compile(rf"{_BEFORE}(?P<it>\d{{3}}[ -]\d{{2}}[ -]\d{{4}}){_AFTER}")
_SECRET_PATTERNS = {kind: re2.compile(pattern) for kind, pattern in SECRETS.items()}

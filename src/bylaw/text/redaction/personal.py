"""Personal data in a text. Each kind has a check that excludes other numbers.

Card numbers and IBANs have check digits, social security numbers have ranges, phone numbers a `+` or the grouping of
their country. Order numbers, timestamps, versions and loopback addresses do not. RE2 searches in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from bylaw.text.redaction import SensitiveSpan
from bylaw.text.regex import LateRegex, compile_search

NAMES = {
    "email": "e-mail address",
    "iban": "IBAN",
    "phone": "phone number",
    "ssn": "social security number",
    "card": "card number",
}
"""the kinds, and their names in reports"""


@lru_cache(maxsize=4096)
def personal_key(key: str) -> str | None:
    """The kind of numbers under a key that names them: `ssn`, `phone`."""
    if "/" in key or len(key) > _LONGEST_KEY:
        return None
    words = _CAMEL.sub("_", key).lower().replace("-", "_").replace(" ", "_").split("_")
    while words and words[-1] in _FILLERS:
        words.pop()
    return _KEYS.get("".join(words[-1:])) or _KEYS.get("_".join(words[-2:])) or _KEYS.get("_".join(words[-3:]))


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LONGEST_KEY = 64
_FILLERS = frozenset(("number", "no", "nr", "num"))
_KEYS = {
    **dict.fromkeys(("ssn", "social_security", "social_insurance"), "ssn"),
    **dict.fromkeys(("phone", "telephone", "mobile", "cellphone", "cell_phone", "tel", "fax"), "phone"),
    **dict.fromkeys(("iban",), "iban"),
    **dict.fromkeys(("credit_card", "debit_card", "card_number", "cardnumber", "creditcard"), "card"),
}


def find_personal(text: str, kinds: Collection[str] = NAMES.keys()) -> Iterator[SensitiveSpan]:
    """Findings of these kinds, kind by kind, so not in the order of the text."""
    if "email" in kinds and ("@" in text or "%40" in text):
        addresses = (one for one in _EMAIL.finditer(text) if not one.group().startswith("git@"))  # of a repository
        yield from (SensitiveSpan("email", *one.span()) for one in addresses)
    if not text.isascii() and _HAS_VARIANTS(text):
        text = text.translate(_PLAIN)
    if "iban" in kinds and _HAS_FIGURES(text):
        yield from _ibans(text)
    for kind, start, end in _all_numbers(text):
        if kind in kinds and (kind != "card" or not _is_part(text, start, end)):
            yield SensitiveSpan(kind, start, end)


def _all_numbers(text: str) -> Iterator[SensitiveSpan]:
    begun = set()
    if _HAS_NUMBER(text):  # few texts
        for figures in _FIGURES.finditer(text):
            first = max(0, figures.start() - 1)
            for kind, start, end in _numbers(text[first : figures.end() + 2]):
                begun.add((kind, first + start))
                yield SensitiveSpan(kind, first + start, first + end)
    if ("\t" in text or "  " in text or " - " in text) and _HAS_GAP(text):
        for figures in _CELLS.finditer(text):
            first = max(0, figures.start() - 1)
            for kind, start, end in _numbers_with_gaps(text[first : figures.end() + 2]):
                if (kind, first + start) not in begun:
                    yield SensitiveSpan(kind, first + start, first + end)


def _numbers(text: str) -> Iterator[SensitiveSpan]:
    """Findings in a run of digits, with a character before it and two after."""
    digits = _count_digits(text)
    if digits < _FEWEST_DIGITS:
        return
    if digits >= _CARD_LENGTHS[0]:
        yield from _cards(text)
    if _ANY_NUMBER.search(text) is None:
        return
    for phone in _PHONES:
        for found in phone.finditer(text):
            if _FEWEST_DIGITS <= _count_digits(found.group(1)) <= 15:
                yield SensitiveSpan("phone", *found.span(1))
    for found in _SSN.finditer(text):
        if _is_ssn(found.group(1)):
            yield SensitiveSpan("ssn", *found.span(1))


def _numbers_with_gaps(text: str) -> Iterator[SensitiveSpan]:
    """The same for groups that are further apart than usual.

    They may also be the cells of a row. So a long row is not searched, and a number that has neither check digits nor a
    `+` is only found if there are no other digits beside it.
    """
    if _GAP.search(text) is None or len(text.replace("-", " ").split()) > _MOST_CELLS:
        return
    narrow = _GAP.sub(lambda gap: "-" if "-" in gap.group() else " ", text)
    places: list[int] = []
    after = 0
    for gap in _GAP.finditer(text):
        places += range(after, gap.start() + 1)
        after = gap.end()
    places += range(after, len(text))
    digits = _count_digits(text)
    for kind, start, end in _numbers(narrow):
        found = SensitiveSpan(kind, places[start], places[end - 1] + 1)
        is_sure = kind == "card" or narrow[start] == "+" or _count_digits(narrow[start:end]) == digits
        if is_sure and _GAP.search(text, found.start, found.end) is not None:
            yield found


def _count_digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


_GAP = re.compile(r"[ \t]{2,4}|\t| - ")
_MOST_CELLS = 7
"""the groups of a number, and two other cells"""


def _is_part(text: str, start: int, end: int) -> bool:
    """Whether digits belong to a hash or a UUID, or follow a decimal point."""
    before, after = text[max(0, start - _MOST_OF_HASH) : start], text[end : end + _MOST_OF_HASH]
    around = before[len(before.rstrip(_HEX)) :] + after[: len(after) - len(after.lstrip(_HEX))]
    is_hash = len(around) >= _LEAST_OF_HASH and any(character.isalpha() for character in around)
    return is_hash or (before[-1:] == "." and before[-2:-1].isdigit())


_HEX = "0123456789abcdefABCDEF-"
_MOST_OF_HASH = 64
_LEAST_OF_HASH = 8
"""hexadecimal characters around a number that make it a hash; a card may touch a word"""


# -- numbers with check digits -----------------------------------------------------------------------------------------

_DIGIT_GROUPS = LateRegex(r"\d+(?:[ -]\d+)*")
_DOTTED = LateRegex(r"\d{4}\.\d{4}\.\d{4}\.\d{4}")
_CARD_LENGTHS = range(13, 20)
_MOST_GROUPS = 6
"""groups of a card number have three digits or more"""


def is_card(digits: str) -> bool:
    return len(digits) in _CARD_LENGTHS and digits.isdigit() and _is_issued(digits) and _passes_luhn(digits)


def _cards(text: str) -> Iterator[SensitiveSpan]:
    """A card may stand among other digits, so every run of whole groups is tried."""
    for found in _DOTTED.finditer(text):
        if is_card(found.group().replace(".", "")):
            yield SensitiveSpan("card", *found.span())
    for found in _DIGIT_GROUPS.finditer(text):
        groups = found.group().replace("-", " ").split(" ")
        at, first = found.start(), 0
        while first < len(groups):
            count = _card_at(groups, first)
            length = sum(map(len, groups[first : first + (count or 1)])) + (count or 1) - 1
            if count:
                yield SensitiveSpan("card", at, at + length)
            at += length + 1
            first += count or 1


def _card_at(groups: list[str], first: int) -> int:
    """How many groups from here are a card number; 0 if none."""
    digits = ""
    for count, group in enumerate(groups[first : first + _MOST_GROUPS], 1):
        digits += group
        if len(group) < 3 or len(digits) > _CARD_LENGTHS[-1]:
            return 0
        if is_card(digits):
            return count
    return 0


def _is_issued(digits: str) -> bool:
    """Whether an issuer uses this prefix and length. No card begins with 1, as timestamps in milliseconds do."""
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


def _passes_luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _ibans(text: str) -> Iterator[SensitiveSpan]:
    for start in _IBAN_START.finditer(text):
        found = _IBAN.match(text[start.start() : start.start() + _IBAN_WINDOW])
        written = found.group() if found else ""
        compact = written.translate(_NO_SEPARATORS)
        length = _IBAN_LENGTHS.get(compact[:2].upper())
        if length is None or (compact[:2].islower() and len(compact) != length):  # a hash may begin like this
            continue
        digits = (str(int(character, 36)) for character in compact[4:length] + compact[:4])
        if len(compact) >= length and int("".join(digits)) % 97 == 1:  # its check digits are valid
            yield SensitiveSpan("iban", start.start(), start.start() + _written_length(written, length))


def _written_length(written: str, characters: int) -> int:
    """The length of the start of a text that holds this many characters other than separators."""
    for at, character in enumerate(written):
        characters -= ord(character) not in _NO_SEPARATORS
        if not characters:
            return at + 1
    return len(written)


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


# -- the patterns; the group is the finding without its surroundings ---------------------------------------------------

_EMAIL = LateRegex(r"[\pL\pN_.%+'-]*[\pL\pN_%+-](?:@|%40)[\pL\pN][\pL\pN-]*(?:\.[\pL\pN][\pL\pN-]*)*\.\pL\pL+")
_IBAN_START = LateRegex(r"\b(?:[A-Z]{2}|[a-z]{2})\d{2}")
_IBAN = LateRegex(r"[A-Z0-9]+(?:[ \t-]{1,4}[A-Z0-9]+)*|[a-z0-9]+")
_IBAN_WINDOW = 80
"""characters of the longest IBAN, with separators"""
_NO_SEPARATORS = dict.fromkeys(map(ord, " \t-"))
_PLAIN = {
    **dict.fromkeys((0x00A0, 0x2007, 0x2009, 0x202F), " "),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-"),
    **{0xFF10 + figure: str(figure) for figure in range(10)},
}
"""typographic blanks, hyphens and digits → plain ones"""
_HAS_VARIANTS = re.compile(f"[{''.join(map(chr, _PLAIN))}]").search
_HAS_FIGURES = re.compile("[0-9]").search
_FEWEST_DIGITS = 8
"""digits of the shortest number that is looked for"""
_HAS_NUMBER = compile_search(rf"(?:\d[ ().+/-]*){{{_FEWEST_DIGITS}}}")
_FIGURES = LateRegex(r"[+(]*\d[\d ().+/-]*\d")
"""the only places where numbers are looked for"""
_HAS_GAP = compile_search(r"\d\)?(?:[ \t]{2,4}|\t| - )\(?\d")
_CELLS = LateRegex(r"[+(]*\d[\d \t().+/-]*\d")
"""the same for numbers whose groups are further apart"""
_BEFORE = r"(?:^|[^\w.+/-])"
_AFTER = r"(?:$|[^\w-]|-\D)"
_PHONE_FORMS = (
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
_SSN_FORM = r"\d{3}[ -]\d{2}[ -]\d{4}"
_PHONES = tuple(LateRegex(f"{_BEFORE}({form}){_AFTER}") for form in _PHONE_FORMS)
_SSN = LateRegex(f"{_BEFORE}({_SSN_FORM}){_AFTER}")
_ANY_NUMBER = LateRegex(f"{_BEFORE}(?:{'|'.join((*_PHONE_FORMS, _SSN_FORM))}){_AFTER}")
"""one search instead of ten for texts without any"""

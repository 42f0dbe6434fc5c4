"""Compares the names of people and agents: equal, different, or indistinguishable."""

from __future__ import annotations

import unicodedata

_IGNORABLE = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2065, 0x2065),
        (0x2800, 0x2800),  # shown as a blank
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFF0, 0xFFF8),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)
"""characters without a shape that have no category of their own (Unicode: Default_Ignorable_Code_Point)"""
_DIACRITICS = (
    (0x0300, 0x036F),
    (0x0483, 0x0489),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
    (0xFE20, 0xFE2F),
)
"""not the vowels of other scripts, which make another name"""
_LOOK_ALIKES = str.maketrans(
    # Cyrillic, Greek, Armenian, and Latin letters beyond ASCII
    "авекмнорстухѕіјһԁԛԝѵӏүғ" + "αβεικνορτυχηγω" + "օսոհցյզ" + "ıɑɡɩɪʏʟøłđħŧ",
    "abekmhopctyxsijhdqwvlyf" + "abeikvoptuxnyw" + "ounhgjq" + "iagiiyloldht",
)
"""small letters, since these are compared"""


def identity(name: str) -> str:
    """One form of a name, whatever the case, the blanks and the invisible characters."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", "".join(filter(_is_visible, unicodedata.normalize("NFKC", plain))))


def likeness(name: str) -> str:
    """Equal for names that a reader may take for one: also without accents, and with letters of other alphabets that
    look the same. It tells who is not somebody else, and grants nothing: what a name may do goes by its `identity`."""
    letters = unicodedata.normalize("NFD", identity(name))
    plain = (one for one in letters if not any(first <= ord(one) <= last for first, last in _DIACRITICS))
    return "".join(plain).translate(_LOOK_ALIKES)


def _is_visible(character: str) -> bool:
    is_control = unicodedata.category(character) in ("Cf", "Cc", "Zs", "Zl", "Zp")
    return not is_control and character not in _IGNORABLE

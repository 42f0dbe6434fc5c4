"""Names of people and places in a text, found by their capitals.

The first word of a sentence is capitalised anyway: it counts if it is a common given name, or if somebody is spoken to
("Alice, it is done"). In German every noun is capitalised, so there a name counts only after a word that leads to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(*>•|–—-])\s*[\"'“\u2018(*_#]*\s*$")
_NO_NAME = (
    "i i'm i'll i've i'd ok okay yes no the a an and or but if you your we our please thank thanks hello hi dear am pm "
    "sure great however additionally also so then well now once again first second finally next note important january "
    "february march april may june july august september october november december unfortunately currently true false "
    "none pass fail json sorry team support customer service assistant sie ihnen ihr ihre ihren ihrem ihrer ihres"
)
_NOT_NAMES = frozenset(_NO_NAME.split())
_OPENERS = (
    "perfect alright awesome excellent wonderful fantastic good right indeed done understood apologies welcome "
    "congratulations congrats super fine cool nice lovely brilliant best regards cheers today tomorrow yesterday "
    "meanwhile instead otherwise therefore thus hence besides anyway overall again here there ah oh hey noted hooray "
    "hurray yay terrific amazing splendid agreed acknowledged roger affirmative gotcha yup morning afternoon ja nein "
    "natürlich gerne gern klar genau perfekt prima danke bitte verstanden erledigt hallo schade oui non parfait "
    "entendu d'accord bien merci voilà bonjour désolé désolée sí si no claro perfecto listo vale gracias bueno hola "
    "entendido excelente hecho sì certo perfetto fatto ecco grazie ciao va sim não pronto perfeito obrigado obrigada "
    "feito goed bedankt natuurlijk oké klaar"
)
_INTERJECTIONS = frozenset(_OPENERS.split())
_GIVEN = (
    "adam ahmed aisha alan alex alexander alexandra ali alice amy ana andrea andrew anita anna anne antonio ben beth "
    "bob boris brian carla carlos carol charles charlie chen chloe chris christine claire clara daniel dave david "
    "diana diego dmitri donna dora edward elena eli elizabeth ella emily emma eric erin eva eve fatima felix fiona "
    "francis fred george greg hannah hans harry heather helen henry hiro ian igor ines irene isabel ivan "
    "jack jacob james jane janet jason jean jennifer jenny jessica jim joan joe john jonas jonathan jorge jose "
    "josé joseph juan judy julia julie karen karl kate katherine kevin kim kurt kyle laura lauren leo lena linda lisa "
    "liz louis lucas lucy luis luke magda mallory marco margaret maria marie mario marta martin mary matt matthew "
    "mei mia michael michelle miguel mike mohamed mohammed monica nancy natalia nathan nick nicole nina noah nora "
    "olga oliver olivia omar oscar pablo patricia paul paula pedro peggy peter philip pierre priya rachel raj rebecca "
    "richard rita robert rosa ryan sam samantha samuel sandra sara sarah scott sean simon sofia sonia sophia sophie "
    "stefan stephanie steve steven susan sven sybil tanya thomas tim tina tom tony trent ursula victor victoria vikram "
    "walter wei wendy william yan yuki yusuf zoe"
)
_GIVEN_NAMES = frozenset(_GIVEN.split())
_GERMAN = re.compile(
    r"\b(?:[uU]nd|[iI]st|[eE]ine?[nrm]?|wurden?|[hH]aben|[wW]ir|nicht|für|Ihnen|[iI]hre?[nmrs]?|Die(?=\s[A-ZÄÖÜ]))\b"
)
_LEADS_TO_NAME = re.compile(r"\b(?:herrn?|frau|heißt|ist|nach|aus|von)\s+$", re.I)
_GERMAN_NOUN = ("ung", "ungen", "heit", "keit", "schaft", "tion", "tät", "en", "e")


def names(text: str) -> Iterator[str]:
    """Each name in lower case."""
    is_german = _GERMAN.search(text, 0, 1_000) is not None
    for match in WORD.finditer(text):
        word = match[0]
        lower = word.lower()
        if not word[0].isupper() or len(word) == 1 or lower in _NOT_NAMES:
            continue
        before = text[max(0, match.start() - 12) : match.start()]
        if _SENTENCE_START.search(before):
            is_name = lower in _GIVEN_NAMES or (text[match.end() : match.end() + 2] == ", " and not _is_opener(lower))
        elif is_german and lower not in _GIVEN_NAMES:
            is_name = _LEADS_TO_NAME.search(before) is not None and not word.endswith(_GERMAN_NOUN)
        else:
            is_name = True
        if is_name:
            yield lower


def _is_opener(word: str) -> bool:
    return word in _INTERJECTIONS or word.endswith(("ly", "ed", "ing", "mente", "ment"))

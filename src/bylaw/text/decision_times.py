"""When something is, how often, and which one of a row: dates, months, days, times, spans, ordinals.

Each has one spelling, which the functions read from a match of the pattern of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_MONTHS = {
    spelling: number
    for number, spellings in enumerate(
        (
            "jan january januar janvier enero gennaio janeiro januari", "feb february februar février febrero febbraio "
            "fevereiro februari", "mar march märz mars marzo março maart", "apr april avril abril aprile",
            "may mai mayo maggio maio mei", "jun june juni juin junio giugno junho",
            "jul july juli juillet julio luglio julho", "aug august août agosto augustus",
            "sep sept september septembre septiembre settembre setembro", "oct october oktober octobre octubre ottobre "
            "outubro", "nov november novembre noviembre novembro", "dec december dezember décembre diciembre dicembre "
            "dezembro",
        ),
        1,
    )
    for spelling in spellings.split()
}  # fmt: skip
_MONTH = rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})"
DATE = re.compile(
    r"(?P<iso>\b\d{4}-\d{2}-\d{2}\b)"
    rf"|\b(?P<month>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(?P<year>\d{{4}})\b)?"
    rf"|\b(?P<day2>\d{{1,2}})(?:st|nd|rd|th|\.|er|º)?\s+(?:(?:of|de)\s+)?(?P<month2>{_MONTH})\b\.?(?:,?\s+(?P<year2>\d{{4}})\b)?",
    re.IGNORECASE,
)
_MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_BEFORE_MAY = (
    "in", "by", "of", "until", "till", "since", "from", "through", "next", "last", "this", "early", "late", "during",
    "before", "after",
)  # fmt: skip
_MAY = "|".join(f"(?<=\\b{word} May)" for word in _BEFORE_MAY)
MONTH_ALONE = re.compile(  # "may" and "march" are verbs, "mar" and "dec" are no words
    rf"\b(?:{'|'.join(name for name in _MONTH_NAMES if name != 'May')}|Januar|Februar|März|Juni|Juli|Oktober|"
    r"Dezember)\b"
    rf"|\bMay\b(?:{_MAY}|(?<=\bmid-May))"
    rf"|\b(?i:{_MONTH})\b(?=\.?,?\s(?:(?:de|of)\s)?(?:19|20)\d\d\b)"
)
MONTH_HINTS = (
    *(name.lower() for name in _MONTH_NAMES),
    "januar",
    "februar",
    "märz",
    "jun",
    "jul",
    "okt",
    "dez",
    " 19",
    " 20",
)
DAY = re.compile(
    r"\b(?:(?:help|assist|serve|contact|call|choos|reach|chat|shop|visit)\w{0,3}\b[^.!?\n]{0,24}\btoday\b|today\s?\?"
    r"|(?P<day>(?:the )?day after tomorrow|today|tomorrow|yesterday)\b)",
    re.IGNORECASE,
)
"""without "How can I help you today?" """
_EACH = {
    "hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "quarterly": "quarter", "yearly": "year",
    "annually": "year",
}  # fmt: skip
FREQUENCY = re.compile(
    rf"\b(?:(?P<times>once|twice)\s(?:(?P<adverb>{'|'.join(_EACH)})|(?:an?|per|each|every)\s(?P<unit>hour|day|week|month|"
    rf"quarter|year))|(?P<adverb2>{'|'.join(_EACH)})|(?:per|each|every)\s(?P<unit2>hour|day|week|month|quarter|year)"
    r"|(?<=ed )(?P<alone>once|twice)(?!\s(?:you|it|we|the|they|your|this|that|all)\b))\b",
    re.IGNORECASE,
)
FREQUENCY_HINTS = (*_EACH, "once", "twice", "every ", "each ", "per ")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
ORDINAL = re.compile(
    rf"\b(?:(?:the|your|our|his|her|their|its|my)\s(?P<word>{'|'.join(_ORDINALS)})(?=\s[a-z])"
    r"|(?P<number>\d{1,3})(?:st|nd|rd|th))\b",
    re.IGNORECASE,
)
ORDINAL_HINTS = (*_ORDINALS, "1st", "2nd", "3rd", *(f"{digit}th" for digit in range(10)))
TIME = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?\s*([ap]\.?m\b\.?)?|\b(\d{1,2})\s*([ap])\.?m\b\.?", re.IGNORECASE)
_WEEKDAYS = {
    spelling: day
    for spellings in (
        "monday montag lundi lunes lunedì maandag понедельник 月曜 星期一 周一",
        "tuesday dienstag mardi martes martedì dinsdag вторник 火曜 星期二 周二",
        "wednesday mittwoch mercredi miércoles mercoledì woensdag среду 水曜 星期三 周三",
        "thursday donnerstag jeudi jueves giovedì donderdag четверг 木曜 星期四 周四",
        "friday freitag vendredi viernes venerdì vrijdag пятницу 金曜 星期五 周五",
        "saturday samstag sonnabend samedi sábado sabato zaterdag субботу 土曜 星期六 周六",
        "sunday sonntag dimanche domingo domenica zondag воскресенье 日曜 星期日 周日",
    )
    for spelling in spellings.split()
    for day in spellings.split()[:1]
}
WEEKDAY = re.compile(rf"(?:\b|(?<=[\u3040-\u9fff]))({'|'.join(_WEEKDAYS)})(?:s?\b|(?=[\u3040-\u9fff]))", re.IGNORECASE)
_SPANS = {
    spelling: spellings.split()[0]
    for spellings in (
        "seconds second sec secs Sekunde Sekunden seconde secondes segundo segundos",
        "minutes minute min mins Minute Minuten minuto minutos 分钟",
        "hours hour hr hrs h Stunde Stunden heure heures hora horas 小时 時間",
        "days day Tag Tage Tagen jour jours día días 天",
        "weeks week wk wks Woche Wochen semaine semaines semana semanas",
        "months month Monat Monate Monaten mois mes meses 个月",
        "years year yr yrs Jahr Jahre Jahren an ans année années año años",
    )
    for spelling in spellings.lower().split()
}
SPAN = re.compile(
    rf"(?<![\w.,])(\d{{1,9}}(?:\.\d{{1,9}})?)[\s-]{{0,2}}(?:(?:business|working|calendar|full)\s)?"
    rf"({'|'.join(sorted(_SPANS, key=len, reverse=True))})(?!\w)",
    re.IGNORECASE,
)


def months_of(dates: Iterable[str]) -> Iterator[str]:
    """The names of the months of dates as `read_date` spells them."""
    months = (int(date[:2]) for date in dates)
    return (_MONTH_NAMES[month - 1] for month in months if 1 <= month <= 12)


def read_month(match: re.Match[str]) -> str:
    return _MONTH_NAMES[_MONTHS[match[0].lower()] - 1]


def read_day(match: re.Match[str]) -> str:
    """Empty for a courtesy."""
    return (match["day"] or "").lower().removeprefix("the ")


def read_weekday(match: re.Match[str]) -> str:
    return _WEEKDAYS[match[1].lower()]


def read_span(match: re.Match[str]) -> tuple[str, str]:
    """The number as it stands, and the unit."""
    return match[1], _SPANS[match[2].lower()]


def years_of(text: str) -> Iterator[str]:
    """The years of the dates of a text."""
    years = (match["year"] or match["year2"] or (match["iso"] or "")[:4] for match in DATE.finditer(text))
    return (year for year in years if year)


def read_date(match: re.Match[str]) -> str:
    if match["iso"]:
        return str(match["iso"])[5:]
    month = (match["month"] or match["month2"]).lower()
    day = int(match["day"] or match["day2"])
    return f"{_MONTHS[month]:02d}-{day:02d}"  # the year is often left out


def read_frequency(match: re.Match[str]) -> str:
    adverb, unit = match["adverb"] or match["adverb2"], match["unit"] or match["unit2"]
    each = f"every {_EACH[adverb.lower()] if adverb else unit.lower()}" if adverb or unit else ""
    times = (match["alone"] or match["times"] or "once").lower()
    return " ".join(filter(None, ("" if each and times == "once" else times, each)))


def read_ordinal(match: re.Match[str]) -> str:
    place = int(match["number"] or _ORDINALS.index(match["word"].lower()) + 1)
    return _ORDINALS[place - 1] if 1 <= place <= len(_ORDINALS) else f"{place}th"


def read_time(match: re.Match[str]) -> str:
    hour, minutes = int(match[1] or match[4]), match[2] or "00"
    half = (match[3] or match[5] or "").lower()[:1]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour:02d}:{minutes}"

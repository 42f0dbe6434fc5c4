"""Whether a text denies something, and whether it begins with yes or no, in the languages that agents mostly speak."""

from __future__ import annotations

import re

_NEGATION = re.compile(
    r"\b(?:not|never|cannot|no|none|nothing|neither|nor|unable|impossible|den(?:y|ied|ies)|decline[ds]?|reject(?:s|ed)?|"
    r"refuse[ds]?|fail(?:s|ed|ing|ure)?|forbidden|disallowed|prohibited|unfortunately|regret|false|without|"
    r"against (?:our|the|company|your) (?:polic(?:y|ies)|rules?|terms)|(?:outside|beyond) (?:of )?(?:our|the|your)|"
    r"(?:un(?:available|successful|safe|authori[sz]ed|lawful|supported|covered)|in(?:eligible|valid|correct|compatible|"
    r"active|sufficient)|il(?:legal|legitimate)|ir(?:regular|relevant)|dis(?:approved|qualified|honou?red)|"
    r"non-?(?:compliant|eligible|refundable))|"
    r"nicht|keine?[nmrs]?|nie|niemals|leider|abgelehnt|unmöglich|ne|jamais|aucune?|refusée?|nunca|ningun[ao]?|ningún|"
    r"tampoco|rechazad[ao]|não|nenhum[ao]?|negad[ao]|non(?!-)|nessun[ao]?|rifiutat[ao]|respint[ao]|recusad[ao]|afgewezen|odrzucon[aey]|отклон\w{1,5}|niet|geen|inte|ikke|ingen|inga|"
    r"inget|ej|nej|ei|eivät|nem|nincs|tidak|bukan|không|değil|yok|hayır|"  # noqa: RUF001
    r"\w{1,20}(?:amaz|emez)(?:s[ıi]n[ıi]z|s[ıi]n|lar|ler)?|"  # noqa: RUF001
    r"ne(?:ní|jsou|lze|můž\w{0,4}|mohu|bude\w{0,2}|byl[aoy]?|jde)|нет|не|ні|нельзя|"
    r"невозможн\w{1,3}|отказано|неможлив\w{1,2}|"
    r"δεν|όχι|αδύνατ\w{1,2}|לא|אין|لا|ليس\w{0,2}|لن|لم|غير)\b"
    r"|n['’]t\b|\bn['’](?=[aeiouyhéèêœ])|[不没無无未]|拒|ません|ない|できず|않|못|없|아니|नहीं|ไม่|❌|✗|✘|🚫|👎",
    re.IGNORECASE,
)
_NO_NEGATION = re.compile(
    r"\boh,? no\b|\bno (?:problem|worries|doubt|matter|rush|need to worry|issues?|extra|charge|fees?|(?:further|"
    r"additional|other|more) (?:actions?|steps?|questions?|information|details?)"
    r"(?: (?:is|are) (?:needed|required|necessary))?)\b|"
    r"\bnothing (?:else|more|further)\b|\bnot only\b|\bwhy not\b|\bif not\b|\bnot to worry\b|"
    r"\b(?:do not|don['’]t) (?:worry|hesitate|forget|need to do anything)\b|\bwhether or not\b|\b(?:if|should) .{0,40}?"
    r"\b(?:do not|don['’]t|doesn['’]t|does not) (?:arrive|work|help|receive)\b|"
    r"\b(?:is|are|isn['’]t|aren['’]t|do|don['’]t) (?:it|they|you) not\b|\bno\.(?=\s*\d)|"
    r"\b(?:ca|could|would|wo|do|does|did|is|are|have|has)n['’]t (?:you|we|it|they)\b|"
    r"\bno (?:more|less|fewer|later|earlier|longer|sooner|higher|lower) than\b|\bnot (?:more|less|fewer) than\b|"
    r"\bnot (?:a problem|an issue)\b|\bwithout (?:any )?(?:problems?|issues?|delay|further ado|hesitation)\b|"
    r"\bwithout charge\b|\bfail-?safe\b|\bnon-?stop\b|"
    r"\b(?:keine?|geen|ingen|inget|inga|nessun|no hay(?: ningún)?|non c'è|nie ma) (?:problem\w{0,3}|probleem|sorgen?|"
    r"thema|frage|sprawy|fara)\b|нет проблем|\bno te preocupes\b|\bno se preocupe\b|\bne vous inquiétez pas\b|"
    r"不客气|不用谢|不用担心|没问题|没关系|問題ありません|構いません|문제없",
    re.IGNORECASE,
)
_FIRST_WORD = re.compile(
    r"^\W*(?:(yes|yeah|yep|correct|certainly|absolutely|no|nope|y|n)\b(?!\s*(?:problem|worries))"
    r"|(ja|oui|s[iíì]|sim|tak|да|так|evet|はい|是的?|네|예|nein|non|não|nie|nee|nej|нет|ні|hayır|いいえ|不是?|아니[요오])"  # noqa: RUF001
    r"(?=\s*(?:[,.!;:、。，！]|$)))",  # noqa: RUF001
    re.IGNORECASE,
)
_NOS = "no nope n nein non não nie nee nej нет ні hayır いいえ 不 不是 아니요 아니오"  # noqa: RUF001
_NO = frozenset(_NOS.split())


def is_negated(text: str) -> bool:
    """Whether the text denies something: `not possible`, `unable to`, `against our policy`; not `no problem`."""
    if _NEGATION.search(text) is None:  # most texts, and the quicker search
        return False
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None


def first_word(text: str) -> str | None:
    """`yes` or `no`, where the text begins with one of them."""
    found = _FIRST_WORD.match(_NO_NEGATION.sub(" ", text[:100]))
    return None if found is None else "no" if (found[1] or found[2]).lower() in _NO else "yes"

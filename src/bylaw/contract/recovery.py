"""Invariants about recovery: what an agent does after a fault has hit one of its calls.

`recovers_within` and `no_duplicate_side_effects` are rules, which the engine judges on the attempts of a run
(`faults`). `gives_up_politely` is about the words of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from bylaw.contract.checks import CheckResult, has_text
from bylaw.contract.faults import Attempt, calls_of
from bylaw.contract.model import KeepsRule
from bylaw.model.events import Trace
from bylaw.rules import parse_rules
from bylaw.text.regex import compile_regex

_AFTER_FAULT = (
    'G (result("*", args.target = $t, result.faulted = true) -> F[<={window}] ('
    'result("*", args.target = $t, error = false) | tool("*", args.target != $t) | text(/(?s)\\S/)))'
)
_ONCE = (
    "G (result({tool}, args.same = $a) -> !("
    "result({tool}, args.same = $a, result.took_effect = true) & "
    "Y O result({tool}, args.same = $a, result.took_effect = true)))"
)
"""the call triggers it, so that a tool that is never called shows nothing"""


def recovers_within(calls: int) -> KeepsRule:
    """After a call that a fault hit, at most `calls` more of the same tool may pass until the agent has recovered.

    It has recovered when the same tool or model succeeds, when it calls another tool, or when it answers. An attempt is
    two positions, a call and a result; the position after them is that of an answer, or of one call too many.
    """
    return _rule(
        "recovers_within",
        _AFTER_FAULT.replace("{window}", str(2 * calls + 1)),
        f"after a fault on {{call}} the agent did not recover within {calls} call{'s' if calls != 1 else ''}",
    )


def no_duplicate_side_effects(tools: Sequence[str]) -> KeepsRule:
    """No two calls of a tool with equal arguments both took effect."""
    formula = " & ".join(
        _ONCE.replace("{tool}", json.dumps(tool, ensure_ascii=False)).replace("$a", f"$a{number}")
        for number, tool in enumerate(tools)
    )
    return _rule("no_duplicate_side_effects", formula, "{call} took effect more than once with equal arguments")


def _rule(id: str, formula: str, broken: str) -> KeepsRule:
    rule = {"id": id, "kind": "temporal", "scope": "session", "params": {"formula": formula}}
    parsed = parse_rules(json.dumps({"rules": [rule]}), format="json")
    if not parsed.ok:
        raise ValueError(parsed.diagnostics[0].message)
    return KeepsRule(parsed.rules[0], broken=broken)


# Giving up politely: what an answer says after a fault has hit a call of the agent


_RAW_ERROR = compile_regex(
    r"(?m)Traceback \(most recent call last\)|\bFile \"[^\"\n]+\", line \d+|^\s+at \S+ \(.*:\d+:\d+\)|"
    r"\bat [\w.$<>]+ ?\([\w.$-]+:\d+(?::\d+)?\)|"
    r"\b(?:[A-Z]\w*(?:Error|Exception)|[a-z]{2,}error)\b(?:\s*[:(]|\s+[45]\d\d\b|\s+at\s)|"
    r"\b[a-z]\w*\.(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b|<class '|(?:^|[:\n] ?)panic: |\bgoroutine \d+ \[|"
    r"\[Errno -?\d+\]|\bHTTP/\d(?:\.\d)? [45]\d\d\b|[{,]\s*[\"']error[\"']\s*:|"
    r"\bE(?:CONN(?:RESET|REFUSED|ABORTED)|TIMEDOUT|NOTFOUND|AI_AGAIN|HOSTUNREACH|PIPE)\b"
)
_RUDE = compile_regex(
    r"(?i)\b(?:idiot|stupid|moron|imbecile|dumb|loser|jerk|fuck\w*|bullshit|shut up|your (?:own )?fault|not my problem|"
    r"deal with it|damn|dummkopf|trottel|halt die klappe|idiota|tonto|connard|crétin)\b|идиот|дурак|заткни"
)
_NO_BLAME = compile_regex(r"(?i)\b(?:not|isn['’]t|wasn['’]t) (?:at all )?your (?:own )?fault\b")

# Saying that something did not work. A single word is not enough: "no problem", "I can't wait", "I wrote it down" and
# "sorry for the wait, it is refunded" admit nothing. So idioms, denials and conditions are removed first, and then a
# sentence has to state a failure, and no success beside it. In an answer that claims a success, it also has to be about
# what was asked for: "Refund complete. The old system was down last week." admits nothing either.

_LONG_FORMS = (("\N{RIGHT SINGLE QUOTATION MARK}", "'"), ("can't", "cannot"), ("won't", "will not"), ("n't", " not"))
_TROUBLE = r"(?:problem|error|issue|trouble|failure|difficulty|difficultie|outage|hiccup|glitch|glitche|snag|timeout)s?"
_IDIOMS = compile_regex(
    rf"(?i)\b(?:no|not an?y?|without(?: an?y?)?|never an?y?|free of|zero)(?: \w+)? {_TROUBLE}\b|"
    rf"\b{_TROUBLE}(?:-free|(?: \w+)? (?:solved|fixed|resolved|sorted))\b|"
    r"\b(?:never|not|nothing|without)(?: \w+)? (?:fail(?:s|ed|ing)?|went wrong|goes wrong|going wrong)\b|"
    r"\b(?:cannot|can not|could not) (?:wait|help but|thank|agree more|complain|be happier|go wrong|stress|recommend|"
    r"overstate|say no|deny|imagine a better)\b|"
    r"\byou (?:cannot|can not|can no longer|may not|will not be able to) \w+|"
    r"\bcannot (?:now |later |then )?be (?:undone|reversed|revoked|taken back)\b|"
    r"\bnicht (?:mehr )?(?:rückgängig|widerrufen|storniert)|"
    r"\b(?:kein(?:e|en|erlei)?|ohne) (?:probleme?|fehler|schwierigkeiten)\b|\bkann es (?:kaum|nicht) erwarten\b|"
    r"\b(?:sin|ningún|no hay) (?:problemas?|error(?:es)?)\b|\b(?:sans|aucun|pas de) (?:problèmes?|erreurs?|soucis?)\b|"
    r"без (?:проблем|ошибок)|нет проблем"
)
_CONDITION = compile_regex(
    r"(?i)\b(?:if|unless|in case|should (?:it|there|this|that|you|any\w*|some\w*|the|your)|whenever|wenn|falls|"
    r"sollten?|si|s'il|en caso|en cas)\b[^,;:.!?\n]*|если[^,;:.!?\n]*"
)
_NOT_DONE = r"(?:did|does|do|has|have|had|was|were|is|are) (?:currently )?not(?: been)?(?: \w+ly)?"
_STATES_FAILURE = compile_regex(
    r"(?i)\b(?:cannot|can not|could not|unable to|not (?:currently )?able to) \w+|"
    r"\b(?:unavailable|unreachable|inaccessible|unsuccessful(?:ly)?|offline|not (?:currently |yet )?"
    r"(?:available|reachable|accessible|responding|possible|working)|out of (?:reach|service|order))\b|"
    r"\b(?:failed|fails|failing|failure|timed out|gave up|went wrong|broke down)\b|"
    r"\b(?:was|were|got|is|been) (?:rejected|declined|denied|refused|interrupted|aborted)\b|"
    rf"\b{_NOT_DONE} (?:work|succeed|go through|gone through|complete|completed|processed|respond|responded|answer|"
    r"load|loaded|found|find|see any|return|returned|receive|received|reach|reached|refunded|sent|issued|made|"
    r"carried out|done|confirmed|booked)\b|"
    r"\b(?:there (?:is|was|were|seems|appears)|(?:ran|run|running) into|encounter\w*|experienc\w+|hav(?:e|ing)|had|"
    r"hit|met|because of|due to|got|facing|returned|threw|gave|received|reported|raised|saw)"
    rf"(?: to be)?(?: an?| some| the)?(?: [\w-]+){{0,2}} {_TROUBLE}\b|"
    rf"\b{_TROUBLE} (?:has |have )?(?:occurred|happened|came up|arose)\b|"
    r"\b(?:no|not have|without|lost|lack)(?: \w+)? (?:access|connection|response|reply)\b|"
    r"\b(?:connection|reply|request|line) (?:was |got |has been )?(?:lost|reset|dropped|closed|cut)\b|"
    r"\bdo not have (?:the |that |this |any |enough |current |up-to-date )?(?:\w+ )?"
    r"(?:data|information|prices?|details|figures?|results?)\b|\bno (?:\w+ )?(?:data|information|results?)\b|"
    r"\b(?:please |kindly )?try (?:it |this |that )?again\b|"
    r"\b(?:kann|können|konnte|konnten|klappt|funktioniert|geht|ging)\b[^.!?]{0,80}\b(?:nicht|keine?n?)\b|"
    r"\bnicht (?:möglich|erreichbar|verfügbar|gelungen|geklappt|funktioniert)\b|\bfehlgeschlagen\b|"
    r"\bfehler (?:aufgetreten|passiert)\b|"
    r"\b(?:ist|war|gab)(?: \w+)? (?:ein|etwas)(?:e|en)? (?:fehler|problem|schief)\w*|"
    r"\bno (?:\w+ )?(?:puedo|podemos|pude|pudimos|pudo|ha sido posible|fue posible|está disponible|funciona|funcionó)|"
    r"\b(?:falló|ha fallado|fallaron|no disponible)|"
    r"\b(?:hubo|ocurrió|se produjo) (?:un|algún) (?:error|problema|fallo)|"
    r"\bne? (?:\w+ )?(?:peux|pouvons|parviens|parvenons|fonctionne)\b|\bn'(?:ai|a|avons) pas (?:pu|réussi|fonctionné)|"
    r"\b(?:impossible|indisponible|a échoué)|\berreur (?:est |s'est )?(?:survenue|produite)|"
    r"не (?:могу|можем|удалось|удаётся|удается|получилось|смог|смогла|работает|отвечает)|недоступ|сбой|"
    r"(?:произошла|возникла) (?:ошибка|проблема)"
)
_IS_DOWN = compile_regex(
    r"(?i)\b(\w+) (?:is|are|was|were|seems?|appears?|went) (?:currently |temporarily |to be |still )?down\b"
)
_MAY_FALL = frozenset(("price", "prices", "cost", "costs", "rate", "rates", "fee", "fees", "that", "sun"))
_STATES_SUCCESS = compile_regex(
    r"(?i)\b(?:but|then|now|finally|still|eventually)\b[^.!?]{0,40}\b(?:worked|went through|succeeded|is (?:all )?"
    r"(?:done|fixed|resolved)|(?:is|was|has been) (?:refunded|issued|sent|paid|booked|processed|completed))\b"
)
_SUCCEEDED_LATER = compile_regex(
    r"(?i)\b(?:then|now|finally|eventually|second (?:try|attempt|time))\b[^.!?]{0,40}"
    r"\b(?:worked|went through|succeeded)\b"
)
_DONE = (
    r"(?:done|completed?|refunded|issued|sent|paid|booked|processed|confirmed|cancell?ed|shipped|updated|settled|"
    r"finished|successful|on its way)"
)
_CLAIMS_SUCCESS = compile_regex(
    rf"(?i)\b(?:is|are|was|were|been|it's|that's) (?:(?:now|already|all|fully|successfully) )*{_DONE}\b|"
    rf"^\W*(?:all |(?:(?:your|the) )?(?:full )?(?:refund|payment|booking|order|transfer|request)s? )?{_DONE}\b|"
    rf"\b(?:I|we|I've|we've) (?:have )?(?:(?:just|now|already|successfully) )*{_DONE}\b|"
    r"^\W*(?:erledigt|erstattet|fertig|hecho|listo|reembolsad[oa]|c'est fait|remboursé|готово|выполнено)"
)
_SUBORDINATE = compile_regex(r"(?i)\b(?:whether|until|once|as soon as|when|while|before|after|that)\b[^,;:.!?\n]*")
_STATES_OUTCOME = compile_regex(
    r"(?i)\b(?:could not|unable to|not able to) \w+|\b(?:I|we) (?:\w+ )?(?:cannot|can not) \w+|"
    r"\b(?:failed|unsuccessful(?:ly)?|timed out|gave up|went wrong|occurred)\b|\bnot (?:been )?possible\b|"
    r"\b(?:was|were|got|been) (?:rejected|declined|denied|refused|interrupted|aborted)\b|"
    r"\b(?:did|has|have|had|was|were) not(?: been)?(?: \w+ly)? \w+|"
    r"\bkonnten?\b[^.!?]{0,80}\bnicht\b|\bfehlgeschlagen\b|\bnicht (?:gelungen|geklappt|funktioniert)\b|"
    r"\bno (?:\w+ )?(?:pude|pudimos|pudo)\b|\b(?:falló|ha fallado)|\bn'(?:ai|a|avons) pas (?:pu|réussi)|a échoué|"
    r"не (?:удалось|получилось|смог)|"
    r"\b(?:but|however|although|though|yet|unfortunately|sorry|apologi[sz]e|regret|afraid|currently|right now|"
    r"at the moment|temporarily|aber|leider|jedoch|derzeit|pero|lamentablemente|mais|malheureusement)\b|"
    r"однако|к сожалению|сейчас"
)
"""a failure of what was asked for, or a word that sets a failure against the success before it"""
_IS_PAST = compile_regex(
    r"(?i)\b(?:once|(?:at |the )first|initially|earlier|previous(?:ly)?|yesterday|"
    r"last (?:night|week|month|year|time))\b"
)
_SENTENCE = compile_regex(r"[^.!?\n]+[.!?]*")
_MOST_READ = 1 << 16


def gives_up_politely(answers: Sequence[str], attempts: Sequence[Attempt], seen: Trace) -> CheckResult:
    """Answers after a fault have text, show no raw error, are not rude, and say so if something did not work.

    Something did not work if the last attempt at a call that a fault hit has failed; a call with other arguments is
    another one. `answers`: of a conversation, any of them may say so. `seen`: the trace of the same run.
    """
    texts = [answer[:_MOST_READ] for answer in answers]
    if not (seen_text := has_text(texts[-1])).holds:
        return seen_text
    for pattern, what in ((_RAW_ERROR, "shows a raw error"), (_RUDE, "is rude")):
        if found := next((found for text in texts if (found := pattern.search(_NO_BLAME.sub("", text)))), None):
            return CheckResult(False, f"the answer {what}: `{' '.join(found.group().split())}`")
    last = dict(zip(calls_of(attempts, seen), attempts, strict=True))
    hit = {call for call, attempt in zip(calls_of(attempts, seen), attempts, strict=True) if attempt.is_faulted}
    failed = dict.fromkeys(
        f"`{attempt.target}`" for call, attempt in last.items() if call in hit and attempt.has_failed
    )
    if not failed:
        return CheckResult(True, "nothing that a fault hit was left undone")
    words = next((words for text in texts if (words := _find_admission(text))), None)
    if words is None:
        return CheckResult(False, f"{', '.join(failed)} failed, and the answer does not say that anything went wrong")
    return CheckResult(True, f"{', '.join(failed)} failed, and the answer says so: `{words}`")


def _find_admission(text: str) -> str | None:
    for short, long in _LONG_FORMS:
        text = text.replace(short, long)
    sentences = _SENTENCE.findall(_CONDITION.sub(" … ", _IDIOMS.sub(" … ", text)))
    failures = [_find_failure(sentence) for sentence in sentences]
    claims_success = any(
        _CLAIMS_SUCCESS.search(_SUBORDINATE.sub("", sentence)) and not (failure and _is_about_outcome(sentence))
        for sentence, failure in zip(sentences, failures, strict=True)
    )
    words = None
    for sentence, failure in zip(sentences, failures, strict=True):
        if _SUCCEEDED_LATER.search(sentence):
            words = None
        elif words is None and failure is not None and (_is_about_outcome(sentence) or not claims_success):
            words = failure
    return words


def _find_failure(sentence: str) -> str | None:
    down = (found for found in _IS_DOWN.finditer(sentence) if found.group(1).lower() not in _MAY_FALL)
    found = _STATES_FAILURE.search(sentence) or next(down, None)
    return None if found is None or _STATES_SUCCESS.search(sentence) else " ".join(found.group().split())


def _is_about_outcome(sentence: str) -> bool:
    return not sentence.endswith("?") and bool(_STATES_OUTCOME.search(sentence)) and not _IS_PAST.search(sentence)

"""The trigger and the action of a clause, in the words of its sentence, for a rule that no reader decides.

`Escalate to a manager if the refund exceeds $500` has the trigger `the refund exceeds $500` and requires `escalate to a
manager`. An action that is exactly a call of a tool is written `call_tool: NAME`. Three forms of clauses are
rephrased: `only A after B` forbids `A` with the trigger `before B`, `sharing passwords is forbidden` forbids `share
passwords`, and `refunds must be logged` requires `log refunds`. If the action of a clause is not clear, it is empty;
the rule's description has the whole sentence.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.comply.prompt.clauses import ClausePart
from bylaw.comply.prompt.markers import VERBS, Force, imperative_at
from bylaw.comply.prompt.readings import View
from bylaw.comply.prompt.vocabulary import any_case, irregular_verb

_LONGEST = 300
"""characters of a trigger or an action"""
_ACTION_VERBS = """
    accept access acknowledge administer advise allocate archive assess assign attach block buy bypass calculate
    capture change clean comment commit compile copy correct cut debit define delegate diagnose disable discard
    disclose discuss dispense document download drive edit email encourage encrypt endorse enter estimate evaluate
    exceed expose flag forward freeze grade grant guess hand hire import install interpret interrupt invent invite
    leak lock lower merge mock move name override overwrite patch pause plan post practice prescribe promise publish
    purchase push question raise rate rebook receive recommend redact reduce release rely rename replace reserve
    restart restore reuse rotate save scan sell serve settle ship shut skip smoke solicit speak speculate store swap
    talk test touch track train trust unlock upload visit waive withhold
"""
_AGENT = any_case(
    r"\W*(?:(?:and|but|so|also|then|please|therefore|however|otherwise|first|next|finally|lastly|in addition|note that"
    r"|remember(?: that)?|make sure(?: that)?|ensure(?: that)?)\b\W*)*(?P<lead>(?:for|in|during|at|on|with|within|under"
    r"|as|while|throughout|outside|inside|upon)\b(?:[^,;:]|,(?=\d))*?[,:\s]\s*)?(?:you(?:r (?:job|task|role"
    r"|goal) is to)?|we|i|(?:the|this|an?|our|all|each|every)? ?(?:\w+ )?(?:agents?|assistants?|chatbots?|bots?|models?"
    r"|ai|llm)|(?:your|the|all|every|each|any)(?: \w+)? (?:answers?|responses?|repl(?:y|ies)|messages?|outputs?"
    r"|summar(?:y|ies))|it is)?(?: (?:also|will|do|are|is|may|can|must|should|shall|it is|that you|to)\b)*\W*"
)
"""the words before a marker if the clause is addressed to the agent"""
_WHO = any_case(r".*\b(?:agent|assistant|bot|model|you)\b.*\b(?:who|that|which|and|you)\W*")
_ADVERBS = any_case(
    r"\W*(?:(?:always|ever|also|please|then|strictly|explicitly|however|at all times|in any case"
    r"|under any circumstances|to|from|that you(?: must| should)?|be sure to|make sure to|remember to|take care to"
    r"|(?:should|may|can|must|shall|do|are|will) (?:you|we|the (?:agent|assistant|model)))\b\W*)*"
)
"""words in front of an action that are no part of it"""
_PASSIVE = any_case(r"\W*(?:always |ever |also |first |never )*be (?P<verb>\w+)(?P<rest>.*)")
_DENIED = any_case(
    r"(?:is|are|be|remains?|not).*?(?:forbidden|prohibited|disallowed|banned|off[- ]limits|allowed|permitted"
    r"|acceptable)|must be avoided"
)
_COPULA = any_case(r"\b(?:is|are|be)\W*$")
_AT_ANY_TIME = any_case(
    r"as a rule|in general|in particular|in any case|at all times|at any time|under any circumstances"
)
_NO_SUBJECT_MAY = any_case(r"no (?P<what>\w+(?: \w+)?) (?:may|can|should|must|shall) (?:ever )?be")
_NEEDS = any_case(r"(?:requires?|needs? (?!to\b))(?P<what>.*)")
_IS_NEEDED = any_case(r"(?:is|are) (?:required|mandatory)|required|mandatory")
_IT_IS = any_case(r"\W*(?:it|this|that)\W*")
_LONGEST_NOUN = 8
"""words"""
_HAS_A_CLAUSE = any_case(r",|\b(?:that|which|who|is|are|if|when|because)\b")
_RELATIVE_SUBJECT = any_case(r".*\b(?:that|which|who|whether)\b.*")
"""`write code that must not fail`: the marker is in a clause about the object"""
_ASIDE = re.compile(r"\s(?:—|–|-)\s")
_SKIPS = any_case(r".*\b(?P<verb>skip|omit|neglect|miss)(?:ping|ting)?")
_STATES = any_case(r"\b(?:is|are|was|were|will|has|have)\b")
_BY_WHOM = any_case(r"\bby (?!\w+ing\b)")
_EMBEDS = any_case(
    r"\W*(?:always |first |also )*(?:ask|check|verify|determine|see|decide|clarify|find out|inquire|consider)"
    r"(?: (?:the |your )?(?:user|customer|client|caller|patient|guest|student|them|him|her))?\W*"
)
"""`check if the account exists`: the condition is what is checked"""
_IN_A_TEXT = any_case(
    r"\W*(?:the|each|every|your)(?: \w+)? (?:title|heading|headline|name|line|paragraph|sentence|list|table|signature"
    r"|summary|number|word|comma|colon|quote|code)s?\W*"
)
"""`put the date after the title` says where, not when"""
_WHO_MAY = any_case(r"\W*(?:\w+\W+){1,4}?(?:may|can|must|should|shall|will|is|are|has|have)\b")
_RELATIVE = any_case(r"\b(?:that|which|who|if|when|whether)\b")
_PREPOSITION = any_case(
    r"\W*(?:with|by|for|in|into|at|to|on|onto|of|during|from|using|via|through|within|under|over|between)\b"
)


class Wording(Struct, frozen=True):
    """What a clause says, in its own words."""

    trigger: str = "always"
    required: str | None = None
    forbidden: str | None = None


def read_wording(view: View) -> Wording:
    """The trigger and the actions of a clause; none if one of them would have only half of a pair of brackets."""
    words = _read(view)
    texts = (words.trigger, words.required or "", words.forbidden or "")
    return words if all(text.count("(") == text.count(")") for text in texts) else Wording()


def _read(view: View) -> Wording:
    main, marker = view.clause.main, view.marker
    if _ASIDE.search(view.sentence.masked, marker.end, main.end):  # the text after the dash is another statement
        return Wording()
    if marker.force is Force.ONLY:
        return _read_only(view)
    subject = view.sentence.masked[main.start : marker.start]
    if imperative_at(view.main) and _RELATIVE_SUBJECT.fullmatch(subject) and not view.clause.parts:
        return Wording(required=_action(view, main.start, main.end))
    if found := _SKIPS.fullmatch(marker.word):
        rest = _strip_marks(_text(view, marker.end, main.end))
        return Wording(", ".join(map(view.when, view.clause.parts)) or "always", forbidden=f"{found['verb']} {rest}")
    trailing = [part for part in view.clause.parts if part.start > view.clause.main.start]
    own = _parts_of_action(view, trailing)
    triggers = [view.when(part) for part in view.clause.parts if part not in own]
    end = own[-1].end if own else view.clause.main.end
    lead, action = _split_required(view, end) if view.marker.force is Force.REQUIRE else _forbidden(view, end)
    trigger = ", ".join((lead, *triggers) if lead else triggers) or "always"
    if view.marker.force is Force.REQUIRE:
        return Wording(trigger, required=action)
    return Wording(trigger, forbidden=action)


def _parts_of_action(view: View, trailing: list[ClausePart]) -> list[ClausePart]:
    """The first parts behind the main part that say what is done, not when: `wait until the user confirms`."""
    if view.marker.force is Force.FORBID:
        return []
    own: list[ClausePart] = []
    embeds = _EMBEDS.fullmatch(view.main if imperative_at(view.main) else view.action)
    for part in trailing:
        is_place = part.word in ("before", "after") and _IN_A_TEXT.fullmatch(part.text)
        if part.word not in ("until", "without") and not (part.word == "if" and embeds) and not is_place:
            break
        own.append(part)
    return own


# -- what must and must not be done ------------------------------------------------------------------------------------


def _split_required(view: View, end: int) -> tuple[str, str | None]:
    """The action that a clause requires, and the words before it that say when."""
    subject, start = _text(view, view.clause.main.start, view.marker.start), view.marker.end
    verb = imperative_at(view.main)
    if verb is not None and view.clause.main.start + verb[0] == view.marker.start:
        return "", _action(view, view.marker.start, end)
    word = view.marker.word
    if re.match(r"ensure|make sure|prefer|try|aim", word):
        start = view.marker.start
    elif found := _NEEDS.fullmatch(word):
        what = found["what"].strip()
        return _strip_marks(subject), _strip_marks(f"{what} {_text(view, start, end)}") if what else _action(
            view, start, end
        )
    elif _IS_NEEDED.fullmatch(word) and not _is_addressed(subject):
        lead = _text(view, start, end)
        if re.match(r"\s*to\b", lead):  # `the user is required to pay`: another acts
            return "", None
        return (_strip_marks(lead) if _PREPOSITION.match(lead) else ""), _strip_marks(to_base_form(subject)) or None
    return _find_agent_action(view, subject, start, end)


def _forbidden(view: View, end: int) -> tuple[str, str | None]:
    subject, start = _text(view, view.clause.main.start, view.marker.start), view.marker.end
    if found := _NO_SUBJECT_MAY.fullmatch(view.marker.word):
        return "", _make_active(found["what"], f"be {_text(view, start, end).strip()}")
    if view.marker.word == "no":
        return "", _strip_marks(_text(view, start, end)) or None
    if _DENIED.fullmatch(view.marker.word) and not _is_addressed(subject):
        rest = _text(view, start, end)
        if re.match(r"\W*to\b", rest):
            return "", _action(view, start, end) if _IT_IS.fullmatch(subject) else None
        return "", _strip_marks(f"{to_base_form(_COPULA.sub('', subject))} {rest}") or None
    return _find_agent_action(view, subject, start, end)


def _find_agent_action(view: View, subject: str, start: int, end: int) -> tuple[str, str | None]:
    """The action behind the marker, if it is the agent who acts, or if the clause is passive."""
    agent = _AGENT.fullmatch(subject)
    if agent or _WHO.fullmatch(subject) or (_IT_IS.fullmatch(subject) and re.match(r"(?:is|are)\b", view.marker.word)):
        lead = _strip_marks(agent["lead"] or "") if agent else ""
        return "" if _AT_ANY_TIME.fullmatch(lead) else lead, _action(view, start, end)
    return "", _make_active(subject, _text(view, start, end))


def _is_addressed(subject: str) -> bool:
    return subject.strip() != "" and bool(_AGENT.fullmatch(subject) or _IT_IS.fullmatch(subject))


def _make_active(subject: str, action: str) -> str | None:
    """`refunds` and `be logged at once` → `log refunds at once`; None if others act or the verb is not known."""
    passive = _PASSIVE.fullmatch(action)
    verb = _PARTICIPLES.get(passive["verb"].lower()) or irregular_verb(passive["verb"]) if passive else None
    is_plain_noun = 0 < len(subject.split()) <= _LONGEST_NOUN and not _HAS_A_CLAUSE.search(subject)
    if passive is None or verb is None or _BY_WHOM.search(passive["rest"]) or not is_plain_noun:
        return None
    return _strip_marks(f"{verb} {_strip_marks(subject)}{passive['rest']}")


# -- only --------------------------------------------------------------------------------------------------------------


def _read_only(view: View) -> Wording:
    """`only A after B` forbids A before B; `only answer in French` requires `only answer in French`."""
    main, marker, parts = view.clause.main, view.marker, view.clause.parts
    subject = _text(view, main.start, marker.start)
    if parts:
        if len(parts) > 1 or parts[0].word not in ("iff", "if", "after"):
            return Wording()
        trigger = view.when_not(parts[0])
        if marker.start == marker.end or not subject.strip() or _AGENT.fullmatch(subject):
            action = None if _STATES.search(view.action) else _action(view, marker.end, main.end)
        elif not _text(view, marker.end, main.end).strip(" ,.") and _begins_with_verb(subject):
            action = _strip_marks(subject)
        else:
            action = _make_active(
                re.sub(r"\b(?:may|can|must|should|shall)\W*$", "", subject), _text(view, marker.end, main.end)
            )
        return Wording(trigger, forbidden=action) if action else Wording()
    rest = _text(view, marker.end, main.end)
    if _begins_with_verb(subject):
        if _PREPOSITION.match(rest):
            return Wording(f"unless {_strip_marks(rest)}", forbidden=_strip_marks(subject))
        return Wording(required=_strip_marks(_text(view, main.start, main.end)))
    is_addressed = not subject.strip() or _AGENT.fullmatch(subject)
    who = _WHO_MAY.match(rest)
    if not is_addressed or (who and not _begins_with_verb(rest) and not _RELATIVE.search(who[0])):
        return Wording()
    return Wording(required=_strip_marks(f"only {rest.strip()}"))


# -- words -------------------------------------------------------------------------------------------------------------


def _text(view: View, start: int, end: int) -> str:
    return view.sentence.text[start:end]


def _action(view: View, start: int, end: int) -> str | None:
    """`call_tool: NAME`, or the words in the basic form of their verb."""
    masked = view.sentence.masked[start:end]
    tools = view.bind(masked, likeness=False)
    if tools.is_named and not tools.is_any and not view.extra(masked, tools):
        return tools.calls
    adverbs = _ADVERBS.match(masked)
    text = _text(view, start + (adverbs.end() if adverbs else 0), end)
    return None if _PREPOSITION.match(text) else _strip_marks(to_base_form(text)) or None


def _begins_with_verb(text: str) -> bool:
    first = re.match(r"\W*(\w+)", text)
    return first is not None and first[1].lower() in _KNOWN_VERBS


def _strip_marks(text: str) -> str:
    """One line without the punctuation around it; a first word in title case is put in lower case."""
    text = " ".join(text.split()).strip(" ,.;:!—–")
    if re.match(r"[A-Z][a-z]+\b|A\b", text):
        text = text[0].lower() + text[1:]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


def to_base_form(text: str) -> str:
    """`sharing passwords` → `share passwords`; a text that begins with no known verb stays as it is."""
    found = re.match(r"\s*(\w+ing)\b", text)
    verb = _GERUNDS.get(found[1].lower()) if found else None
    return f"{verb}{text[found.end() :]}" if found and verb else text


def _forms(ending: str) -> dict[str, str]:
    """Every regular spelling of each known verb with this ending → the verb."""
    forms: dict[str, str] = {}
    for verb in sorted(_KNOWN_VERBS, key=len):
        stem = verb.removesuffix("e") if not verb.endswith("ee") else verb
        if ending == "ed" and re.search(r"[^aeiou]y$", verb):
            stem = f"{verb[:-1]}i"
        elif re.search(r"(?:^|[^aeiou])[aeiou][bdglmnprt]$", verb):
            forms.setdefault(f"{verb}{verb[-1]}{ending}", verb)
        forms.setdefault(stem + ending, verb)
    return forms


_KNOWN_VERBS = {verb.replace("[sz]", letter) for verb in f"{VERBS} {_ACTION_VERBS}".split() for letter in "sz"}
_GERUNDS = _forms("ing")
_PARTICIPLES = _forms("ed")

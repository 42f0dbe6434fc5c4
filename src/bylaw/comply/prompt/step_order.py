"""Whether a sentence beside a list says that its steps need not be taken, or not in the order in which they stand.

`The order does not matter` says so, and `you do not have to ask` does not: what is waived must be the steps or their
order. In many prompts an order is a purchase (`in any order the customer placed`), so each form fixes the words around
`order`. A form that is denied (`do not reorder these steps`), or that somebody else says, waives nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bylaw.comply.prompt.layout import plain_text
from bylaw.comply.prompt.markers import Force, Marker, find_marker, imperative_at
from bylaw.comply.prompt.vocabulary import lower_in_place

# -- the steps and their order -----------------------------------------------------------------------------------------

_WHICH = (
    r"(?:(?:all|each|every|any|some|most|both|one|of|the|these|those|this|your|following|above|below|numbered|listed"
    r"|next|\d+|two|three|four|five|six)\s+){0,5}"
)
_THEM = (
    rf"(?:{_WHICH}(?:steps?|stages?|phases?|procedures?|workflow|checklist|(?<=the )list|(?<=this )list)\b"
    r"(?:\s+(?:below|above|here|listed))*"
    rf"|{_WHICH}(?:these|those|following|listed)\s+(?:\w+\s+)?(?:tools?|calls?|actions?|tasks?|checks?|points|items)\b"
    rf"|{_WHICH}(?:they|them|these|those|the following)\b(?!\s+(?!in\b|as\b|at\b|if\b|when\b|unless\b|before\b|after\b"
    r"|is\b|are\b|can\b|may\b|could\b|need\b|do\b|have\b|should\b|however\b|only\b|all\b|one\b)\w))"
)
"""the steps: `all of these steps`, `the following tasks`, `them`"""
_FORM = (
    r"(?:(?:very|particular|specific|special|fixed|set|strict|certain|given|exact|precise|required|prescribed|listed"
    r"|numbered|numerical|sequential|definite|predefined|predetermined)\s+)"
)
_ORDER = r"(?:order|ordering|sequence)\b"
_OF_STEPS = rf"\s+(?:(?:of|for|between|among)\s+{_THEM}|in which\b[^,;:.()]*)"
_THE_ORDER = (
    rf"(?:^|\b(?:that|because|since|as|although|though|note|so|and|but|the|their|this|its|which|exact)\s+){_FORM}?"
    rf"{_ORDER}(?:{_OF_STEPS}|\s+(?:that )?you (?:do|follow|take|call|complete|perform|use|run)\b[^,;:.()]*?)?"
)
"""the order as a subject; without `of` and steps, a purchase is rarely said not to matter"""
_IN_ORDER = (
    rf"\bin\s+(?:(?:this|that|the|a|any|exactly|same)\s+){{0,3}}{_FORM}{{0,2}}(?:order|sequence)\b"
    r"(?!\s+(?:to|that|for|of)\b)"
)

# -- forms -------------------------------------------------------------------------------------------------------------

_VERY = r"(?:\s+(?:here|really|actually|also|usually|so|that|very|all|particularly|strictly|necessarily|then|even))*"
_IDLE = (
    rf"{_VERY}(?:\s+(?:does not|doesn't|do not|don't|need not|needn't|will not|won't){_VERY}(?:\s+(?:have|need) to)?"
    r"\s+(?:matter|count|make (?:a|any) difference|have any|be (?:kept|followed|observed|respected|preserved|the same))"
    r"|\s+(?:has|have|makes|is of|of) no (?:difference|importance|relevance|meaning|significance|consequence)"
    rf"|(?:\s+is|\s+are|'s){_VERY}(?:\s+(?:completely|entirely|totally|only|just|merely|purely|largely|left))*"
    r"\s+(?:irrelevant|unimportant|immaterial|arbitrary|insignificant|flexible|optional|random|interchangeable"
    r"|up to (?:you|the (?:agent|assistant|model))|to you|your (?:own )?(?:choice|call|decision)|at your discretion"
    r"|an? (?:rough )?(?:suggestion|guideline|example|hint|proposal)|suggested|illustrative|indicative)"
    rf"|\s+(?:is not|isn't|are not|aren't){_VERY}\s+(?:important|relevant|fixed|required|strict|mandatory|binding"
    r"|critical|essential|crucial|necessary|prescribed|set|obligatory|significant|material|a requirement|the same)\b"
    r"(?!\s+to (?!you\b))|\s+(?:may|can|might|could) (?:vary|differ))"
)
_YOU_LIKE = (
    r"\s+(?:that |which )?(?:you (?:like|want|wish|prefer|choose|please|see fit|deem|think|consider|desire|judge|can)"
    r"|suits?|works?|makes? sense|seems?|feels?|is (?:most|more|best|convenient|easiest|efficient|fine|ok|okay))\b"
)
_ANY = (
    r"(?:any|whatever|whichever|an? arbitrary|arbitrary|a random|random|your own|your preferred|an order of your|the)"
    r"(?:\s+(?:other|possible|convenient|given))?"
)
_NOT_IN_ORDER = re.compile(
    rf"{_THE_ORDER}{_IDLE}"
    rf"|\bnot (?:necessarily|strictly|always)\s+(?:[a-z]+\s+){{0,3}}?{_IN_ORDER[2:]}"
    rf"|\b(?:no|without(?: an?| any)?|(?:not|n't)\s+(?:(?:in|to|be|follow|need|have|require|use|keep|done)\s+)*"
    rf"(?:a|an|any)|(?:need|require) no)\s+{_FORM}+(?:order|sequence)\b|\bin no (?:order|sequence)\b"
    rf"|\bno (?:order|sequence) (?:is )?(?:implied|intended|prescribed|required)\b"
    rf"|\bno (?:order|sequence) (?:to|in|among|between) {_THEM}"
    r"|(?:\bnot|n't)\s+(?:really )?(?:matter|important|relevant|care|mind|worry about)\s+(?:about )?(?:in )?"
    r"(?:which|what) (?:order|sequence|(?:of them|step|one)\b[^,;:.()]*\bfirst)\b"
    r"(?!\s+(?:numbers?|ids?)\b|\s+(?:the|an?)\s+(?!(?:\w+\s+)?(?:steps?|tools?|calls?|actions?|tasks?|checks?|items?|points?)\b))"
    r"|\b(?:irrelevant|unimportant|up to you|your choice|no matter|decide|choose|pick)\s+(?:yourself )?(?:in )?(?:which"
    r"|what) (?:order|sequence)\b|\b(?:choose|pick|decide(?: on)?|determine|set|change|alter|vary|adapt|adjust|swap)\s+"
    rf"(?:the|their|your own)\s+(?:sequence\b|order{_OF_STEPS})|\b(?:choose|pick|use) your own (?:order|sequence)\b"
    rf"|\border{_OF_STEPS}\s+(?:can|may|could|might)\s+(?:also |freely )?(?:be )?(?:chang|alter|adapt|swap|chosen)"
    rf"|\b(?:regardless|irrespective|independent(?:ly)?) of (?:(?:the |their )?(?:sequence\b|order{_OF_STEPS})|order$)"
    r"|\b(?:not|n't|no need to)\s+(?:(?:have|need) to )?(?:worry|care|bother|fuss) (?:about|with) (?:the |their )?"
    r"(?:order|sequence)\b"
    rf"|\b(?:reorder|re-order|rearrange|shuffle|swap)(?:ing)?\s+{_THEM}"
    rf"|{_THEM}\s+(?:can|may|could|might)\s+(?:also |freely )?be (?:re-?ordered|rearranged|shuffled|swapped"
    r"|interchanged)\b"
    rf"|{_THEM}(?:\s+\w+)?\s+(?:as|however|in any way|the way) you (?:see fit|like|please|wish|want|prefer|choose)\b"
    rf"|{_THEM}\s+(?:is|are)\s+(?:(?:(?:only|just|merely|mere)\s+)+(?:an? )?(?:suggestion|guideline|example|idea"
    r"|recommendation|proposal)s?|suggestions|interchangeable)\b"
    r"|\bany (?:order|sequence) (?:is (?:fine|ok|okay|allowed|good|possible"
    r"|acceptable)|will do|works)\b|\border of your (?:choice|choosing|own)\b"
    rf"|\b(?:may|can|could|free to|fine to|ok to|okay to|allowed to)\b[^,;:()]{{0,60}}{_THEM}[^,;:()]{{0,60}}"
    r"\bin (?:a different|another|some other) (?:order|sequence)\b"
)
_IN_ANY_ORDER = re.compile(
    rf"\b{_ANY}\s+(?:order|sequence){_YOU_LIKE}"
    r"|\bin (?:any|whatever|whichever|an arbitrary|arbitrary|random|a random)(?: possible)? (?:order|sequence)"
    r"(?=\s*(?:$|[\])!\u2013\u2014-]|(?:and|but|or|as|if|unless|before|once|at)\b))"
)
"""may still be a purchase, so the sentence has to introduce a list or to name the steps"""
_OTHER_ORDER = re.compile(
    r"\bin (?:the |descending |ascending |decreasing |increasing )?order of (?!(?:the|an?|this|that|these|those|any|all"
    r"|your|our)\b|(?:their |its )?(?:numbers?|appearance|listing|steps?|mention)\b)"
    r"|\b(?:preference|preferred|priority|options?|alternatives?|either|one of|any of|reverse|parallel"
    r"|at the same time)\b"
)
"""words in the introduction of a list whose items are done in another order, at once, or not all"""
_STEPS = re.compile(rf"\b{_THEM}")
_ALONE = re.compile(
    r"(?:(?:please|then|so|just|simply|you|may|can|could|should|will|feel|free|to|also)\s+)*(?:do|take|call|complete"
    r"|perform|execute|run|follow|use|work|proceed|go|handle)?\s*(?:(?:it|this|that|so|everything|all|each|every one)\b"
    r"\s*)*in\b"
)
"""the start of a clause that is about nothing else: `do it in any order`"""
_CASE = re.compile(r"\W*(?:if|when|whenever|where|for|with|in case|as for|should)\b")
"""`when several parcels are late, you may handle them in any order`: `them` are not the steps"""
_OTHER_THING = re.compile(r"\b(?:of|from|about)\s+$")
"""`the size of the order does not matter`"""

# -- waivers of steps --------------------------------------------------------------------------------------------------

_HOW = r"(?:(?:always|strictly|necessarily|exactly|precisely|really|actually|then|also|blindly|rigidly|slavishly)\s+)*"
_TAKE = (
    r"(?:follow|do|take|complete|perform|execute|go through|carry out|run|call|use|finish|make|work through|stick to"
    r"|adhere to|observe|keep to|obey|apply|walk through|run through)"
)
_TAKEN = r"(?:followed|done|taken|completed|performed|executed|carried out|run|called|used|finished|made|observed)"
_AGAIN = (
    r"(?!\s+(?:again|twice|more than|at once|immediately|quickly|yourself|aloud|in one|in a single|for\b|to\b|with\b))"
)
"""`you do not have to take these steps again` leaves their order as it is"""
_STEPS_WAIVED = re.compile(
    rf"\W*(?:to\s+|for\s+{_THEM}\s+to\s+)?{_HOW}(?:{_TAKE}\s+{_HOW}{_THEM}{_AGAIN}|(?:{_TAKE}|go|proceed|work)\b(?:(?!"
    rf"\b(?:before|until|unless|without|after|to)\b).)*{_IN_ORDER}|be\s+{_HOW}(?:{_TAKEN}\b.*)?{_IN_ORDER}"
    rf"|(?:follow|keep|keep to|stick to|adhere to|observe|respect|obey|maintain|preserve)\s+(?:(?:the|this|that|any|a"
    rf"|their)\s+)?{_FORM}*(?:order|sequence)\b)"
)
_PASSIVE_WAIVED = re.compile(rf"\W*(?:to\s+)?be\s+{_HOW}{_TAKEN}\b{_AGAIN}")
_NEEDED = re.compile(rf"\W*{_THEM}\W*$")
_SUBJECT = re.compile(
    rf"\W*(?:(?:but|and|so|note that|however|also)\s+)*(?:(?:to\s+)?{_TAKE}(?:ing)?\s+|(?:doing|taking|completing"
    rf"|making|using|executing|observing|running)\s+)?(?:{_THEM}|(?:the|their|this|that)\s+{_FORM}?{_ORDER}(?:{_OF_STEPS})?)"
    r"(?:\s+(?:is|are|were|be|do|does))?\W*"
)
_NO_WAIVER = re.compile(r"hesitate|only|just|merely|problem")
"""`do not hesitate to follow these steps`"""

# -- clauses -----------------------------------------------------------------------------------------------------------

_BREAKS = re.compile(r"[,;:.!?()\[\]\u2013\u2014]|\s-+\s|\b(?:but|however)\b")
_AND = re.compile(r"\band\s+")
_DENIES = re.compile(
    r"\b(?:not|never|no|cannot|without|avoid|refuse|decline|refrain|resist|forbidden|prohibited|nor|neither|wrong|false"
    r"|untrue|mistake|myth|incorrect|unless|even (?:if|though)|(?:say|ask|claim|insist|tell|told|think|believe)s?)\b"
    r"|n't\b"
)
_DENIED_BEHIND = re.compile(
    r"\s*(?:is|are|was|would be) (?:not|never|forbidden|prohibited|wrong|an? (?:error|mistake))\b"
)
_PERSON = re.compile(r"\b(?:user|customer|client|caller|guest|buyer)s?\b")
_MAY_DENY = re.compile(r"order|sequence|need|have to|requir|necess|option|oblig|mandat|you |shuffl|rearrang|swap|are ")


def denies_order(introduction: str) -> bool:
    """Whether the sentence before a list says that its items need not be done, or not in this order."""
    is_lead = introduction.rstrip("*_ ").endswith(":")
    if not is_lead and _is_about_a_case(introduction):
        return False
    return any(_waives(one, is_about_steps=is_lead) or _finds(_OTHER_ORDER, one) for one in _clauses(introduction))


def denies_order_beside(sentence: str) -> bool:
    """The same of another sentence near the list, which may speak of something else."""
    return not _is_about_a_case(sentence) and any(_waives(one) for one in _clauses(sentence))


def _is_about_a_case(sentence: str) -> bool:
    return _CASE.match(lower_in_place(sentence)) is not None and not names_steps(sentence)


def names_steps(sentence: str) -> bool:
    return re.search(r"\bsteps\b", lower_in_place(sentence)) is not None


def _clauses(sentence: str) -> Iterator[str]:
    text = plain_text(lower_in_place(sentence)).replace("\u2019", "'")
    for clause in _BREAKS.split(text) if _MAY_DENY.search(text) or _OTHER_ORDER.search(text) else ():
        begin = 0
        for found in _AND.finditer(clause):
            if imperative_at(clause[found.end() :]):  # `you need not ask and follow these steps`
                yield clause[begin : found.start()].strip()
                begin = found.end()
        yield clause[begin:].strip()


def _waives(clause: str, *, is_about_steps: bool = False) -> bool:
    if _finds(_NOT_IN_ORDER, clause):
        return True
    if _finds(_IN_ANY_ORDER, clause) and (is_about_steps or _STEPS.search(clause) or _ALONE.match(clause)):
        return True
    marker = find_marker(clause)
    return marker is not None and marker.force is Force.WAIVE and _waives_steps(clause, marker)


def _finds(pattern: re.Pattern[str], clause: str) -> bool:
    """Whether the pattern is in the clause, and nothing around it denies it."""
    found = pattern.search(clause)
    if found is None or _DENIES.search(clause[: found.start()]) or _DENIED_BEHIND.match(clause[found.end() :]):
        return False
    if pattern is not _NOT_IN_ORDER:
        return True
    before = clause[: found.start()]
    return not (_PERSON.search(before) or _OTHER_THING.search(before))


def _waives_steps(clause: str, marker: Marker) -> bool:
    """Whether what need not be done is to take the steps, or to keep to their order."""
    before, behind = clause[: marker.start], clause[marker.end :]
    if _NO_WAIVER.search(marker.word) or _DENIES.search(before):
        return False
    if _STEPS_WAIVED.match(behind) or (marker.word.endswith(("need", "require")) and _NEEDED.match(behind)):
        return True
    is_subject = _SUBJECT.fullmatch(before) is not None
    return is_subject and (_PASSIVE_WAIVED.match(behind) is not None or not re.match(r"\s*\w", behind))

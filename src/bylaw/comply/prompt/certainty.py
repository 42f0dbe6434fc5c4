"""How certain a rule is: by what stands around its sentence, and by whether the sentence itself is plain.

Headings, labels and neighbours may say for what a sentence holds. `why_limited` is a reason to leave a rule undecided:
`Guests: never call A`, `Premium members. Call A once.` `in_doubt` is one to make it likely at most: a topic may be only
a topic (`## Payments`), or the case that the rule is about. A flat list of rules, or a paragraph of nothing else,
raises no doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from bylaw.comply.model import PromptRule
from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.clauses import MAX_SENTENCE, label_of
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.lines import limits_scope, topic_words
from bylaw.comply.prompt.markers import Force, find_marker, has_exception, imperative_at
from bylaw.comply.prompt.readings import QUOTED_WORD, Reading, View, narrowing_reason, shorten
from bylaw.comply.prompt.vocabulary import Tools, any_case, lower_in_place, number_of, root_set, roots, word_set

_FRONT = any_case(
    r"\s*(?!(?:never|always|do not|don't|only|must|before|after|if|when|unless|for)\b)([^:`\"]{1,300}?):\s+(?=\S)"
)
"""a sentence before a colon: `Medical texts must be revised, whatever happens: call A after B`"""
_THINGS = (
    r"\W*(?!(?:if|when|whenever|once|the|this|that|these|those|it|its|you|your|we|our|they|always|never|as|is|there"
    r"|here|i|he|she)\b)(?!(?:only|no)\b)(?:(?:most|many|some|certain|all|both|any|every"
    r"|each)\s+)*(?P<things>(?:an? )?[a-z][\w'-]*(?: [a-z][\w'-]*){0,2}?(?:(?<=[^su\W]s)|(?<=people)"
    r"|(?<=children)))\b(?<!\bis)(?<!\bhas)(?<!\bwas)(?<!\bdoes)(?<!\bas)(?! [\w'-]*[^su\W]s\b)(?P<which> (?:from|with"
    r"|without|of|for|over|under|above|below|in|on|at|who|that|which|whose|older|younger)\b[^,;]*)?"
)
_CLASS = any_case(_THINGS)
"""`Season passes are not refundable`, `Visitors with a cane use the lift`: the sentence is about some things"""
_ONE = any_case(r"\W*(?P<things>an? (?!(?:maximum|minimum|total|limit)\b)[\w'-]+)")
_SO = re.compile(r",? so (?=\S)")
_STEPS = any_case(
    r"\W*(?:first,? )?(?:call|use|run|invoke)\b(?!.*\b(?:always|must|before|after|every|each|never|any)\b).*\bthen\b"
)
"""`People who are stuck come first. Call A, then call B.`"""
_UNIVERSAL = any_case(
    r"\b(?:never|always|under no|at no|in no case|every|each|all|(?:under|in|at|for|on) any|forbidden"
    r"|prohibited)\b"
)
_THAT_CASE = any_case(
    r"\b(?:in|at|on|during|under|for) (?:that|this|these|those|such)(?: an?)? (?:cases?|points?|steps?|stages?|phases?"
    r"|moments?|times?|events?|situations?|circumstances|conditions?)\b"
)
"""`in that case, never call A`: what it points at stands somewhere else"""
_IDENTITY = any_case(r"\W*(?:you(?:'re| are| will be| work| act| serve)|your|this (?:is|prompt|document)|these)\b")
_ADDRESSES = any_case(
    r"\W*(?:(?:please|also|and|then|so|but)\W+)*(?:you|the (?:ai )?(?:agent|assistant|model|bot)|we)\b"
)
_SCOPING = any_case(
    r"\b(?:if|when|whenever|while|during|unless|except|only|for|who|whose|which|outside|over|under|above|below|mode)\b"
)
_FINITE = any_case(
    r"\b(?:is|are|was|were|has|have|had|will|can|may|must|should|shall|does|do|did|get|gets|go|goes|\w{3,}(?:s|ed))\b"
)
_AMOUNT = any_case(r"\W*(?:at (?:most|least)|no (?:more|less|fewer) than|up to|max(?:imum)?)\b")
_LONGEST_FRAGMENT = 8
"""words of `Premium members.`"""
_PEOPLE = any_case(
    r"\b(?:for|to|by) (?!(?:all|every|each|any|you|us|the|your|our|this)\b)(?:[\w'-]+ ){0,2}[\w'-]*[^su\W]s\b"
)
"""`Late check-out is free for gold members.`"""
_NO = any_case(r"\W*no [\w' -]+\W*$")
"""`No exclamation marks.`"""
_REFERS_BACK = any_case(r"\W*(?:they|these|those|such|it|this|that|here|then)\b")
"""`Framed prints are made to order. They cannot be returned, so never call A.`"""
_NAME = re.compile(r"\w+_\w+")
_MOST_BEFORE = 12
"""sentences of its paragraph that are looked at"""


def why_limited(statement: Statement, tools: Tools, *, in_section: bool = False) -> str:
    """Why a sentence that reads like a rule for all cases is not one. In a tool's section, all is about its calls."""
    if statement.under:
        return f"it stands under `{shorten(statement.under)}`"
    if statement.denied and not statement.forbidden:
        return f"it stands under `{shorten(statement.denied)}`"
    text = statement.text[:MAX_SENTENCE]
    label = label_of(text)
    if label and (limits_scope(label) or not _is_harmless(label, text, tools)):
        return f"it stands under `{shorten(label)}`"
    if case := _THAT_CASE.search(text):
        return f"it may only hold for `{case[0]}`"
    if why := _why_partial(text, tools):
        return why
    if not statement.leads and _STEPS.match(text):
        return "it may belong to what the sentence before it is about"
    if statement.follows_condition and not in_section and not _UNIVERSAL.search(text):
        return "a sentence before it has a condition that may hold for it too"
    if any(_takes_back(part, is_chain=statement.junction == "chain") for part in text.split(";")[1:]):
        return "another part of it makes an exception"
    return ""


def _is_harmless(label: str, text: str, tools: Tools) -> bool:
    """`Important:`, or `Refunds:` before a sentence about refunds; `Guests:` and `Myth:` limit what they label."""
    if label in tools.specs or "_" in label:
        return True
    return _is_about(label, text[text.find(":") :])


def _why_partial(text: str, tools: Tools) -> str:
    """Why the reason in front of a rule says for what it holds; a reason that only forbids is read with its rule."""
    front = _FRONT.match(text)
    marker = find_marker(front[1]) if front else None
    if front and not (marker and marker.force is Force.FORBID) and not any(name in front[1] for name in tools.specs):
        return "" if _is_harmless(front[1], text, tools) else f"it stands under `{shorten(front[1])}`"
    so = _SO.search(text)
    things = _find_limited_subject(text[: so.start()]) if so else ""
    return _limit_reason(things) if so and things and not _is_about(things, text[so.end() :]) else ""


def _takes_back(part: str, *, is_chain: bool) -> bool:
    """`is_chain`: it introduces steps, and `lists` has looked at what it waives: the steps or something else."""
    marker = find_marker(part)
    if is_chain and marker and marker.force is Force.WAIVE:
        return False
    return bool(has_exception(part) or (marker and marker.force in (Force.PERMIT, Force.WAIVE)))


# -- neighbours --------------------------------------------------------------------------------------------------------


def why_part_of_a_case(rule: PromptRule, before: Sequence[tuple[str, bool]]) -> str:
    """Why a rule is about the case that the sentence right before it sets: `Tickets from the counter are not ours.`"""
    for text, is_read in before:
        if is_read:
            break
        things = _find_limited_subject(text)
        if things:
            return "" if _is_about(things, rule.description) else _limit_reason(things)
        if not _REFERS_BACK.match(text):
            break
    return ""


def in_doubt(statement: Statement, before: Sequence[tuple[str, bool]]) -> bool:
    """Whether a sentence before the rule may say for what it holds."""
    return statement.follows_condition or any(not is_read and not _is_neutral(text) for text, is_read in before)


def topic_of(rule: PromptRule, statement: Statement, tools: Tools) -> str:
    """The heading above a rule that names something that its tools are not about."""
    if not statement.topics:
        return ""
    own = set(roots(rule.description))
    for name in _NAME.findall(rule.description):
        own.update(roots(tools.specs[name].description) if name in tools.specs else ())
    return next((topic for topic in statement.topics if not own & topic_words(topic)), "")


def sentences_before(
    rule: PromptRule, found: Sequence[list[PromptRule]], read: Sequence[Statement], index: int
) -> Iterator[tuple[str, bool]]:
    """The sentences before a rule in its paragraph, the nearest first, and whether a rule was read from each."""
    statement = read[index]
    front = statement.text[: max(rule.start - statement.start, 0)]
    for piece in reversed(front.split(";")):
        at = statement.start + statement.text.find(piece)
        if piece.strip(" ,.") and not piece.rstrip().endswith(":"):
            yield piece, any(one.items and at <= one.start < at + len(piece) for one in found[index])
    for before in range(index - 1, max(index - _MOST_BEFORE, -1), -1):
        above, rules = read[before], found[before]
        is_near = above.block == statement.block
        is_tied = is_near and not read[before + 1].leads
        if not is_tied:  # `For premium members.` on a line of its own
            is_line = before == index - 1 and is_near and not statement.is_below and not above.parts
            if not (is_line and _is_fragment(above.text) and limits_scope(above.text)):
                return
        yield above.text, bool(rules) and all(one.items for one in rules)
        if not is_tied:
            return


def _find_limited_subject(text: str) -> str:
    """The things or people that a sentence is about, if these are only some; a fragment is about what it names."""
    if _is_neutral(text):
        return ""
    found = _CLASS.match(text) or _ONE.match(text) or _PEOPLE.search(text)
    if found:
        groups = found.groupdict()
        return f"{groups['things']}{groups.get('which') or ''}" if "things" in groups else found[0]
    return text if _is_fragment(text) else ""


@lru_cache(maxsize=4_096)
def _is_neutral(text: str) -> bool:
    """Whether a sentence only says who the agent is, or tells it to do something in all cases."""
    if not topic_words(text) or _NO.match(text) or (_IDENTITY.match(text) and not limits_scope(text)):
        return True
    marker = find_marker(text)
    is_told = imperative_at(text) or _ADDRESSES.match(text) or (marker and not text[: marker.start].strip(" *_`-"))
    return bool(is_told) and not _SCOPING.search(text)


def _is_fragment(text: str) -> bool:
    words = text.split()
    if (
        "," in text
        or _AMOUNT.match(text)
        or not 0 < len(words) <= _LONGEST_FRAGMENT
        or imperative_at(text)
        or find_marker(text)
    ):
        return False
    behind = " ".join(words[1:-1]) if not limits_scope(text) else ""
    return not _FINITE.search(behind) and bool(topic_words(text))


def _is_about(subjects: str, text: str) -> bool:
    """Whether a rule is about these things anyway: `Refunds are final.` before `never call issue_refund`."""
    return topic_words(subjects) <= set(roots(text))


def _limit_reason(subjects: str) -> str:
    return f"it may only hold for `{shorten(subjects)}`"


# -- plain clauses -----------------------------------------------------------------------------------------------------

# Whether a clause is plain: nothing but tools by their names, and words that cannot narrow what is said of them.
#
# A reader accounts for every word of its clause, but with a long list of words that rarely matter (`own`, `another`,
# `customer`). That is good enough for a likely reading. A reading is certain only if the clause has no word beyond the
# closed list below, and names each tool in full, by its name or by the words of it in their order (`cancel an order`).


LESS_THAN_CERTAIN = 0.9
"""the confidence of a reading that would be certain in plain words, or in a place without a topic"""
_PLAIN = word_set(
    """you the agent assistant model bot agents assistants we please also and or nor either neither both a an any all
    tool tools function functions api apis call calls calling called invoke invokes invoking invoked invocation use
    uses using used run runs running execute executes executing executed trigger make making made never ever not do
    don't does must mustn't may should shouldn't shall can can't cannot no under circumstances circumstance in at
    point time on account case strictly absolutely expressly explicitly forbidden prohibited off limits off-limits
    banned disallowed allowed permitted avoid refrain from is are be been remain remains to of most more than once
    twice thrice times up maximum max per each every same for single one second again conversation session chat turn
    response message reply during within exactly only limit limited capped least before prior ahead after until
    unless without first then always need needs have has having had already if when whenever successfully successful
    succeeded succeeds returned returns completed finished done result results fail fails failed was were nobody none
    finally followed by precede precedes preceded require requires required earlier previous beforehand ensure sure
    important critical note warning remember rule"""
)
_POINTS = word_set("it this that")
"""words that mean the tool of the section"""
_COMPARING = root_set(
    """over above more than greater exceed exceeds exceeding larger higher excess under below less fewer lower smaller
    between set value values dollars euros percent with equal"""
)
_ARGUMENT = re.compile(r"\bargs\.\"?(\w+)")
_WORD = re.compile(r"[\w$'-]+")
_BETWEEN = word_set("the a an any")
_SHAPES = any_case(
    r"\b(?:in parallel|(?:parallel|simultaneous) (?=calls)|alone|by itself|as (?:a|the) (?:single|only) (?:action|call"
    r"|tool call)|(?:together with|alongside|with) (?:any )?other tools?)\b|^\W*it is\b"
)
"""how calls stand in a turn"""


def is_plain(view: View, reading: Reading) -> bool:
    """Whether all words of the clause are known: tools, parameters, numbers, and those of the closed list."""
    text: str | None = _SHAPES.sub(" ", view.whole)
    tools = view.sentence.tools
    for bound in reading.bounds:
        for tool in bound.tools:
            is_here = tool == view.sentence.section or bound.is_any
            text = _strip_tool_name(tool, text or "", tools) or (text if is_here else None)
            if text is None:
                return False
    params = {name for draft in reading.drafts for name in _ARGUMENT.findall(str(draft.params.get("formula", "")))}
    known = {root for param in params for root in roots(param)} | (_COMPARING if params else frozenset())
    words = _PLAIN | _POINTS if view.sentence.section else _PLAIN
    return all(
        word.lower() in words
        or number_of(word.strip("$,.")) is not None
        or (params and (QUOTED_WORD.fullmatch(word) or set(roots(word)) <= known))
        for word in _WORD.findall(text or "")
    )


def _strip_tool_name(tool: str, text: str, tools: Tools) -> str | None:
    """The text without the name of the tool, or without the words of it that stand together; None if it has neither."""
    phrases = [tool, *(phrase for phrase, names in tools.aliases.items() if tool in names)]
    for phrase in phrases:
        if phrase.lower() not in lower_in_place(text):
            continue
        rest, found = re.subn(rf"(?<![\w-]){re.escape(phrase)}(?![\w-])(?:\(\))?", " ", text, flags=re.IGNORECASE)
        if found:
            return rest
    wanted = tools.roots.get(tool, ())
    words = [one for one in _WORD.finditer(text) if one[0].lower() not in _BETWEEN]
    word_roots = [roots(one[0])[:1] for one in words]
    for at in range(len(words) - len(wanted) + 1):
        if len(wanted) > 1 and [[root] for root in wanted] == word_roots[at : at + len(wanted)]:
            return f"{text[: words[at].start()]} {text[words[at + len(wanted) - 1].end() :]}"
    return None


# -- tools that are not known ------------------------------------------------------------------------------------------

_JOINTS = any_case(r"([,(]|\b(?:and|or|then)\b)")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_CALLS = any_case(r"\b(?:call|use|run|invoke)\b")
_ARTICLE = r"(?:the|an?|their|its|your|his|her|this|that|all|every|each)\b"
_HAS_OBJECT = any_case(rf"\s+(?:{_ARTICLE}|them\b|him\b|it\b|for {_ARTICLE})")
"""`thank the customer`: a verb with such an object does not name a tool"""
_ARGUMENTS = any_case(rf"\bwith {_ARTICLE}.*")
"""`with the amount and the reason`: these are arguments, not tools"""
_ADVERB = any_case(r"\w+ly|then|next|afterwards?|however|also|again|instead|too|therefore|so|otherwise|last|possible")


def why_tools_missing(view: View, text: str) -> str:
    """Why a list of tools is open: it has quoted text, code or single words that may name tools which are not known.

    Or it joins its tools by `and` and by `or`.
    `call lookup and verify_identity`: a rule about `verify_identity` alone would be less than what is said.
    """
    if quoted := QUOTED_WORD.search(text):
        return narrowing_reason(quoted[0])
    if (found := view.bind(text, likeness=False)).is_mixed:
        return found.unclear
    for code in view.texts():
        is_name = code.is_code and _NAME.fullmatch(code.text) and code.text in text
        if is_name and not view.bind(code.text, likeness=False):
            return narrowing_reason(code.text)
    pieces = _JOINTS.split(_ARGUMENTS.sub("", text))
    for at in range(0, len(pieces), 2):
        around = "".join(pieces[max(at - 1, 0) : at] + pieces[at + 1 : at + 2]).lower()
        is_listed = any(word in around for word in ("and", "or", "then")) or 0 < at < len(pieces) - 1
        words = view.narrowing(pieces[at], Bound()).split()
        if len(pieces) == 1 or len(words) != 1 or view.bind(pieces[at], likeness=False) or _ADVERB.fullmatch(words[0]):
            continue
        is_called = _CALLS.search(pieces[at]) is not None
        if is_called or (is_listed and not _HAS_OBJECT.match(pieces[at].partition(words[0])[2])):
            return narrowing_reason(words[0])
    return ""

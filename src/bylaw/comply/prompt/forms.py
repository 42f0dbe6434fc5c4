"""Whether a clause is plain: nothing but tools by their names, and words that cannot narrow what is said of them.

A reader accounts for every word of its clause, but with a long list of words that rarely matter (`own`, `another`,
`customer`). That is good enough for a likely reading. A reading is certain only if the clause has no word beyond the
closed list below, and names each tool in full, by its name or by the words of it in their order (`cancel an order`).
"""

from __future__ import annotations

import re

from bylaw.comply.prompt.readings import Reading, View
from bylaw.comply.prompt.vocabulary import Tools, any_case, lowered, number_of, root_set, roots, word_set

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
_QUOTED = re.compile(r"'?_+'?")
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
            text = _without(tool, text or "", tools) or (text if is_here else None)
            if text is None:
                return False
    params = {name for draft in reading.drafts for name in _ARGUMENT.findall(str(draft.params.get("formula", "")))}
    known = {root for param in params for root in roots(param)} | (_COMPARING if params else frozenset())
    words = _PLAIN | _POINTS if view.sentence.section else _PLAIN
    return all(
        word.lower() in words
        or number_of(word.strip("$,.")) is not None
        or (params and (_QUOTED.fullmatch(word) or set(roots(word)) <= known))
        for word in _WORD.findall(text or "")
    )


def _without(tool: str, text: str, tools: Tools) -> str | None:
    """The text without the name of the tool, or without the words of it that stand together; None if it has neither."""
    phrases = [tool, *(phrase for phrase, names in tools.aliases.items() if tool in names)]
    for phrase in phrases:
        if phrase.lower() not in lowered(text):
            continue
        rest, found = re.subn(rf"(?<![\w-]){re.escape(phrase)}(?![\w-])(?:\(\))?", " ", text, flags=re.IGNORECASE)
        if found:
            return rest
    wanted = tools.roots.get(tool, ())
    words = [one for one in _WORD.finditer(text) if one[0].lower() not in _BETWEEN]
    said = [roots(one[0])[:1] for one in words]
    for at in range(len(words) - len(wanted) + 1):
        if len(wanted) > 1 and [[root] for root in wanted] == said[at : at + len(wanted)]:
            return f"{text[: words[at].start()]} {text[words[at + len(wanted) - 1].end() :]}"
    return None

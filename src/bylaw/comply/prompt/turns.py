"""The shape of a turn: one tool call at a time, no text beside a call, a tool that is called alone."""

from __future__ import annotations

from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.readings import Reading, View, at_most, atom, formula, not_shown
from bylaw.comply.prompt.vocabulary import any_case, root_set, roots

_TURN = r"(?:turn|response|message|step|reply|time|go)"
_ONE_CALL = any_case(
    rf"\b(?:one|1|a single) (?:tool|function)(?: call| calls)?(?: \w+){{0,3}}? (?:at a time|at once|per {_TURN}|in (?:a"
    rf"|one|each|any) (?:single )?{_TURN}|(?:each|every) {_TURN})|\b(?:tools?|tool calls"
    rf"|functions) (?:\w+ ){{0,3}}?one at a time\b|\bone tool(?: call)? after (?:the other|another)\b|\bone at a time\b"
)
_SEVERAL = any_case(
    r"\b(?:multiple|several|two|more than one|parallel|simultaneous|concurrent|many) (?:or more )?(?:tool"
    r"|function)s?(?: calls?)?\b|\b(?:tools?|functions?|tool calls) (?:\w+ ){0,2}?(?:in parallel"
    r"|simultaneously|concurrently|at once|at the same time)\b"
)
_IN_PARALLEL = any_case(
    r"\b(?:in parallel|simultaneously|concurrently|(?:multiple|several) times (?:in parallel|at once)|at once"
    r"|at the same time|(?:multiple|several|parallel|more than one)\b.{0,20}\bcalls)\b"
)
_ALONE = any_case(
    r"\b(?:with|alongside|beside|together with|in parallel with|in the same turn as|combined with) (?:(?:any|the"
    r"|all) )?(?:other|another) (?:tools?|functions?|actions?|tool calls?|calls?)\b"
)
_BY_ITSELF = any_case(
    rf"\b(?:as (?:a|the) (?:single|only) (?:action|call|tool(?: call)?)(?: (?:in|of) (?:a|the|its|that) {_TURN})?"
    rf"|on its own|alone|by itself)\b"
)
_OTHER_NUMBER = any_case(
    r"\bat least\b|\b(?:no more than|at most|more than|up to|exactly|maximum of)"
    r" (?:two|three|four|five|six|seven|eight|nine|ten|[2-9]|\d\d+)\b"
)
_MORE = any_case(r"\bmore than one (?:at a time|at once|at the same time)\b")
_CALL = any_case(
    r"\b(?:tool|function)(?: |-)?calls?\b|\bcall(?:s|ing)? (?:a|any|the) (?:tool|function)\b|\bmak(?:e"
    r"|ing) a tool call\b|\bcall(?:ing)? tools\b"
)
_SPEAK = any_case(r"\b(?:respond|reply|talk|speak|writ|messag|answer|text)\w*\b")
_TOGETHER = any_case(
    r"\b(?:simultaneously|at the same time|at once|together|in the same (?:turn|response|message|step)"
    r"|alongside|mix|combine|both|and (?:also )?call)\w*\b|\bin a single (?:turn|response|message)\b"
)
_CALL_OR_TOOL = any_case(r"\b(?:tools?|functions?|calls?)\b")
_CALL_OR_SPEAK = any_case(rf"{_CALL.pattern}|{_SPEAK.pattern}")
_AT_ONCE = any_case(r"\b(?:at|in|within) the same (?:time|turn|response|message|step|reply)\b")
_ON = any_case(
    r"\b(?:on|for|against|across|about) (?!(?:(?:a|one|each|any|every|the) )?(?:single |same )*(?:turn|response"
    r"|message|step|reply|time)\b)\w+"
)
"""`in parallel on one file` speaks of fewer calls than all"""
_WORDS = root_set(
    """one 1 single multiple several two three more most than parallel simultaneously simultaneous concurrently
    concurrent many or at per each every time times once turn turns response responses message messages step
    steps reply respond replying responding talk speak write writing answer text no after another other tools
    calls calling called functions actions action together combine mix both alongside beside while when if need
    needs take takes given any limit yourself wait result results before next final do then"""
)
"""words beside those that say how calls stand in a turn"""


def read_one_call_at_a_time(view: View) -> Reading | None:
    """`make one tool call at a time`, `call done as a single action`."""
    tools = view.bind(view.main, likeness=False)
    if tools.is_named and not tools.is_any:
        if _BY_ITSELF.search(view.main):
            return _checked(view, tools, _alone(tools), _BY_ITSELF.sub(" ", view.bare))
        return None
    if _OTHER_NUMBER.search(view.main) or not _ONE_CALL.search(view.main) or not _CALL_OR_TOOL.search(view.main):
        return None
    return _checked(view, Bound(), _one_call_at_a_time())


def read_turn_shape(view: View) -> Reading | None:
    """`never call several tools in parallel`; `if you make a tool call, do not respond at the same time`."""
    text = view.whole
    tools = view.bind(view.main, likeness=False)
    if tools.is_named and not tools.is_any:
        return _read_tool_shape(view, tools)
    if _CALL.search(text) and _SPEAK.search(text) and _TOGETHER.search(text):
        draft = formula(r"G !(text(/\S/) & tool(*))", "text", over="turns")
        shape = Reading(name="no text beside a tool call", drafts=(draft,), forbidden="say: text beside a tool call")
        return _checked(view, Bound(), shape, text)
    several = _SEVERAL.search(text) or (_MORE.search(text) and _CALL.search(text))
    return _checked(view, Bound(), _one_call_at_a_time(), text) if several and not _OTHER_NUMBER.search(text) else None


def _read_tool_shape(view: View, tools: Bound) -> Reading | None:
    """`never call A with any other tool`, `never make parallel calls of A`."""
    if _ALONE.search(view.main):
        return _checked(view, tools, _alone(tools), _ALONE.sub(" ", view.bare))
    if len(tools.tools) > 1 or not _IN_PARALLEL.search(view.main):
        return None
    reading = Reading(
        name=f"no parallel {tools.names}",
        drafts=(at_most(tools.tools, 1, per_turn=True),),
        forbidden=f"{tools.calls} more than once per turn",
        bounds=(tools,),
    )
    return _checked(view, tools, reading)


def _checked(view: View, tools: Bound, reading: Reading, text: str | None = None) -> Reading:
    """The reading, or undecided if the clause says more than that."""
    left = view.extra(_AT_ONCE.sub(" ", view.bare if text is None else text), tools).split()
    left = [word for word in left if not set(roots(word)) <= _WORDS]
    narrowing = _ON.search(view.main)
    left += [narrowing[0]] if narrowing else []
    conditions = [part for part in view.clause.parts if part.word != "if" or not _CALL_OR_SPEAK.search(part.text)]
    if not left and not conditions:
        return reading
    return Reading(name=reading.name, undecided=not_shown(" ".join(left) or view.quote(conditions[0])))


def _alone(tools: Bound) -> Reading:
    """No other call in a turn with one of these."""
    drafts = tuple(
        formula(f"G (tool(*) -> (count[<=0t]({atom((tool,))}) <= 0 | count[<=0t](tool(*)) <= 1))", "count")
        for tool in tools.tools
    )
    return Reading(
        name=f"{tools.names} alone",
        drafts=drafts,
        trigger=tools.calls,
        forbidden="call_tool: any other in the same turn",
        bounds=(tools,),
    )


def _one_call_at_a_time() -> Reading:
    draft = formula("G (tool(*) -> count[<=0t](tool(*)) <= 1)", "count")
    return Reading(name="one tool call at a time", drafts=(draft,), forbidden="call several tools in one turn")

"""How often a tool may or must be called (`only once`, `once per order`), and how calls stand in a turn."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.readings import (
    EVERY_ANSWER,
    STATE_CONFIDENCE,
    Draft,
    Reading,
    View,
    at_least,
    at_most,
    atom,
    exactly,
    formula,
    is_known,
    narrowing_reason,
)
from bylaw.comply.prompt.vocabulary import NUMBER, any_case, number_of, root_set, roots, word_set

At: TypeAlias = Literal["<=", ">=", "="]
Per: TypeAlias = Literal["turn", "conversation"]

_AT_MOST = (
    r"at most|no more than|not more than|never more than|up to|(?:a )?maximum(?: of)?|max(?: of)?|more than"
    r"|fewer than or equal to|not exceed|exceed"
)
_LIMIT = any_case(
    rf"\b(?P<most>{_AT_MOST})\s+(?P<often>once|twice|thrice)\b"
    rf"|\b(?:{_AT_MOST})\s+(?P<number>{NUMBER})(?:\s+(?P<unit>[a-z_]+))?"
)
_EXACT = any_case(rf"\bexactly\s+(?:(?P<often>once|twice)\b|(?P<number>{NUMBER})(?:\s+(?P<unit>[a-z_]+))?)")
_LEAST = any_case(rf"\bat least\s+(?:(?P<often>once|twice)\b|(?P<number>{NUMBER})(?:\s+(?P<unit>[a-z_]+))?)")
_ONLY_OFTEN = any_case(
    r"\b(?:only|just|more than)(?: be)?(?: \w+)?(?: \w+){0,3}? (?<!at )(?P<often>once|twice)\b|\b(?P<late>once"
    r"|twice)(?: only| at most)\b"
)
_EXCEEDS = any_case(r"more than|exceed")
_TWICE = any_case(r"\b(?P<often>twice|a second time|more than once)\b")
_TURN = any_case(
    r"\b(?:per|each|every|in (?:a|one|any|each|the same)|within (?:a|one)|at)(?: single| same| one)? (?:turn"
    r"|response|message|reply|step|time)\b"
)
_IN_TIME = any_case(r"\b(?:per|a|an|each|every|in one) (?:second|minute|hour|day|week|month|year)\b")
"""a limit per day is not a limit per conversation"""
COUNTED_UNDER_A_CONDITION = "it counts calls under a condition"
_OFTEN_WORDS = any_case(rf"\b(?:once|twice|thrice|{NUMBER} times?)\b(?! more than)")
"""a clause with two of these counts the calls of each tool by itself"""
_AT_ONCE = any_case(
    r"\b(?:at a time|at once|at the same time|in parallel|simultaneously|concurrently|together|in a row)\b"
)
_AT_AN_END = any_case(r"finish|end|start|begin|open|close|conclude")
_ALSO_WHEN = "it also says when"
_OFTEN = {"once": 1, "twice": 2, "thrice": 3}
_ENTITY = any_case(
    r"\b(?:per|for (?:each|every|any|the same|a single|one)|each|on the same|with the same|to the same"
    r"|the same|same)\s+(?P<noun>[a-z]+(?:[ _](?:id|number))?)\b"
)
_THING_AGAIN = any_case(
    r"\b(?:an?|any|the same|one|each) (?P<noun>[a-z]+) (?:twice|a second time"
    r"|more than (?:once|twice|thrice|\w+ times))\b"
)
"""`never reroute a shipment twice` counts the calls for each shipment"""
_PIECES = any_case(r",\s*(?:and\s+)?|\band\b")
_ONE_THING = any_case(r"\b(?:an?|any|each|every|one|the same) (?P<noun>[a-z]+)\b")
_ONE_TOOL = any_case(
    r"\b(?:an?|any|each|every|no|the same)(?: one| single| given| available)* (?:tool|function|api)\b(?! calls?\b)"
)
_EACH_TOOL = "it counts the calls of each tool, and no tool is known"
_QUANTITIES = root_set("count counts quantity qty number amount copies num n units size total")
_NO_ENTITIES = word_set(
    "turn response message reply step time conversation session chat run task call tool single day request"
)
_UNITS = word_set("times time calls call tool tools")
"""a number with none of these is an amount"""
_COUNTING = root_set(
    """at most least no more than once twice thrice time times up maximum max limit of per each every same single for
    during within conversation session chat turn response message reply step a second again repeatedly exceed exactly
    only number"""
)


class Count(Struct, frozen=True):
    """How often something may or must happen."""

    at: At
    number: int
    per: Per = "conversation"
    entity: str = ""
    """`order` in `once per order`"""
    unit: str = ""
    """`emails` in `at most five emails`; empty for times"""


def find_count(text: str, *, is_forbidden: bool = False) -> Count | None:
    """The count that a clause sets; `more than N` sets one only where it is forbidden. `$500` is none."""
    if _IN_TIME.search(text):
        return None
    per: Per = "turn" if _TURN.search(text) else "conversation"
    nouns = (found["noun"].lower() for pattern in (_ENTITY, _THING_AGAIN) for found in pattern.finditer(text))
    entity = next((noun for noun in nouns if noun.split(" ")[0] not in _NO_ENTITIES), "")
    kinds: tuple[tuple[At, re.Pattern[str]], ...] = (("=", _EXACT), (">=", _LEAST), ("<=", _LIMIT))
    for at, pattern in kinds:
        found = pattern.search(text)
        if found is None:
            continue
        if at == "<=" and is_forbidden != bool(_EXCEEDS.match(found[0])):
            return None
        if found["often"]:
            return Count(at, _OFTEN[found["often"].lower()], per, entity)
        number, unit = number_of(found["number"]), (found["unit"] or "").lower()
        if number is None or number != int(number) or not unit or "$" in found["number"]:
            return None
        return Count(at, int(number), per, entity, "" if unit in _UNITS else unit)
    if (found := _ONLY_OFTEN.search(text)) and is_forbidden == bool(_EXCEEDS.match(found[0])):
        return Count("<=", _OFTEN[(found["often"] or found["late"]).lower()], per, entity)
    if is_forbidden and _TWICE.search(text):
        return Count("<=", 1, per, entity)
    return None


def find_count_of_calls(view: View, *, is_forbidden: bool = False) -> tuple[Count, Bound] | None:
    """The count with its tools. `two emails` counts the calls of send_email, `five passengers` counts no calls."""
    count = find_count(view.bare if is_forbidden else view.main, is_forbidden=is_forbidden)
    tools = view.bind(view.main, likeness=False)
    if not tools:  # `A: at most 3 calls`
        tools = Bound((view.sentence.section,), is_named=True) if view.sentence.section else view.bind(view.main)
    if count is None or not tools or len(_OFTEN_WORDS.findall(view.main)) > 1:
        return None
    if (not tools.is_any or count.number > 1) and _AT_ONCE.search(view.main):
        return None
    if not count.entity:  # `a reservation can't be moved more than once`, if a parameter says which reservation
        nouns = (found["noun"].lower() for found in _ONE_THING.finditer(view.main))
        count = replace(count, entity=next((noun for noun in nouns if _entity_param(noun, tools.tools, view)), ""))
    unit = set(roots(count.unit))
    counts_calls = not count.unit or (unit and all(unit <= set(roots(tool)) for tool in tools.tools))
    return (count, tools) if counts_calls else None


def read_counts(view: View) -> Reading | None:
    """`call A once per session and B at most twice`: each piece has one tool and one count."""
    pieces = [piece for piece in _PIECES.split(view.main) if piece.strip(" .")]
    if len(pieces) < 2 or view.clause.parts or len(_OFTEN_WORDS.findall(view.main)) != len(pieces):
        return None
    drafts, bounds = list[Draft](), list[Bound]()
    for piece in pieces:
        tools = view.bind(piece, likeness=False)
        count = find_count(piece) or find_count(f"only {piece}")
        known = _COUNTING.union(roots(count.entity if count else ""))
        left = [word for word in view.extra(piece, tools).split() if not is_known(word, known)]
        left = [word for word in left if number_of(word) is None]
        if count is None or count.at != "<=" or count.unit or not tools.is_named or len(tools.tools) != 1 or left:
            return None
        joined = _entity_param(count.entity, tools.tools, view)
        if count.entity and not joined:
            return None
        drafts.append(at_most(tools.tools, count.number, per_turn=count.per == "turn", joined=joined))
        bounds.append(tools)
    names = [tool for bound in bounds for tool in bound.tools]
    return Reading(
        name=f"limit {' '.join(names)}",
        drafts=tuple(drafts),
        trigger=f"call_tool: {', '.join(names)}",
        forbidden="call_tool: more often",
        bounds=tuple(bounds),
    )


def limit_calls(view: View, count: Count, tools: Bound) -> Reading:
    """`call issue_refund at most once per order`: in a turn, in the conversation, or for each value of a parameter."""
    name = f"limit {tools.names}"
    each = _tools_counted_apart(view, tools)
    if not each:
        return Reading(name=name, undecided=_EACH_TOOL)
    if why := _why_open(view, tools, count) or _several_at_once(count, tools, view):
        return Reading(name=name, undecided=why)
    joined = _entity_param(count.entity, tools.tools, view)
    if count.entity and not joined:
        why = f"no parameter of {', '.join(tools.tools)} says which `{count.entity}` it is"
        return Reading(name=name, undecided=why)
    per_turn = count.per == "turn"
    per = count.entity or ("turn" if per_turn else "")
    return Reading(
        name=f"at most {count.number} {tools.names}",
        drafts=tuple(at_most((tool,), count.number, per_turn=per_turn, joined=joined) for tool in each),
        trigger=tools.calls,
        forbidden=f"{tools.calls} more than {_times(count.number)}{f' per {per}' if per else ''}",
        bounds=(tools,),
        ceiling=STATE_CONFIDENCE if tools.is_any and (each != tools.tools or not per_turn) else 1.0,
    )


def require_calls(view: View, count: Count, tools: Bound) -> Reading:
    """`call verify_identity exactly once`, `call search at least twice`."""
    each = _tools_counted_apart(view, tools)
    why = _why_open(view, tools, count) if each else _EACH_TOOL
    if not why and (count.per == "turn" or count.entity):
        why = "required calls can only be counted over the whole conversation"
    if why:
        return Reading(name=view.name, undecided=why)
    drafts: list[Draft] = []
    for tool in each:
        drafts += exactly((tool,), count.number) if count.at == "=" else [at_least((tool,), count.number)]
    often = "exactly" if count.at == "=" else "at least"
    required, name = f"{tools.calls} {often} {_times(count.number)}", f"{often} {count.number} {tools.names}"
    return Reading(name=name, drafts=tuple(drafts), required=required, bounds=(tools,), ceiling=EVERY_ANSWER)


def _tools_counted_apart(view: View, tools: Bound) -> tuple[str, ...]:
    """The tools that have a count of their own: `no tool more than twice` is about each tool that is known."""
    is_each = tools.is_any and _ONE_TOOL.search(view.whole)
    return tuple(sorted(view.sentence.tools.specs)) if is_each else tools.tools


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _why_open(view: View, tools: Bound, count: Count) -> str:
    """Why a count is not decided: it also says when, which calls are counted, or on what condition."""
    if _AT_AN_END.fullmatch(view.marker.word):
        return _ALSO_WHEN
    known = _COUNTING.union(roots(count.entity), roots(count.unit))
    left = [word for word in view.narrowing(view.bare, tools).split() if not is_known(word, known)]
    if narrowing := " ".join(word for word in left if number_of(word) is None):
        return narrowing_reason(narrowing)
    return COUNTED_UNDER_A_CONDITION if view.clause.parts else ""


def _several_at_once(count: Count, tools: Bound, view: View) -> str:
    """Why `at most two keys` is no count of calls: one call of `issue_key` with `count` may make several."""
    for tool in tools.tools if count.unit else ():
        for param, schema in view.sentence.tools.spec(tool).params.items():
            is_number = schema.get("type") in ("number", "integer") and not _QUANTITIES.isdisjoint(roots(param))
            is_list = schema.get("type") == "array" and set(roots(param)) & set(roots(count.unit))
            if is_number or is_list:
                return f"one call of {tool} may be about several {count.unit}, by its `{param}`"
    return ""


def _entity_param(entity: str, tools: tuple[str, ...], view: View) -> tuple[str, ...]:
    """The parameter of all these tools that says which `order` a call is about."""
    known = view.sentence.tools.specs
    params = [set(known[tool].params) for tool in tools if tool in known]
    if not entity or not params:
        return ()
    noun = entity.split(" ", maxsplit=1)[0].rstrip("s")
    fits = [param for param in set.intersection(*params) if noun in (param, *param.split("_"))]
    return tuple(sorted(fits, key=lambda param: (not param.endswith("id"), param))[:1])


# -- turns -------------------------------------------------------------------------------------------------------------

# The shape of a turn: one tool call at a time, no text beside a call, a tool that is called alone.


_STEP = r"(?:turn|response|message|step|reply|time|go)"
_ONE_CALL = any_case(
    rf"\b(?:one|1|a single) (?:tool|function)(?: call| calls)?(?: \w+){{0,3}}? (?:at a time|at once|per {_STEP}|in (?:a"
    rf"|one|each|any) (?:single )?{_STEP}|(?:each|every) {_STEP})|\b(?:tools?|tool calls"
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
    rf"\b(?:as (?:a|the) (?:single|only) (?:action|call|tool(?: call)?)(?: (?:in|of) (?:a|the|its|that) {_STEP})?"
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
_SAME_STEP = any_case(r"\b(?:at|in|within) the same (?:time|turn|response|message|step|reply)\b")
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
_ONE_AT_A_TIME = Reading(
    name="one tool call at a time",
    drafts=(formula("G (tool(*) -> count[<=0t](tool(*)) <= 1)", "count", "it is not the only call of its turn"),),
    forbidden="call several tools in one turn",
)


def read_one_call_at_a_time(view: View) -> Reading | None:
    """`make one tool call at a time`, `call done as a single action`."""
    tools = view.bind(view.main, likeness=False)
    if tools.is_named and not tools.is_any:
        if _BY_ITSELF.search(view.main):
            return _undecided_if_narrowed(view, tools, _forbid_parallel_calls(tools), _BY_ITSELF.sub(" ", view.bare))
        return None
    if _OTHER_NUMBER.search(view.main) or not _ONE_CALL.search(view.main) or not _CALL_OR_TOOL.search(view.main):
        return None
    return _undecided_if_narrowed(view, Bound(), _ONE_AT_A_TIME)


def read_turn_shape(view: View) -> Reading | None:
    """`never call several tools in parallel`; `if you make a tool call, do not respond at the same time`."""
    text = view.whole
    tools = view.bind(view.main, likeness=False)
    if tools.is_named and not tools.is_any:
        return _read_tool_shape(view, tools)
    if _CALL.search(text) and _SPEAK.search(text) and _TOGETHER.search(text):
        draft = formula(r"G !(text(/\S/) & tool(*))", "text", "there is text beside a tool call", over="turns")
        shape = Reading(name="no text beside a tool call", drafts=(draft,), forbidden="say: text beside a tool call")
        return _undecided_if_narrowed(view, Bound(), shape, text)
    several = _SEVERAL.search(text) or (_MORE.search(text) and _CALL.search(text))
    return (
        _undecided_if_narrowed(view, Bound(), _ONE_AT_A_TIME, text)
        if several and not _OTHER_NUMBER.search(text)
        else None
    )


def _read_tool_shape(view: View, tools: Bound) -> Reading | None:
    """`never call A with any other tool`, `never make parallel calls of A`."""
    if _ALONE.search(view.main):
        return _undecided_if_narrowed(view, tools, _forbid_parallel_calls(tools), _ALONE.sub(" ", view.bare))
    if len(tools.tools) > 1 or not _IN_PARALLEL.search(view.main):
        return None
    reading = Reading(
        name=f"no parallel {tools.names}",
        drafts=(at_most(tools.tools, 1, per_turn=True),),
        forbidden=f"{tools.calls} more than once per turn",
        bounds=(tools,),
    )
    return _undecided_if_narrowed(view, tools, reading)


def _undecided_if_narrowed(view: View, tools: Bound, reading: Reading, text: str | None = None) -> Reading:
    """The reading, or undecided if the clause says more than that."""
    left = view.extra(_SAME_STEP.sub(" ", view.bare if text is None else text), tools).split()
    left = [word for word in left if not set(roots(word)) <= _WORDS]
    narrowing = _ON.search(view.main)
    left += [narrowing[0]] if narrowing else []
    conditions = [part for part in view.clause.parts if part.word != "if" or not _CALL_OR_SPEAK.search(part.text)]
    if not left and not conditions:
        return reading
    return Reading(name=reading.name, undecided=narrowing_reason(" ".join(left) or view.quote(conditions[0])))


def _forbid_parallel_calls(tools: Bound) -> Reading:
    """No other call in a turn with one of these."""
    drafts = tuple(
        formula(
            f"G (tool(*) -> (count[<=0t]({atom((tool,))}) <= 0 | count[<=0t](tool(*)) <= 1))",
            "count",
            f"`{tool}` is not the only call of its turn",
        )
        for tool in tools.tools
    )
    return Reading(
        name=f"{tools.names} alone",
        drafts=drafts,
        trigger=tools.calls,
        forbidden="call_tool: any other in the same turn",
        bounds=(tools,),
    )

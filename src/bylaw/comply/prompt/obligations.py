"""Clauses that require, or reserve with `only`.

`always call A`, `A before B`, `after A, call B`, `the reason must be one of …`, `say "…"`, `call A only after B`.
"""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.comply.model import Tier
from bylaw.comply.prompt.answers import read_answer_form
from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.clauses import Clause, ClausePart
from bylaw.comply.prompt.commands import read_absolute_paths, read_command
from bylaw.comply.prompt.conditions import (
    EACH_OR_ALL,
    Condition,
    Constraint,
    find_bound,
    find_choice,
    find_range,
    read_condition,
)
from bylaw.comply.prompt.counts import (
    find_count_of_calls,
    limit_calls,
    read_counts,
    read_one_call_at_a_time,
    require_calls,
)
from bylaw.comply.prompt.dialogue import asks_user, read_required_text
from bylaw.comply.prompt.markers import denies_skipping, is_double_negative
from bylaw.comply.prompt.messages import name_tools
from bylaw.comply.prompt.order import SUCCEEDS, read_before, read_means, read_precedence, read_sequence, read_trigger
from bylaw.comply.prompt.prior_calls import allow_only, require_agreement, require_before
from bylaw.comply.prompt.prohibitions import AT_ONCE, OTHERS_TOO, find_state_in_main, forbid_calls, only_these
from bylaw.comply.prompt.readings import (
    EVERY_ANSWER,
    HOW,
    NO_TIME,
    NO_TOOL,
    OPEN,
    SEVERAL_CONDITIONS,
    STATE_CONFIDENCE,
    Draft,
    Reading,
    View,
    atom,
    formula,
    narrowing_reason,
    shorten,
)
from bylaw.comply.prompt.vocabulary import any_case, roots

_REFUSES = any_case(r"\W*(?:\w+ly )?(?:be )?(?:den(?:y|ied)|refused?|declined?|reject(?:ed)?|turn(?:ed)? down)\b")
_TALK = any_case(r"\b(?:every |each |the |a )?(?:conversation|session|chat)s?\b")
_ASKED = any_case(r"\b(?:asked|asks?|wants?|requests?|demands?|tries|tells you) (?:you )?(?:to|for)\b")
_CONTRAST = any_case(r"\b(?:(?:not|never)(?! (?:more|less|fewer) than)|instead of|rather than)\b|n't\b")
"""`call A, not B` names a tool that is not meant"""
_TWO_ACTIONS = "it contrasts two actions"
_REFUSAL = any_case(r"\b(?:deny|refuse|decline|reject)\b")
_OPENING = any_case(
    r"\b(?:start|begin|open)\b(?: \w+){0,4}? (?:by|with)\b|\bfirst\b(?! then)|\bas (?:your"
    r"|the) first (?:action|step|call)\b|\bfirst (?:action|step|call)\b|\bat the (?:start|beginning)\b"
)
_OF_SOME = any_case(r"\s+(?:for|with|on|in)\b(?! (?:every|each|any|all)\b)")
_CLOSING = any_case(
    r"\b(?:end|finish|conclude)\b(?: \w+){0,4}? (?:by|with)\b|\bas (?:your|the) (?:last|final) (?:action"
    r"|step|call)\b|\bat the end\b"
)
_ONLY = any_case(r"\bonly\b")
_ONLY_THEN = any_case(r"\bonly then\s*,")
"""`after A, and only then, call B` also forbids B before"""
_EVERY_TURN = any_case(r"\b(?:in |on |at |for )?(?:every|each) (?:turn|response|step)\b")
_REQUESTS = any_case(
    r"\b(?:any |all |every )?(?:user |customer )?(?:requests?|demands?|attempts?|ask(?:s|ed)?|wants?"
    r"|tries)\b|\bden(?:y|ied)\b|\b(?:refuse|decline|reject)d?\b|\bto\b|\bfor\b"
)


def read_obligation(view: View) -> Reading:
    if any(_ONLY.search(part.text) for part in view.clause.parts) or _ONLY_THEN.search(view.sentence.masked):
        return Reading(name=view.name, undecided="`only` is part of its condition")
    if is_double_negative(view.marker) and not denies_skipping(view.marker) and view.bind(view.main).is_choice:
        return Reading(name=view.name, undecided="it may demand one of these calls or all of them")
    return (
        _read_refusal(view)
        or read_one_call_at_a_time(view)
        or read_answer_form(view)
        or (Reading(name=view.name, undecided=_TWO_ACTIONS) if _CONTRAST.search(view.bare) else None)
        or read_sequence(view)
        or read_precedence(view)
        or read_means(view)
        or read_before(view)
        or read_trigger(view)
        or _read_count(view)
        or read_absolute_paths(view)
        or _read_constraint(view)
        or read_required_text(view)
        or _read_agreement(view)
        or _read_calls(view)
        or Reading(name=view.name, undecided=NO_TOOL if view.marker.severity in ("critical", "high") else OPEN)
    )


def _read_refusal(view: View) -> Reading | None:
    """`you should deny requests to cancel an order` forbids the order's cancellation."""
    if not (_REFUSES.match(view.action) or _REFUSAL.fullmatch(view.marker.word)):
        return None
    text = view.bare
    condition = view.clause.part("if")
    if condition and len(view.clause.parts) == 1 and _ASKED.search(condition.text):
        view = View(Clause(view.clause.main), view.marker, view.sentence)
        text = condition.text
    tools = view.bind(text)
    if not tools or tools.is_any or view.extra(_REQUESTS.sub(" ", text), tools):
        return Reading(name=view.name, undecided=OPEN)
    return forbid_calls(view, Bound(tools.tools, Tier.LIKELY, min(tools.confidence, 0.7)))


def _read_count(view: View) -> Reading | None:
    """`call send_email at most twice`, `call verify_identity exactly once`."""
    found = find_count_of_calls(view)
    if found is None:
        return read_counts(view)
    return limit_calls(view, *found) if found[0].at == "<=" else require_calls(view, *found)


def _read_constraint(view: View, *, with_range: bool = True) -> Reading | None:
    """`the discount must be between 5 and 20`, `the cabin can only be "economy" or "business"`."""
    tools = view.bind(view.main, likeness=False)
    found = (
        (find_range(view.main, tools.tools, view.sentence) if with_range else None)
        or find_choice(view.main, view.literals(), tools.tools, view.sentence)
        or find_bound(view.main, tools.tools, view.sentence)
    )
    return constrain(view, tools, found) if found else None


def constrain(view: View, tools: Bound, found: Constraint) -> Reading:
    """An argument has to pass; certain only if the sentence names the parameter."""
    is_spoken = set(roots(found.param.name)) <= set(roots(view.main))
    if not tools and not is_spoken:
        tools = view.bind(view.main)
    actors = tools if tools and not tools.is_any else Bound(found.param.tools)
    param = found.param.name
    if actors is not tools and not is_spoken and len(actors.tools) > 1:
        return Reading(name=f"limit {param}", undecided=NO_TOOL)
    name = f"{param} of {' '.join(actors.tools[:2])}"
    values = [value for _, _, one in found.tests for value in (one if isinstance(one, list) else [one])]
    known = [(word, "present", None) for word in (param, *map(str, values))]
    if narrowing := view.narrowing(view.bare, Bound(actors.tools), known):
        return Reading(name=name, undecided=narrowing_reason(narrowing))
    return Reading(
        name=name,
        drafts=(found.required(actors.tools),),
        trigger=actors.calls,
        required=f"argument: {found.words}",
        bounds=(tools,),
        ceiling=1.0 if found.param.is_named else 0.75,
    )


def _read_agreement(view: View) -> Reading | None:
    """`always confirm with the user` alone does not say before what."""
    if asks_user(view.action) and not view.bind(view.main, likeness=False).is_named:
        return Reading(name=view.name, undecided=NO_TOOL)
    return None


# -- calls without a condition -----------------------------------------------------------------------------------------


def _read_calls(view: View) -> Reading | None:
    tools = view.bind(view.main)
    if not tools or tools.is_any:
        return None
    tied, called = (view.bind(text, likeness=False) for text in (view.subject, view.action))
    if tied.is_named and called.is_named and set(called.tools) - set(tied.tools):  # `to call B, you must call A`
        return Reading(name=view.name, undecided="it makes one call depend on another")
    return _read_first(view, tools) or _read_last(view, tools) or _read_every_turn(view, tools) or _always(view, tools)


def _read_first(view: View, tools: Bound) -> Reading | None:
    """`start every conversation by calling A`; in the section of a tool, `call A first` means before that tool."""
    opening = _OPENING.search(view.main)
    if opening is None:
        return None
    section = view.sentence.section
    if section and section not in tools.tools and not _TALK.search(view.main):
        if view.clause.parts:
            return Reading(name=view.name, undecided=SEVERAL_CONDITIONS)
        if extra := view.extra(_OPENING.sub(" ", view.bare), tools):
            return Reading(name=view.name, undecided=narrowing_reason(extra))
        return require_before(view, tools, Bound((section,), is_named=True))
    if len(tools.groups) > 1:
        return Reading(name=view.name, undecided=EACH_OR_ALL)
    if view.marker.word.startswith(("requir", "need")):  # `requires A first`: what does?
        return Reading(name=view.name, undecided=OPEN)
    is_first = opening[0].lower() == "first"
    if is_first and (view.marker.severity == "medium" or _OF_SOME.match(view.main[opening.end() :])):
        # `give a hint first`: before what? `first for orders`: before all that orders need
        return Reading(name=view.name, undecided=OPEN)
    if view.extra(_TALK.sub(" ", _OPENING.sub(" ", view.bare)), tools):
        return Reading(name=view.name, undecided=NO_TOOL)
    message = f"{name_tools(tools.tools)} was not called first"
    draft = formula(f"G (tool(*) -> O {atom(tools.tools)})", "order", message)
    return _call(_less_certain(tools), f"{tools.names} first", draft, how=" first")


def _read_last(view: View, tools: Bound) -> Reading | None:
    """`end every conversation with A`."""
    if (
        len(tools.groups) > 1
        or not _CLOSING.search(view.main)
        or view.extra(_TALK.sub(" ", _CLOSING.sub(" ", view.bare)), tools)
    ):
        return None
    message = f"no call of {name_tools(tools.tools)} came at the end"
    draft = formula(f"G (tool(*) -> F {atom(tools.tools)})", "order", message)
    return _call(_less_certain(tools), f"{tools.names} last", draft, how=" at the end")


def _read_every_turn(view: View, tools: Bound) -> Reading | None:
    """`call A in every turn`."""
    if not _EVERY_TURN.search(view.main) or not tools.is_named or view.clause.parts or len(tools.groups) > 1:
        return None
    if view.extra(_EVERY_TURN.sub(" ", view.bare), tools):
        return None
    message = f"the turn has no call of {name_tools(tools.tools)}"
    draft = formula(f"G {atom(tools.tools)}", "call", message, over="turns")
    return _call(_less_certain(tools), f"{tools.names} every turn", draft, how=" in every turn")


def _always(view: View, tools: Bound) -> Reading:
    """`always call A`; decided only if the sentence says nothing else."""
    extra = view.extra(view.bare, tools)
    if tools.unclear:
        return Reading(name=f"call {tools.names}", undecided=tools.unclear)
    if extra or view.clause.parts:
        return Reading(name=f"call {tools.names}", undecided=narrowing_reason(extra))
    if view.marker.severity in ("medium", "low"):
        return Reading(name=f"call {tools.names}", undecided=NO_TIME)
    drafts = (formula(f"F {atom(group)}", "call", f"{name_tools(group)} was never called") for group in tools.groups)
    return _call(_less_certain(tools), f"always {tools.names}", *drafts)


def _less_certain(tools: Bound) -> Bound:
    """`always get the order first` is meant for conversations about orders; a tool's name is less often."""
    return replace(tools, tier=Tier.LIKELY, confidence=EVERY_ANSWER if tools.is_named else min(tools.confidence, 0.6))


def _call(tools: Bound, name: str, *drafts: Draft, how: str = "") -> Reading:
    return Reading(name=name, drafts=drafts, required=f"{tools.calls}{how}", bounds=(tools,))


# -- clauses with `only` -----------------------------------------------------------------------------------------------

# `only call A or B`, `call A only after B`, `A may only be called once`, `only X may …`.


_USE = any_case(
    r"\b(?:call|use|invoke|run|execute|rely on|work with|calling|using)\w*\b|\b(?:may|can|should"
    r"|must) be (?:called|used|invoked)\b"
)
_ABLE = any_case(r"\b(?:can|able to|have access to|has access to)\b")
"""`you can only use A` may say which tools there are"""
_TOOLS_THERE_ARE = "it may only say which tools are available"
_FIRST_WORD = any_case(r"\W*(?:(?:the|both|either|tools?|functions?)\W+)*([\w.-]*\w)")
_WHO = any_case(r"\bonly\s+(?P<who>[\w' -]+?)\s+(?:may|can|should|are allowed to|is allowed to|shall|must)\b")


def read_reservation(view: View) -> Reading:
    return (
        read_one_call_at_a_time(view)
        or read_answer_form(view)
        or read_command(view)
        or _reserve_by_count(view)
        or _read_condition(view)
        or _read_state(view)
        or _reserve_by_agreement(view)
        or _read_constraint(view, with_range=False)
        or _read_nothing_else(view)
        or _leave_open(view)
    )


def _leave_open(view: View) -> Reading:
    tools = view.bind(view.main, likeness=False)
    why = f"no event shows whether `{shorten(view.extra(view.bare, tools) or view.main)}` holds"
    return Reading(name=f"only {shorten(view.action, 40)}", undecided=why if tools else NO_TOOL)


def _reserve_by_count(view: View) -> Reading | None:
    """`A may only be called once per order`."""
    found = find_count_of_calls(view)
    return limit_calls(view, *found) if found and found[0].at != ">=" else None


def _read_condition(view: View) -> Reading | None:
    """`call issue_refund only after verify_identity`."""
    parts = view.clause.parts
    tools = view.bind(view.main)
    if not parts or not tools:
        return None
    if len(parts) > 1:
        return Reading(name=f"only {tools.names}", undecided=SEVERAL_CONDITIONS)
    if extra := view.extra(view.bare, tools):
        return Reading(name=f"only {tools.names}", undecided=narrowing_reason(extra))
    condition = read_condition(view, parts[0], tools)
    if _belongs_to_tools(view, parts[0], tools):
        return _allow_only_these(view, tools, condition)
    if parts[0].word in ("before", "until", "unless", "without"):  # `only call A before B`: no A later, or no other?
        return Reading(name=f"only {tools.names}", undecided="it may forbid these calls or all others")
    if not condition.is_read or (condition.tools.is_named and OTHERS_TOO.search(parts[0].text)):
        return Reading(name=f"only then {tools.names}", undecided=condition.reason)
    return allow_only(view, tools, condition)


def _belongs_to_tools(view: View, part: ClausePart, tools: Bound) -> bool:
    """Whether `only` limits which tools are called: `after B, only call A`, `only A may be called before B`.

    `call A only after B`, `only call A after B` and `only after B, call A` limit when A is called.
    """
    if view.sentence.masked[view.marker.start : view.marker.end].lower() != view.marker.word:
        return False  # it is part of the conjunction
    first = _FIRST_WORD.match(view.action)
    return part.start < view.clause.main.start or (first is not None and first[1] in tools.tools)


def _allow_only_these(view: View, tools: Bound, condition: Condition) -> Reading:
    """`before B, only call A`: until a call of B, no other tool."""
    part, other = condition.part, condition.tools
    name = f"only {tools.names} {part.word} {other.names}"
    is_read = len(other.tools) == 1 and not other.is_any and not condition.failed and not condition.is_negated
    if not is_read or not tools.is_named or part.word not in ("before", "until", "after") or not _USE.search(view.main):
        return Reading(name=name, undecided="it forbids all other calls under a condition")
    if narrowing := view.narrowing(part.text, other):
        return Reading(name=name, undecided=narrowing_reason(narrowing))
    if _ABLE.search(view.subject) or AT_ONCE.search(part.conjunction):
        return Reading(name=name, undecided=HOW if AT_ONCE.search(part.conjunction) else _TOOLS_THERE_ARE)
    done = f"{atom(other.tools, of='result')[:-1]}, error = false)" if SUCCEEDS.search(part.text) else atom(other.tools)
    allowed, is_after = (tools.tools, "!Y O") if part.word == "after" else ((*tools.tools, *other.tools), "O")
    when = "after" if part.word == "after" else "before"
    message = f"{when} {name_tools(other.tools)}, only {name_tools(tools.tools)} may be called"
    return Reading(
        name=name,
        drafts=(formula(f"G (tool(*) -> ({atom(allowed)} | {is_after} {done}))", "call", message),),
        trigger=f"{when} {view.quote(part)}",
        forbidden="call_tool: any other",
        bounds=(tools, other),
        ceiling=EVERY_ANSWER,
    )


def _read_state(view: View) -> Reading | None:
    """`only cancel orders with status "pending"`."""
    tools = view.bind(view.main, likeness=False)
    state = find_state_in_main(view, tools)
    if state is None:
        return None
    return Reading(
        name=f"only then {tools.names}",
        drafts=(state.only(tools.tools),),
        trigger=f"unless {state.words}",
        forbidden=tools.calls,
        bounds=(tools,),
        ceiling=STATE_CONFIDENCE,
    )


def _reserve_by_agreement(view: View) -> Reading | None:
    """`cancel an order only with the customer's consent`."""
    tools = view.bind(view.subject, likeness=False)
    if not tools or tools.is_any or view.extra(view.subject, tools) or not asks_user(view.action):
        return None
    return require_agreement(view, tools)


def _read_nothing_else(view: View) -> Reading | None:
    """`only use A and B`: no other tool. `only managers may call A` is about people, whom no event shows."""
    tools = view.bind(view.main, likeness=False)
    if not tools or tools.is_any or not _USE.search(view.main) or view.clause.parts:
        return None
    who = _WHO.search(view.main)
    if (who and not view.bind(who["who"], likeness=False)) or view.extra(view.bare, tools):
        return None
    if _ABLE.search(view.subject):
        return Reading(name=f"only {tools.names}", undecided=_TOOLS_THERE_ARE)
    return only_these(tools)

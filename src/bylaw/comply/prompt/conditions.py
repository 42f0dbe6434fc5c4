"""The parts that depend on a clause (if, unless, before, after …), and rules that allow a call only on a condition."""

from __future__ import annotations

from msgspec import Struct

from bylaw.comply.prompt.arguments import find_bound, find_choice, find_state, shared_ids
from bylaw.comply.prompt.binding import Bound, speaks_of_destructive_sql, sql_params
from bylaw.comply.prompt.clauses import Part
from bylaw.comply.prompt.dialogue import AGREEMENT_CONFIDENCE, asks_user, confirmed, find_texts
from bylaw.comply.prompt.readings import (
    STATE_CONFIDENCE,
    ArgTest,
    Draft,
    Field,
    Reading,
    View,
    atom,
    called_before,
    calls_with,
    described_state,
    either,
    formula,
    holds,
    not_shown,
)
from bylaw.comply.prompt.returns import FLAGS, answer_of, verifies
from bylaw.comply.prompt.vocabulary import any_case

EXCEPTIONS = ("unless", "without", "until", "before", "iff")
"""conjunctions of parts that say when a forbidden action is allowed after all"""
_FAILS = any_case(
    r"\b(?:fail(?:s|ed)?|errors?|(?:return|throw|raise)s? an? (?:error|exception)|unsuccessful"
    r"|is not successful|does not succeed)\b"
)
_USER_SAYS = any_case(
    r"\b(?:user|customer|client|caller|they|human)\b[^.]{0,40}?\b(?:say|said|type|typed|types|write|writes"
    r"|wrote|mention|message|repl|answer|ask|enter|contain|include|use)"
)
_NOT = any_case(r"\b(?:not|never|no)\b|n't\b")
_OR = any_case(r"\bor\b")
_SAME = any_case(
    r"\b(?:same|each|every|corresponding|(?<!in )that (?:order|user|account|customer|item|file|booking|reservation"
    r"|id))\b|\b(?:verified|validated|checked|authenticated|approved) (?:by|with|using|via|through)\b"
)
"""both calls are about the same thing"""
_AUXILIARIES = any_case(r"\b(?:(?:has|have|had|was|were|is)n't|was|were)\b")
_EACH_TIME = any_case(
    r"\b(?:before|prior to|ahead of) (?:(?:any and )?(?:each|every)(?: (?:time|new|single))?)\b|\b(?:each|every) time\b"
)
"""one call before does not cover all later ones"""
_IN_ORDER = any_case(r"\bin (?:that|this|the given|exactly this|exactly that) (?:order|sequence)\b")
_DESTRUCTIVE_SQL = r"\b(?:drop|delete|truncate|alter|update|grant|revoke)\b"


class Condition(Struct, frozen=True):
    """One part as events show it. At most one of `tests`, `state`, `tools`, `agreed` and `said` is set."""

    part: Part
    quote: str
    """the part as it is written"""
    tests: tuple[ArgTest, ...] = ()
    state: Field | None = None
    tools: Bound = Bound()
    failed: bool = False
    """calls of these tools returned an error"""
    agreed: bool = False
    """the user agreed"""
    said: str = ""
    """a formula: the user said it"""
    is_negated: bool = False
    """it speaks of a call or an agreement that did not happen"""

    @property
    def is_read(self) -> bool:
        return bool(self.tests or self.state or self.tools or self.agreed or self.said)

    @property
    def reason(self) -> str:
        return f"no event shows whether `{self.quote}` holds"

    @property
    def trigger(self) -> str:
        """The formula of the call, or of the failed call, that the part speaks of."""
        if self.failed:
            return atom(self.tools.tools, of="result")[:-1] + ", error = true)"
        return atom(self.tools.tools)


def read_condition(view: View, part: Part, actor: Bound) -> Condition:
    """What a part says; `actor` are the tools whose calls it limits."""
    text, quote = part.text, view.quote(part)
    unread = Condition(part, quote)
    if tests := _tests(view, part, actor.tools):
        return unread if view.narrowing(text, actor, tests) else Condition(part, quote, tests)
    if len(actor.tools) == 1:
        state = find_state(text, part.start, view.literals(part), actor.tools[0], view.sentence)
        if state:
            shown = [(name, "present", None) for name in (state.name, *state.joined)]
            return unread if view.narrowing(text, actor, shown) else Condition(part, quote, state=state)
    is_negated = _NOT.search(text) is not None
    if tools := view.bind(text, likeness=False).without(*actor.tools):
        if _OR.search(text) and len(tools.tools) == 1:
            return unread
        if described_state(text, tools) or described_state(text, tools, is_condition=True):
            return unread
        failed = _FAILS.search(text) is not None
        return Condition(part, quote, tools=tools, failed=failed, is_negated=is_negated)
    if asks_user(text):
        return Condition(part, quote, agreed=True, is_negated=is_negated)
    if _USER_SAYS.search(text) and (texts := find_texts(f"say {text}", view.texts(part))):
        return Condition(part, quote, said=texts.said_by_user(), is_negated=is_negated)
    return unread


def _tests(view: View, part: Part, tools: tuple[str, ...]) -> tuple[ArgTest, ...]:
    if not tools:
        return ()
    if (bound := find_bound(part.text, tools, view.sentence)) and bound.tests:
        return bound.tests
    choice = find_choice(part.text, view.literals(part), tools, view.sentence)
    return choice.tests if choice else ()


# -- calls that need something before them -----------------------------------------------------------------------------


def require_before(
    view: View, first: Bound, second: Bound, tests: tuple[ArgTest, ...] = (), *, ceiling: float = 1.0
) -> Reading:
    """`call verify_identity before issue_refund`: each of the first tools, or one of them if they are a choice."""
    drafts = []
    anew = _EACH_TIME.search(view.whole) is not None
    if len(first.groups) > 1 and _IN_ORDER.search(view.whole):
        drafts.append(formula(f"G ({atom(second.tools, tests)} -> {_one_after_another(first.groups)})", "order"))
    for group in first.groups:
        joined = shared_ids(group, second.tools, view.sentence) if _SAME.search(view.whole) else ()
        drafts.append(called_before(group, second.tools, tests=tests, joined=joined, anew=anew))
        drafts += _not_negative(view, group, second.tools, tests, joined)
    return Reading(
        name=f"{first.names} before {second.names}",
        drafts=tuple(drafts),
        trigger=calls_with(second, tests),
        required=first.calls,
        bounds=(first, second),
        ceiling=ceiling,
    )


def _one_after_another(groups: list[tuple[str, ...]]) -> str:
    """`preceded by A and B, in that order`: O (B & O A)."""
    found = f"O {atom(groups[0])}"
    for group in groups[1:]:
        found = f"O ({atom(group)} & {found})"
    return found


def _not_negative(
    view: View, first: tuple[str, ...], second: tuple[str, ...], tests: tuple[ArgTest, ...], joined: tuple[str, ...]
) -> list[Draft]:
    """A check that came back negative does not verify: the latest result of the first tool is not `false`.

    Only of tools that verify, or whose results have a flag that says so: that `check_fraud` says no is wanted.
    """
    spec = view.sentence.tools.specs.get(first[0])
    if spec is None or len(first) > 1:
        return []
    is_check, kind = verifies(spec.name), answer_of(spec)
    known = FLAGS | ({"ok", "success", "passed"} if is_check else set())
    flags = [f"result.{one} = false" for one in spec.fields if one.lower() in known] if kind == "object" else []
    flags = ["result = false"] if kind == "boolean" and is_check else flags
    if not flags:
        return []
    joined = joined or shared_ids(first, second, view.sentence)
    shown, call = atom(first, of="result", joined=joined), atom(second, tests, joined=joined)
    negative = either([f"{shown[:-1]}, {flag})" for flag in flags])
    if joined:
        return [formula(f"G ({call} -> !(!{shown} S {negative}))", "state")]
    # Whose check it was is not known: one that was positive may be that of this call.
    return [formula(f"G ({call} -> !(O {negative} & !O ({shown} & !{negative})))", "state")]


def require_agreement(view: View, tools: Bound, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """`ask the user to confirm before you cancel an order`."""
    return Reading(
        name=f"confirm before {' '.join(tools.tools[:3])}",
        drafts=(confirmed(tools.tools, tests), *(confirmed(*one) for one in destructive_sql(view))),
        trigger=calls_with(tools, tests),
        required="confirm_with_user",
        bounds=(tools,),
        ceiling=AGREEMENT_CONFIDENCE,
    )


def destructive_sql(view: View) -> list[tuple[tuple[str, ...], tuple[ArgTest, ...]]]:
    """`destructive SQL`: calls of the tools that run SQL, with a statement that destroys data."""
    if not speaks_of_destructive_sql(view.whole):
        return []
    return [((tool,), ((param, "matches", _DESTRUCTIVE_SQL),)) for tool, param in sql_params(view.sentence.tools)]


def allow_only(view: View, tools: Bound, condition: Condition, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """`cancel an order only if its status is "pending"`: calls of these tools (with these arguments) need it."""
    is_readable = not condition.is_negated or condition.part.word == "if"
    if is_readable and condition.tools and not condition.failed:
        ids = [(param, "present", None) for one in condition.tools.groups for param in _shared(one, tools, view)]
        if narrowing := view.narrowing(_AUXILIARIES.sub(" ", condition.part.text), condition.tools, ids):
            return Reading(name=f"limit {tools.names}", undecided=not_shown(narrowing))
        return require_before(view, condition.tools, tools, tests)
    if is_readable and condition.agreed:
        return require_agreement(view, tools, tests)
    draft = _allow_only(tools, condition) if is_readable and not tests else None
    if draft is None:
        return Reading(name=f"limit {tools.names}", undecided=condition.reason)
    return Reading(
        name=f"only then {tools.names}",
        drafts=(draft,),
        trigger=view.when_not(condition.part),
        forbidden=tools.calls,
        bounds=(tools,),
        ceiling=1.0 if condition.tests else STATE_CONFIDENCE,
    )


def _shared(first: tuple[str, ...], second: Bound, view: View) -> tuple[str, ...]:
    return shared_ids(first, second.tools, view.sentence) if _SAME.search(view.whole) else ()


def _allow_only(tools: Bound, condition: Condition) -> Draft | None:
    if condition.tests:
        return holds(tools.tools, condition.tests)
    if condition.state:
        return condition.state.only(tools.tools)
    if condition.said:
        return formula(f"G ({atom(tools.tools)} -> O {condition.said})", "dialogue")
    return None

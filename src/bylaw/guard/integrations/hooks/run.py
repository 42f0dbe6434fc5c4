"""One run of the hook: the event is decided or recorded, and the client gets its answer.

INVARIANT: `run_hook` raises nothing, and whatever goes wrong before a call blocks it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bylaw.guard.integrations.hooks.answers import Answer, allow, allow_instead, ask, block, refuse, tell
from bylaw.guard.integrations.hooks.connection import PROJECT
from bylaw.guard.integrations.hooks.payloads import Client, HookEvent, Unreadable, read_payload

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard
    from bylaw.guard.model import Attempt, Decision
    from bylaw.guard.stores.records import EventRow, ReviewRecord

RULES = "bylaw.yaml"
STORE = ".bylaw/guard.db"
AT_THE_CLIENT = "the person at the client"
"""who has approved a call that the client itself has asked about"""
LOOK_BACK = 5_000
"""rows of the log in which the call of a result is searched, for clients that give no ids to calls"""


class HookOptions(Struct, frozen=True, kw_only=True):
    client: Client | None = None
    event: str | None = None
    policy: str | None = None
    store: str | None = None
    agent: str | None = None
    folder: str | None = None
    """where the hook was started, if not here"""


class _Unusable(Exception):
    """The guard cannot be made. The message is for the model, and for the person who reads along."""


def run_hook(text: bytes, options: HookOptions, environment: Mapping[str, str] = os.environ) -> Answer:
    try:
        event = read_payload(text, client=options.client, event=options.event)
    except Exception as problem:
        why = str(problem) if isinstance(problem, Unreadable) else f"{type(problem).__name__}: {problem}"
        return refuse(f"bylaw: the call is not allowed, since the hook cannot read it: {why}")
    try:
        return _answer(event, options, environment)
    except _Unusable as problem:
        return block(event, f"bylaw: {_consequence(event)}: {problem}")
    except Exception as problem:
        return block(
            event, f"bylaw: {_consequence(event)}, since the guard failed: {type(problem).__name__}: {problem}"
        )


def _consequence(event: HookEvent) -> str:
    return {
        "before": "the call is not allowed",
        "after": "the result of the call was not recorded",
        "start": "calls will not be allowed",
        "end": "the end of the session was not recorded",
    }[event.moment]


def _answer(event: HookEvent, options: HookOptions, environment: Mapping[str, str]) -> Answer:
    with _open_guard(event, options, environment) as guard:
        match event.moment:
            case "before":
                return _decide(guard, event, options)
            case "after":
                return _record(guard, event, options)
            case "end":
                broken = [verdict.message for verdict in guard.end_session(event.session)]
                return Answer(stderr="\n".join(broken))
            case _:
                return allow()  # the rules can be read, and the store can be opened


def _open_guard(event: HookEvent, options: HookOptions, environment: Mapping[str, str]) -> Guard:
    from bylaw.errors import InputError
    from bylaw.guard.guard import Guard
    from bylaw.guard.stores.ports import StoreUnavailable

    rules = find_rules(event, options, environment)
    here = Path(options.folder or os.getcwd())
    store = here / options.store if options.store else rules.parent / STORE
    try:
        _make_folder(store.parent)
        guard = Guard(rules, store=store)
    except (InputError, ValueError) as problem:
        raise _Unusable(f"the rules cannot be used: {problem}") from None
    except (StoreUnavailable, OSError) as problem:
        raise _Unusable(str(problem)) from None
    if guard.policies.decide_nothing:  # nothing checked is not a pass
        guard.close()
        raise _Unusable(f"no rule in `{rules}` decides calls: give one a `then`")
    return guard


def find_rules(event: HookEvent, options: HookOptions, environment: Mapping[str, str]) -> Path:
    """The outermost `bylaw.yaml` on the way up: an agent must not replace the rules by a file in a folder below."""
    here = Path(options.folder or os.getcwd())
    if options.policy:
        return here / options.policy
    project = next((environment[name] for name in PROJECT if environment.get(name)), event.folder) or "."
    start = Path(os.path.abspath(here / project))
    found = [folder / RULES for folder in (start, *start.parents) if (folder / RULES).is_file()]
    if not found:
        raise _Unusable(f"there is no `{RULES}` in `{project}` or above; pass --policy FILE")
    return found[-1]


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        if folder.name == ".bylaw":
            (folder / ".gitignore").write_text("*\n", "utf-8")


# -- before a call ----------------------------------------------------------------------------------------------------


def _decide(guard: Guard, event: HookEvent, options: HookOptions) -> Answer:
    from bylaw.guard.model import Denied
    from bylaw.model.guard_policy import Action

    attempt = _attempt(event, options)
    decision = guard.decide(attempt)
    review = None
    if decision.action is Action.PAUSE and decision.review is not None:
        review = guard.reviews.get(decision.review)
        if review is not None and review.status == "approved":  # the agent tries again what a person has approved
            decision = guard._after_answer(attempt, decision, review)
    if decision.action is Action.ALLOW:
        return _allow(guard, event, decision)
    text = f"bylaw: {Denied(decision)}"
    if decision.action is not Action.PAUSE or decision.review is None:
        return block(event, text)
    if event.can_ask and review is not None and not review.needs and review.status == "pending":
        return ask(event, f"bylaw: {decision.reason} (waiting for a person: {decision.review})")
    advice = "the same call can be made again once the review is approved"
    return block(event, f"bylaw: waiting for a person: {decision.review}: {decision.reason}; {advice}")


def _allow(guard: Guard, event: HookEvent, decision: Decision) -> Answer:
    call = decision.call
    if call is None or (call.tool, call.arguments) == (event.tool, event.arguments or {}):
        return allow()
    why = "bylaw: a person has approved the call with other arguments"
    answer = allow_instead(event, call.arguments, why) if call.tool == event.tool else None
    if answer is None:  # the approval is used up with it, as it would be if the call had failed
        guard.release(decision)
        return block(event, f"{why}, and this client cannot exchange them: call `{call.tool}` with {call.arguments}")
    return answer


def _attempt(event: HookEvent, options: HookOptions) -> Attempt:
    from bylaw.guard.model import Attempt

    return Attempt(
        tool=event.tool,
        arguments=event.arguments,
        session=event.session,
        agent=options.agent,
        call_id=event.call_id,
    )


# -- after a call -----------------------------------------------------------------------------------------------------


def _record(guard: Guard, event: HookEvent, options: HookOptions) -> Answer:
    call_id = _approved_at_client(guard, event, options) or event.call_id or _find_call(guard, event)
    if call_id is None:
        return tell(event, "bylaw: the guard was not asked about this call before it ran; its result is not recorded")
    broken = guard.record(call_id, event.content, session=event.session, is_error=event.is_error)
    if not broken:
        return allow()
    rules = "; ".join(f"`{verdict.rule.id}`: {verdict.message}" for verdict in broken)
    return tell(event, f"bylaw: the call has broken {rules}")


def _approved_at_client(guard: Guard, event: HookEvent, options: HookOptions) -> str | None:
    """The id of a call about which the client has asked: it has run, so the person has said yes."""
    for review in guard.store.reviews(status="pending", session=guard.session_key(event.session)):
        if not review.needs and _is_about(review, event, guard.policies.named(options.agent)):
            guard.reviews.approve(review.id, by=AT_THE_CLIENT)
            return guard.decide(_attempt(event, options), review=review.id).call_id
    return None


def _is_about(review: ReviewRecord, event: HookEvent, agent: str | None) -> bool:
    from bylaw.guard.reviews import action_hash

    return action_hash(event.tool, event.arguments, agent, review.bound_to or review.policy) == review.action_hash


def _find_call(guard: Guard, event: HookEvent) -> str | None:
    """The oldest call that was allowed with these arguments and has no result yet: Gemini and Copilot name no calls."""
    from bylaw.guard.decide.records import REDACT

    session = guard.session_key(event.session)
    open_calls: dict[str, EventRow] = {}
    after = max(0, guard.store.last_event() - LOOK_BACK)
    for row in guard.store.events(after=after, session=session, limit=LOOK_BACK):
        data: Any = row.data
        if row.kind == "decision" and data["decision"]["action"] == "allow":
            open_calls[data["decision"].get("call_id", "")] = row
        elif row.kind in ("result", "release"):
            open_calls.pop(data.get("result_of") or data.get("call_id"), None)
    wanted = REDACT(event.arguments)
    for call_id, row in open_calls.items():
        attempt = row.data["attempt"]
        if attempt["tool"] == event.tool and (attempt.get("arguments") or {}) == (wanted or {}):
            return call_id
    return None

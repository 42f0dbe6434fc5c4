"""One run of the hook: the event is decided or recorded, and the client gets its answer.

INVARIANT: `run_hook` raises nothing, and whatever goes wrong before a call blocks it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bylaw.guard.integrations.hooks.answers import Answer, allow, allow_instead, ask, block, refuse, tell
from bylaw.guard.integrations.hooks.payloads import Client, HookEvent, Unreadable, read_payload
from bylaw.guard.integrations.hooks.rule_files import NoRules, find_rules

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard
    from bylaw.guard.model import Attempt, Decision


class HookOptions(Struct, frozen=True, kw_only=True):
    client: Client | None = None
    event: str | None = None
    policy: str | None = None
    store: str | None = None
    agent: str | None = None
    root: str | None = None
    """the project"""
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
    from bylaw.guard.guard import StrictGuard
    from bylaw.guard.stores.ports import StoreUnavailable

    here = Path(options.folder or os.getcwd())
    try:
        found = find_rules(
            here, root=options.root, policy=options.policy, folders=event.folders, environment=environment
        )
    except NoRules as problem:
        raise _Unusable(str(problem)) from None
    store = here / (options.root or "") / options.store if options.store else found.store
    try:
        _make_folder(store.parent)
        return StrictGuard(found.files, store=store)
    except InputError as problem:
        raise _Unusable(f"the rules cannot be used: {problem}") from None
    except ValueError as problem:
        files = "`, `".join(map(str, found.files))
        raise _Unusable(f"the rules in `{files}` cannot be used: {problem}") from None
    except (StoreUnavailable, OSError) as problem:
        raise _Unusable(str(problem)) from None


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
    if decision.decided_by == "call-id":
        text += "; for the user: the client has sent this call before: if the hook is installed twice, remove one"
    if decision.action is not Action.PAUSE or decision.review is None:
        return block(event, text)
    if event.can_ask and review is not None and not review.needs and review.status == "pending":
        from bylaw.guard.integrations.hooks.results import note_question

        note_question(guard, event, review)
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
    from bylaw.guard.integrations.hooks.results import find_call, note_bypass

    attempt = _attempt(event, options)
    call_id = find_call(guard, event, attempt)
    if call_id is None and event.never_ran:
        return allow()
    said = None if call_id is not None else note_bypass(guard, event)
    if call_id is None:
        call_id = guard.record_past_call(attempt)
    broken = guard.record(call_id, event.content, session=event.session, is_error=event.is_error)
    rules = "; ".join(f"`{verdict.rule.id}`: {verdict.message}" for verdict in broken)
    texts = [*([said] if said else []), *([f"bylaw: the call has broken {rules}"] if rules else [])]
    return tell(event, "\n".join(texts)) if texts else allow()

"""One run of the hook: the event is decided or recorded, and the client gets its answer.

INVARIANT: `run_hook` raises nothing, and whatever goes wrong before a call blocks it.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from bylaw.errors import InputError
from bylaw.guard.decide.attempts import id_as_run
from bylaw.guard.decide.session import SessionState, is_generated
from bylaw.guard.guard import Guard, StrictGuard
from bylaw.guard.integrations.hooks import PROJECT
from bylaw.guard.integrations.hooks.payloads import (
    Answer,
    Client,
    HookEvent,
    Moment,
    Unreadable,
    allow,
    allow_instead,
    ask,
    block,
    read_payload,
    refuse,
    tell,
)
from bylaw.guard.model import Attempt, Decision, Denied, Match, stopping_rules
from bylaw.guard.reviews import action_hash
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.guard.stores.records import EventRow, ReviewRecord
from bylaw.guard.tools import is_same_json
from bylaw.model.rule import Action


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


def run_hook(text: bytes, options: HookOptions, environment: Mapping[str, str] = os.environ) -> Answer:
    try:
        event = read_payload(text, client=options.client, event=options.event)
    except Exception as problem:
        why = str(problem) if isinstance(problem, Unreadable) else f"{type(problem).__name__}: {problem}"
        return refuse(f"bylaw: the call is not allowed, since the hook cannot read it: {why}")
    try:
        return _answer(event, options, environment)
    except NoRules as problem:
        return block(event, f"bylaw: {_CONSEQUENCES[event.moment]}: {problem}")
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"
        return block(event, f"bylaw: {_CONSEQUENCES[event.moment]}, since the guard failed: {why}")


_CONSEQUENCES: dict[Moment, str] = {
    "before": "the call is not allowed",
    "after": "the result of the call was not recorded",
    "start": "calls will not be allowed",
    "end": "the end of the session was not recorded",
}


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
    """Raises NoRules."""
    here = Path(options.folder or os.getcwd())
    found = find_rules(here, root=options.root, policy=options.policy, folders=event.folders, environment=environment)
    store = here / (options.root or "") / options.store if options.store else found.store
    try:
        _make_folder(store.parent)
        return StrictGuard(found.files, store=store)
    except InputError as problem:
        raise NoRules(f"the rules cannot be used: {problem}") from None
    except ValueError as problem:
        files = "`, `".join(map(str, found.files))
        raise NoRules(f"the rules in `{files}` cannot be used: {problem}") from None
    except (StoreUnavailable, OSError) as problem:
        raise NoRules(str(problem)) from None


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        if folder.name == ".bylaw":
            (folder / ".gitignore").write_text("*\n", "utf-8")


# -- before a call ----------------------------------------------------------------------------------------------------


def _decide(guard: Guard, event: HookEvent, options: HookOptions) -> Answer:
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
        _note(guard, event, "asked", review=review.id)
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
    return Attempt(
        tool=event.tool,
        arguments=event.arguments,
        session=event.session,
        agent=options.agent,
        call_id=event.call_id,
    )


# -- after a call -----------------------------------------------------------------------------------------------------


def _record(guard: Guard, event: HookEvent, options: HookOptions) -> Answer:
    attempt, session = _attempt(event, options), guard.session_key(event.session)
    with guard._sessions.transaction(session) as transaction:
        state = guard._sessions.read(transaction, session)[1]
    call_id, texts = find_call(guard, event, attempt, state), []
    if call_id is None and event.never_ran:
        return allow()
    if call_id is None:
        texts.append(note_bypass(guard, event))
        call_id = guard.record_past_call(attempt)
    elif not event.never_ran and is_changed(guard, event, call_id, state):
        call_id, matches = guard.record_changed_call(call_id, attempt)
        texts += note_change(guard, event, matches)
    broken = guard.record(call_id, event.content, session=event.session, is_error=event.is_error)
    if rules := "; ".join(f"`{verdict.rule.id}`: {verdict.message}" for verdict in broken):
        texts.append(f"bylaw: the call has broken {rules}")
    return tell(event, "\n".join(texts)) if texts else allow()


# -- the call to which a result belongs -------------------------------------------------------------------------------
# A result of a call that was not allowed means that the guard was bypassed. A call counts as approved by the person at
# the client only if the hook has told the client to ask about this very call. The question is a row in the store, since
# another process reads the result.

AT_THE_CLIENT = "the person at the client"
"""who has approved a call that the client itself has asked about"""
LOOK_BACK = 5_000
"""rows of the log in which a call, or the question about it, is searched"""
_log = logging.getLogger("bylaw")


def note_bypass(guard: Guard, event: HookEvent) -> str:
    """A call has run that was not allowed. Returns what the model and the person are told."""
    call = f"`{event.tool}`" + (f" ({event.call_id})" if event.call_id else "")
    why = f"{event.client} has run {call}, which the guard had not allowed"
    _log.error("the guard was bypassed: session %s: %s", event.session, why)
    _note(guard, event, "bypassed", why=why)
    return f"bylaw: the guard was bypassed: {why}; stop, and tell the user"


def note_change(guard: Guard, event: HookEvent, matches: Sequence[Match]) -> list[str]:
    """A call that was allowed has run with other arguments. Returns what the model and the person are told: nothing if
    no rule would have stopped it, since clients add to the arguments of some tools, such as the answers of a person."""
    why = f"{event.client} has run `{event.tool}` ({event.call_id}) with other arguments than the guard had allowed"
    rules = stopping_rules(matches)
    _log.log(logging.ERROR if rules else logging.WARNING, "session %s: %s", event.session, why)
    _note(guard, event, "changed", why=why)
    return [f"bylaw: {why}, which {rules} would have stopped; stop, and tell the user"] if rules else []


def _note(guard: Guard, event: HookEvent, how: str, **about: Any) -> None:
    session = guard.session_key(event.session)
    data = {"how": how, "what": how, "why": None, "tool": event.tool, "call_id": event.call_id, **about}
    with guard.store.transaction(session) as transaction:
        transaction.append_to_both(EventRow(session, "hook", time.time(), data))


def find_call(guard: Guard, event: HookEvent, attempt: Attempt, state: SessionState) -> str | None:
    """The id of the call that was allowed, or about which the client has asked: it has run, so the person has said yes.
    None if there is no such call."""
    found = _allowed_call(guard, event, state)
    return found or (None if event.never_ran else _approved_at_client(guard, event, attempt))


def is_changed(guard: Guard, event: HookEvent, call_id: str, state: SessionState) -> bool:
    """Whether the result says that the call has run with other arguments than this one, as far as they were stored:
    secrets were not, and what differs in them alone is not noticed."""
    if event.arguments is None or call_id not in (event.call_id, id_as_run(event.call_id or "")):
        return False
    call = state.open.get(call_id)
    tool, made = _logged_call(guard, event, call_id) if call is None else (call.name, call.arguments)
    made = getattr(made, "written", made)
    if tool is None:
        return False
    ran = guard._sessions.redact(event.arguments)
    if event.is_partial:
        ran = {**(made or {}), **ran}
    return event.tool != tool or not is_same_json(ran, made or {})


def _logged_call(guard: Guard, event: HookEvent, call_id: str) -> tuple[str | None, Any]:
    """Tool and arguments of the last call with this id that was allowed, or judged after it ran; no tool if the log
    does not have them."""
    found: dict[str, Any] = {}
    for row in _rows(guard, event):
        data: Any = row.data
        if row.kind == "decision" and data["decision"]["action"] == "allow":
            found = data if data["decision"].get("call_id") == call_id else found
        elif row.kind == "taken" and data.get("call_id") == call_id:
            found = data
    attempt = {} if "unwritten" in found else found.get("attempt", {})
    return attempt.get("tool"), attempt.get("arguments")


def _allowed_call(guard: Guard, event: HookEvent, state: SessionState) -> str | None:
    """The call with the id of the result. If either of them has no id, it is the oldest call that was allowed with
    these arguments and has no result yet: Gemini CLI and Copilot CLI give no ids, and Cursor only in some events."""
    id = event.call_id
    if id in state.open:
        return id
    if id is not None and state.is_used(id):
        if state.is_used(id_as_run(id)):
            return id_as_run(id)
        released = (row for row in _rows(guard, event) if row.kind == "release")
        is_released = any(row.data.get("call_id") == id for row in released)
        return None if is_released else id  # a second result
    # as they were stored, without secrets
    calls = ((one.call_id, one.name, getattr(one.arguments, "written", one.arguments)) for one in state.open.values())
    wanted = event.tool, guard._sessions.redact(event.arguments or {})
    for call_id, *made in chain(calls, _logged_calls(guard, event)):
        if call_id == id or (tuple(made) == wanted and (id is None or is_generated(call_id))):
            return call_id
    return None


def _logged_calls(guard: Guard, event: HookEvent) -> Iterator[tuple[str, str, Any]]:
    """The calls in the log that were allowed and have no result yet, the oldest first: id, tool and arguments. A
    session keeps a call open only if a rule needs its result, and only so many."""
    made: dict[str, Any] = {}
    for row in _rows(guard, event):
        data: Any = row.data
        if row.kind == "session":  # an earlier session of the same name
            made.clear()
        elif row.kind == "decision" and data["decision"]["action"] == "allow":
            made[data["decision"].get("call_id", "")] = data["attempt"]
        elif row.kind in ("result", "release"):
            made.pop(data.get("result_of") or data.get("call_id"), None)
    yield from ((id, attempt["tool"], attempt.get("arguments") or {}) for id, attempt in made.items())


def _approved_at_client(guard: Guard, event: HookEvent, attempt: Attempt) -> str | None:
    review = _question(guard, event, guard.policies.named(attempt.agent))
    if review is None:
        return None
    id: str | None = review.id
    if review.status == "used" and review.decided_by == AT_THE_CLIENT:  # by an equal call that was also asked about
        id = guard.decide(attempt).review
    elif review.status != "pending":
        return None
    if id is None:
        return None
    _note(guard, event, "answered", review=review.id)
    guard.reviews.approve(id, by=AT_THE_CLIENT)
    decision = guard.decide(attempt, review=id)
    return decision.call_id if decision else None


def _question(guard: Guard, event: HookEvent, agent: str | None) -> ReviewRecord | None:
    """The review about which the client was told to ask for this call, and which no earlier result has answered."""
    asked: list[str] = []
    for row in _rows(guard, event):
        how = row.data.get("how")
        if row.kind == "session":  # an earlier session of the same name
            asked.clear()
        elif row.kind == "hook" and row.data.get("call_id") == event.call_id and how in ("asked", "answered"):
            id = str(row.data.get("review"))
            if how == "asked":
                asked.append(id)
            elif id in asked:
                asked.remove(id)
    for id in asked:
        review = guard.reviews.get(id)
        if review is not None and not review.needs:
            bound_to = review.bound_to or review.policy
            if action_hash(event.tool, event.arguments, agent, bound_to) == review.action_hash:
                return review
    return None


def _rows(guard: Guard, event: HookEvent) -> Iterator[EventRow]:
    after = max(0, guard.store.last_event() - LOOK_BACK)
    yield from guard.store.events(after=after, session=guard.session_key(event.session), limit=LOOK_BACK)


# -- which rule files a hook uses -------------------------------------------------------------------------------------
# Those of the project and of the folders above it; the strictest rule decides. No file replaces another one: an agent
# can create files below its project, and other users can create files above it.

RULES = "bylaw.yaml"
STORE = ".bylaw/guard.db"


class NoRules(Exception):
    """The guard cannot be made. The message is for the model, and for the person who reads along."""


class RuleFiles(Struct, frozen=True):
    files: Sequence[Path]
    store: Path
    """where the store is, unless another one is named"""


def find_rules(
    here: Path, *, root: str | None, policy: str | None, folders: Sequence[str], environment: Mapping[str, str]
) -> RuleFiles:
    """`here`: where the hook runs. `root`: the project, as the command line names it. `folders`: where the agent works,
    as the payload says; that is believed only together with `here`. Raises NoRules."""
    if root is not None:
        if not root or not (here / root).is_dir():
            raise NoRules(f"`--root {root}` is no folder; run `bylaw hook install` again")
        here = here / root
    if policy:
        if _is_there(here / policy):
            _check_file(here / policy)
        return RuleFiles([here / policy], (here / policy).parent / STORE)
    named = str(here) if root else next((environment[name] for name in PROJECT if environment.get(name)), None)
    places = [here / named] if named else [here, *(here / folder for folder in folders)]
    ways = [found for place in places if (found := _parent_rule_files(Path(os.path.abspath(place))))]
    if not ways:
        asked = " or ".join(dict.fromkeys(f"`{place}`" for place in places))
        raise NoRules(f"there is no `{RULES}` in {asked} or above; write one, or pass --policy FILE")
    # an agent that works in a folder below must not move the counters by a file that it puts there
    first = ways[0][0] if named else ways[0][-1]
    return RuleFiles(list(dict.fromkeys(file for way in ways for file in way)), first.parent / STORE)


def _parent_rule_files(start: Path) -> list[Path]:
    """The nearest first. A file in the folder itself counts, whoever has written it; above it, only a trusted one.
    Raises NoRules if one that counts is no file: its rules would be left out without a word."""
    found = [folder / RULES for folder in (start, *start.parents) if _is_there(folder / RULES)]
    accepted = [file for file in found if file.parent == start or is_trusted(file)]
    for file in found:
        if file not in accepted:
            _log.warning("`%s` is not used: others than you and root can write it or its folder", file)
    for file in accepted:
        _check_file(file)
    return accepted


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise NoRules(f"`{file}` is there, but it is no file that can be read; mend or remove it")


def _is_there(file: Path) -> bool:
    """Whether the file exists, also as a link that leads nowhere. Raises NoRules if that cannot be found out."""
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        raise NoRules(f"`{file}` cannot be looked for: {problem.strerror}") from None
    return True


def is_trusted(file: Path) -> bool:
    """Whether only this user or root can have created it."""
    if not hasattr(os, "getuid"):
        return True
    try:
        leads_somewhere = file.exists()  # and to itself does not count
        real = file.resolve() if leads_somewhere else file.parent.resolve() / file.name
        found = real.stat() if leads_somewhere else real.lstat()
        folders = [folder.stat() for folder in real.parents]
    except OSError:
        return False
    return all(map(_is_ours, (found, *folders)))


def _is_ours(found: os.stat_result) -> bool:
    """Whether others neither own it nor can write there. The mode of a link says nothing."""
    mode = found.st_mode
    is_open = mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not stat.S_ISLNK(mode)
    return not is_open and found.st_uid in (os.getuid(), 0)

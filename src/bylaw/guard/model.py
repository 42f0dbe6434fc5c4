"""The nouns of the guard: what an agent attempts, what the guard decides, and the options of a guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from math import isfinite
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, to_builtins
from msgspec.structs import force_setattr

from bylaw.errors import ArgumentError, BylawError
from bylaw.model.rule import Action
from bylaw.text.redaction.redactor import Redaction

Fallback: TypeAlias = Literal["block", "pause", "allow"]


class Attempt(Struct, frozen=True, kw_only=True):
    """One tool call that is about to be made."""

    tool: str
    arguments: Any = None
    """a JSON object; None means no arguments"""
    agent: str | None = None
    session: str = ""
    """the user's task; needed, unless the guard has a default session"""
    run: str | None = None
    parent_run: str | None = None
    ancestors: tuple[str, ...] = ()
    """agents above this one, root first; needed only if the runs were not announced"""
    ts: float | None = None
    """seconds since 1970; None means now"""
    call_id: str | None = None


class Call(Struct, frozen=True, gc=False):
    """A tool call that may run."""

    tool: str
    arguments: Any
    """`{}` if the attempt had none"""


class DenialClass(StrEnum):
    PERMISSION = "permission"
    """not allowed; trying again changes nothing"""
    STRUCTURAL = "structural"
    """the call is malformed; a corrected one may pass"""
    TRANSIENT = "transient"
    """the guard could not judge the call; a later attempt may pass"""


class Match(Struct, frozen=True, kw_only=True):
    """One rule that matched the attempt."""

    rule: str
    """its id; `agent/id` for a rule of an ancestor"""
    then: Action
    message: str = ""
    reason: str | None = None
    certain: bool = True
    """False if the rule could not be evaluated, which restricts the call as well"""
    shadow: bool = False
    line: str | None = None
    """file:line:column of the rule"""

    @property
    def stops(self) -> bool:
        return self.then is not Action.ALLOW and not self.shadow


def stopping_rules(matches: Iterable[Match]) -> str:
    """The rules that stop a call, each with its reason; empty if none does."""
    return "; ".join(f"`{one.rule}`: {one.reason or one.message}" for one in matches if one.stops)


class Decision(Struct, kw_only=True):
    """What the guard answers. It is true if the call may run."""

    action: Action
    decided_by: str | None = None
    """the rule, or what decided in its place: `allowlist`, `kill-switch`, `session`, `arguments`, `on_error`, …"""
    matches: tuple[Match, ...] = ()
    reason: str = ""
    review: str | None = None
    """the id of the review that is pending, or that let the call through"""
    policy: str = ""
    denial: DenialClass | None = None
    advice: str | None = None
    """what the model may do instead"""
    would: Action | None = None
    """the action if shadow rules were enforced, if it differs"""
    blind: tuple[str, ...] = ()
    """rules that need events which the host does not feed; they never count as satisfied"""
    counters: dict[str, int] = {}
    """values of the counters of the rules about this tool"""
    repeats: int = 0
    """how often the same call was denied before in this session"""
    notes: tuple[str, ...] = ()
    agent: str | None = None
    """whose call it is"""
    version: str | None = None
    """the version of the agent whose rules decided, from a manifest"""
    call_id: str = ""
    session: str = ""
    latency_us: float = 0.0
    call: Call | None = None
    """the call that may run, with the changes of the person who approved it; None if none may. Any other call is
    another attempt."""

    def __bool__(self) -> bool:
        return self.action is Action.ALLOW

    @property
    def allowed(self) -> bool:
        return self.action is Action.ALLOW

    @property
    def matched(self) -> tuple[str, ...]:
        return tuple(match.rule for match in self.matches)

    def raise_if_denied(self) -> None:
        """Raises Denied unless the call may run."""
        if self.action is not Action.ALLOW:
            raise Denied(self)


class Denied(BylawError):
    """The guard does not let the call run. `decision` has the whole answer; the text is written for a model."""

    def __init__(self, decision: Decision, why: str | None = None) -> None:
        self.decision = decision
        self.reason = why or decision.reason or "the call is not allowed"
        super().__init__(f"{self.reason}; {decision.advice}" if decision.advice else self.reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return Denied, (self.decision, self.reason)


class Limits(Struct, frozen=True):
    """Bounds on the arguments of a call."""

    bytes: int = 1 << 20
    depth: int = 64


class Options(Struct, frozen=True, kw_only=True):
    """Settings of a guard that no rule decides."""

    on_error: Fallback = "block"
    """what happens to the call after an internal error of the guard"""
    on_store_unavailable: Fallback = "block"
    shadow: bool = False
    """decide and record everything, but let every call run"""
    review_seconds: float | None = 3600.0
    """how long a review may wait for an answer; None means without limit"""
    review_uses: int = 1
    breaker_after: int = 5
    """how often the same call may be denied before `breaker_then` applies"""
    breaker_then: Action = Action.BLOCK
    """has an effect only if it is stricter than the denial"""
    max_depth: int = 5
    """levels of agents below the root"""
    limits: Limits = Limits()
    default_session: str | None = None
    """the session of attempts that name none; without it they are refused"""
    redaction: Redaction = Redaction()
    """what is removed from values before they are written"""

    @property
    def recorded(self) -> dict[str, Any]:
        """`{"options": …}` with the non-default options that influence decisions, as rows of the log carry them."""
        default = Options()
        names = ("on_error", "shadow", "breaker_after", "breaker_then", "max_depth", "limits")
        changed = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}
        return {"options": to_builtins(changed)} if changed else {}

    def __post_init__(self) -> None:
        for name in ("on_error", "on_store_unavailable"):
            _expect(self, name, "`block`, `pause` or `allow`", lambda value: value in get_args(Fallback))
        _expect(self, "shadow", "True or False", lambda value: isinstance(value, bool))
        _expect(self, "review_seconds", "a positive number or None", lambda value: value is None or _is_positive(value))
        for name in ("review_uses", "breaker_after"):
            _expect(self, name, "a whole number of at least 1", lambda value: _is_whole(value) and value >= 1)
        _expect(self, "max_depth", "a whole number of at least 0", lambda value: _is_whole(value) and value >= 0)
        _expect(self, "breaker_then", "an Action", lambda value: value in list(Action))
        force_setattr(self, "breaker_then", Action(self.breaker_then))  # `"block"` is as good
        _expect(self, "limits", "Limits of whole numbers of at least 1", _are_limits)
        _expect(self, "redaction", "a Redaction", lambda value: isinstance(value, Redaction))
        _expect(self, "default_session", "a text or None", lambda value: value is None or (value and is_name(value)))


LONGEST_NAME = 512
"""characters of the names of tools, agents, runs, sessions and calls"""


def is_name(value: Any) -> bool:
    """Whether it is a text that is short enough and has a UTF-8 form."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and is_text(value)


def is_text(text: str) -> bool:
    """Whether the text has a UTF-8 form. Half a surrogate pair has none, so it could not be searched or stored."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_names(**names: Any) -> None:
    """Raises ValueError for a name that could not be stored. None is not a name; leave it out where it is allowed."""
    for key, value in names.items():
        if not is_name(value):
            shown = repr(value)[:80]
            error = ValueError if isinstance(value, str) else ArgumentError
            raise error(f"{key}={shown}: expected a text of at most {LONGEST_NAME} characters")


def check_type(name: str, value: Any, *types: type) -> None:
    if not isinstance(value, types):
        expected = " or ".join("None" if one is type(None) else one.__name__ for one in types)
        raise ValueError(f"{name}={value!r}: expected {expected}")


def _expect(options: Options, name: str, expected: str, is_valid: Callable[[Any], Any]) -> None:
    value = getattr(options, name)
    try:
        valid = is_valid(value)
    except TypeError:  # a value that cannot be hashed or compared
        valid = False
    if not valid:
        raise ValueError(f"{name}={value!r}: expected {expected}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _are_limits(value: Any) -> bool:
    return isinstance(value, Limits) and all(_is_whole(one) and one >= 1 for one in (value.bytes, value.depth))

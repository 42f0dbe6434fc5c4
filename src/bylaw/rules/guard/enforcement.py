"""What is to happen to a call that breaks a rule: `then`, `reason`, `mode` or `shadow`, `inline`."""

from __future__ import annotations

from msgspec import Struct

from bylaw.model.guarding import Action, GuardRule
from bylaw.model.rule import Rule
from bylaw.rules.fields import Fields
from bylaw.rules.guard.words import ACTION_WORDS, RULE_MODE_WORDS
from bylaw.rules.located import Entry, Located
from bylaw.rules.readers import read_flag, read_text
from bylaw.rules.rule_fields import read_optional_text
from bylaw.rules.words import did_you_mean, quote

ACTIONS = tuple(action.value for action in Action)
MODES = ("enforce", "shadow")
KEYS = ("then", "reason", "mode", "shadow")
"""what a behaviour rule may have too"""


class Enforcement(Struct, frozen=True):
    then: Action
    at: Located
    """where `then` says so"""
    reason: str | None = None
    inline: bool = False
    shadow: bool = False

    def of(self, rule: Rule) -> GuardRule:
        return GuardRule(rule=rule, then=self.then, reason=self.reason, inline=self.inline, shadow=self.shadow)


class Item(Struct, frozen=True):
    """A rule as it was read, and what it says about calls, if anything."""

    rule: Rule
    enforcement: Enforcement | None = None


def read_enforcement(fields: Fields, *, inline: bool = False, hint: str | None = None) -> Enforcement | None:
    """None where any of it is unusable. `inline` tells whether that key is taken; `hint` is for an unknown action."""
    entry = fields.entry("then")
    if entry is None:
        fields.missing(("then",), help="write what happens to the call: `then: block`, say")
    then = _read_action(entry, fields, hint) if entry else None
    reason = read_optional_text(fields, "reason")
    shadow = _read_shadow(fields)
    gates = _read_flag(fields.entry("inline"), "inline", fields) if inline else False
    if entry is None or then is None or reason is None or shadow is None or gates is None:
        return None
    return Enforcement(then, entry.value, reason or None, gates, shadow)


def _read_action(entry: Entry, fields: Fields, hint: str | None) -> Action | None:
    text = read_text(entry.value, "then", fields.problems)
    if text is None or text in ACTIONS:
        return None if text is None else Action(text)
    fields.problems.error(
        code="unknown-action",
        message=f"unknown action {quote(text)}",
        at=entry.value,
        help=hint or did_you_mean(text, ACTIONS, ACTION_WORDS),
    )
    return None


def _read_shadow(fields: Fields) -> bool | None:
    """`shadow: true` and `mode: shadow` say the same."""
    flag, mode = fields.entry("shadow"), fields.entry("mode")
    if flag and mode:
        fields.problems.error(
            code="duplicate-parameter",
            message="`shadow` and `mode` say the same",
            at=mode.key,
            help="keep one of them",
            related=(fields.problems.related(flag.key, "the other one"),),
        )
    return _read_mode(mode, fields) if mode else _read_flag(flag, "shadow", fields)


def _read_mode(entry: Entry, fields: Fields) -> bool | None:
    text = read_text(entry.value, "mode", fields.problems)
    if text is None or text in MODES:
        return None if text is None else text == "shadow"
    fields.problems.error(
        code="unknown-mode",
        message=f"unknown mode {quote(text)} of a rule",
        at=entry.value,
        help=did_you_mean(text, MODES, RULE_MODE_WORDS),
    )
    return None


def _read_flag(entry: Entry | None, name: str, fields: Fields) -> bool | None:
    return False if entry is None else read_flag(entry.value, name, fields.problems)

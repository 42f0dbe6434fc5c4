"""What operators set over the API, and what becomes of it when the rule files change.

Rules that were turned on, execution modes, chosen versions and rules that were switched off: whoever edits a file need
not know of them, and a rule that stops calls must not go back to shadow because a comment has changed. So they stay. If
the new files have no such rule or agent, or cannot be used with a setting, it is dropped, and the note of the version
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from bylaw.guard.service.errors import Conflict, Unusable
from bylaw.guard.stores.records import RuleVersion
from bylaw.model.rule import GuardPolicy, GuardRule
from bylaw.rules.promotion import NotPromoted, promotion

SHADOW = "shadow-"
"""the beginning of the names of files that hold rules which were added in shadow"""
NO_AGENT = "*"
"""the agent without a name"""
_MOST_NAMED = 10
_NOUNS = {"labels": "version", "modes": "mode"}


class Carried(NamedTuple):
    files: dict[str, str]
    """the new files, with the rules on that were turned on"""
    settings: dict[str, Any]
    kept: list[str]
    dropped: list[str]
    """what was set, for people; what was dropped, with the reason"""

    @property
    def note(self) -> str:
        kept = f"; as set over the API: {', '.join(self.kept)}" if self.kept else ""
        return kept + (f"; no longer as set over the API: {', '.join(self.dropped)}" if self.dropped else "")


def carry_over(
    active: RuleVersion,
    before: Sequence[GuardPolicy],
    files: Mapping[str, str],
    check: Callable[..., Sequence[GuardPolicy]],
) -> Carried:
    """`before`: the policies in force that came over the API. `check` returns all policies of files with settings, or
    raises Unusable; so does this if the files cannot be used without settings."""
    settings: dict[str, dict[str, Any]] = {"labels": {}, "modes": {}, "off": {}}
    policies = check(files)
    carried = Carried(dict(files), settings, [], [])
    on = _turn_on_again(active.on, policies, carried)
    rules = [*active.on, *(one.rule.id for policy in before for one in policy.rules)]
    gone = [rule for rule in dict.fromkeys(rules) if not rules_named(rule, policies)]
    carried.dropped.extend(f"`{rule}`: there is no such rule" for rule in gone[:_MOST_NAMED])
    if len(gone) > _MOST_NAMED:
        carried.dropped.append(f"and {len(gone) - _MOST_NAMED} more rules")
    known = {policy.agent or NO_AGENT for policy in policies}
    wanted: list[tuple[str, str, dict[str, Any]]] = []
    for kind, noun in _NOUNS.items():
        wanted += [(f"{noun} {value}", agent, {kind: {agent: value}}) for agent, value in getattr(active, kind).items()]
    wanted += [("rules off", agent, {"off": {agent: False}}) for agent in active.off]
    for what, agent, one in wanted:
        setting = f"`{agent}`: {what}"
        tried = {kind: values | one.get(kind, {}) for kind, values in settings.items()}
        if agent not in known:
            carried.dropped.append(f"{setting} (there is no such agent)")
        elif not _is_usable(check, carried.files, tried):
            carried.dropped.append(f"{setting} (these rules cannot be used with it)")
        else:
            carried.kept.append(setting)
            settings = tried
    return carried._replace(settings={**settings, "off": tuple(settings["off"]), "on": on})


def _is_usable(check: Callable[..., object], files: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    with suppress(Unusable):
        check(files, **settings)
        return True
    return False


def _turn_on_again(rules: Iterable[str], policies: Sequence[GuardPolicy], carried: Carried) -> tuple[str, ...]:
    """The rules that are on only since they were turned on over the API."""
    on = []
    for rule in rules:
        found = rules_named(rule, policies)
        if any(one.shadow for one in found):  # else the file itself says that it is on
            try:
                carried.files.update(turn_on(carried.files, rule))
            except Conflict as why:
                carried.dropped.append(f"`{rule}`: in shadow again, since {why.message}")
            else:
                carried.kept.append(f"`{rule}` is on")
                on.append(rule)
    return tuple(on)


def rules_named(rule: str, policies: Iterable[GuardPolicy]) -> list[GuardRule]:
    """`rule`: an id, or `agent/id`."""
    named = [(policy, one) for policy in policies for one in policy.rules]
    return [one for policy, one in named if rule in (one.rule.id, f"{policy.agent}/{one.rule.id}")]


def turn_on(files: Mapping[str, str], rule: str) -> dict[str, str]:
    """The file of a rule in shadow, with the rule on. Raises Conflict if there is none, or it is not clear which."""
    problem = f"there is no rule `{rule}`"
    for name, text in files.items():
        try:
            changed = _turned_on(text, rule) if name.startswith(SHADOW) else None
            bare = rule.rpartition("/")[2] if f'"{rule}"' not in text else rule
            return {name: changed or promotion(text, bare, file=name).text}
        except NotPromoted as why:
            problem = str(why)
    raise Conflict(problem)


def _turned_on(text: str, rule: str) -> str | None:
    """A file that `shadow` has written, with the rule on, for one agent if it is named `agent/id`; None if it has no
    such rule. The same rule may stand there for several agents."""
    agent, _, id = rule.rpartition("/")
    found = False
    try:
        content = msgspec.json.decode(text)
        for guard in content["guard"]:
            for one in guard["rules"]:
                is_meant = one["id"] == rule or (one["id"], guard.get("agent")) == (id, agent)
                found |= is_meant and one.pop("mode", None) is not None
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):  # somebody else's file with such a name
        return None
    return msgspec.json.format(msgspec.json.encode(content)).decode() if found else None

"""The agents of a file: which version of each is read, and whose rules have which ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule

VersionChoice: TypeAlias = "str | Mapping[str, str] | None"
"""the version of every agent, or agent → version; None means the deployed one"""


class Versioned(Protocol):
    """A policy of one version of an agent."""

    @property
    def agent(self) -> str | None: ...
    @property
    def version(self) -> str | None: ...
    @property
    def status(self) -> str | None: ...


_T = TypeVar("_T", bound=Versioned)


class Selection:
    """The versions that are wanted, and the agents of all files that are read together."""

    def __init__(self, version: VersionChoice = None) -> None:
        self._version = version
        self._agents: dict[str, bool] = {}
        """whether it has versions"""
        self._for_everyone = False
        self._has_versions = False

    def choose(self, guards: Sequence[_T], *, for_everyone: bool) -> list[_T]:
        """The guards of the versions that are wanted. `for_everyone`: whether the file has other rules that act.
        Raises InputError."""
        self._for_everyone |= for_everyone or any(guard.agent is None for guard in guards)
        versions = {guard.agent or "": guard.version is not None for guard in guards}
        self._agents |= {agent: known for agent, known in versions.items() if agent}
        self._has_versions |= any(versions.values())
        wanted = self._version
        if isinstance(wanted, Mapping):
            wanted = {agent: name for agent, name in wanted.items() if versions.get(agent)}
        elif isinstance(wanted, str) and not any(versions.values()):
            wanted = None  # another file may have it
        return select_version(guards, wanted)

    def finish(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """The rules of all files. Where they are for one agent alone, an event without a name is of that agent, as for
        a guard."""
        if len(self._agents) != 1 or self._for_everyone:
            return tuple(rules)
        return tuple(replace(rule, agents=(*rule.agents, None)) if rule.agents else rule for rule in rules)

    def unknown(self) -> list[Diagnostic]:
        """What is wanted and no file has: versions, or an agent with versions."""
        if isinstance(self._version, str) and not self._has_versions:
            return [_no_versions(self._version)]
        known: dict[str | None, None] = {agent: None for agent, has_versions in self._agents.items() if has_versions}
        wanted = self._version if isinstance(self._version, Mapping) else ()
        return [_unknown_agent(agent, known) for agent in wanted if agent not in known]


def shared_ids(ids: Iterable[tuple[str | None, str]]) -> Collection[str]:
    """The ids that more than one agent uses; None stands for all agents."""
    users: dict[str, set[str | None]] = {}
    for agent, id in ids:
        users.setdefault(id, set()).add(agent)
    return {id for id, agents in users.items() if len(agents) > 1}


def qualified_id(agent: str, id: str) -> str:
    return id if id.startswith(f"{agent}/") else f"{agent}/{id}"


def select_version(policies: Sequence[_T], version: VersionChoice = None) -> list[_T]:
    """The policies of one version of each agent; a manifest may hold several versions.

    `version` names it, or its status if only one version has that: for every agent, or a mapping from agent to version.
    Without a name it is the deployed version, or the only one. Raises InputError if that does not choose exactly one,
    and TypeError for any other `version`.
    """
    names = version.values() if isinstance(version, Mapping) else [] if version is None else [version]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"version={version!r}: expected the name of a version, or a mapping from agents to names")
    by_agent: dict[str | None, dict[str, _T]] = {}
    for policy in policies:
        if policy.version is not None:
            by_agent.setdefault(policy.agent, {}).setdefault(policy.version, policy)
    problems = [_no_versions(version)] if isinstance(version, str) and not by_agent else []
    if isinstance(version, Mapping):
        problems += [_unknown_agent(agent, by_agent) for agent in version if agent not in by_agent]
    chosen: dict[str | None, str] = {}
    for agent, versions in by_agent.items():
        label = version.get(agent or "") if isinstance(version, Mapping) else version
        found = _choose_version(versions, label)
        if found is None:
            problems.append(_several_versions(agent, versions, label))
        else:
            chosen[agent] = found
    if problems:
        raise InputError(problems)
    return [policy for policy in policies if policy.version is None or policy.version == chosen[policy.agent]]


def select_each(groups: Sequence[Sequence[_T]], version: VersionChoice = None) -> list[list[_T]]:
    """As `select_version`, for rules that are compared: what is wanted may be in some of them only."""
    selection = Selection(version)
    chosen = [selection.choose(policies, for_everyone=False) for policies in groups]
    if problems := selection.unknown():
        raise InputError(problems)
    return chosen


def _choose_version(versions: Mapping[str, Versioned], label: str | None) -> str | None:
    if label is not None:
        if label in versions:
            return label
        having = [name for name, policy in versions.items() if policy.status == label]
        return having[0] if len(having) == 1 else None
    if len(versions) == 1:
        return next(iter(versions))
    deployed = [name for name, policy in versions.items() if policy.status == "deployed"]
    return deployed[0] if len(deployed) == 1 else None


def _several_versions(agent: str | None, versions: Mapping[str, Versioned], label: str | None) -> Diagnostic:
    names = ", ".join(f"`{name}`" + (f" ({one.status})" if one.status else "") for name, one in versions.items())
    whose = "every agent" if agent is None else f"the agent `{agent}`"
    unclear = "it is not clear which one is running" if label is None else f"not `{label}`"
    spans = (rule.rule.span for policy in versions.values() for rule in getattr(policy, "rules", ()))
    return Diagnostic(
        code="several-versions",
        message=f"{whose} has the versions {names}, and {unclear}",
        file=next((span.file for span in spans if span is not None), "<rules>"),
        help="name one of them: `--version NAME`, `--version AGENT=NAME`, `version=` in Python, or `version:` beside "
        "`policy:` in the section `ci`",
    )


def _no_versions(label: str) -> Diagnostic:
    return Diagnostic(
        code="unknown-agent",
        message=f"no agent has versions, so there is no version `{label}`",
        file="<rules>",
        help="leave `--version` or `version` out; only an agent manifest has versions",
    )


def _unknown_agent(agent: str, known: Mapping[str | None, object]) -> Diagnostic:
    names = ", ".join(f"`{name}`" for name in known if name is not None) or "none"
    return Diagnostic(
        code="unknown-agent",
        message=f"no agent `{agent}` has versions",
        file="<rules>",
        help=f"the agents with versions are {names}",
    )

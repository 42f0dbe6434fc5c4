"""Agents: their versions, execution modes, allowlists and switches; manifests in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from bylaw.errors import InputError
from bylaw.guard.guard import Guard
from bylaw.guard.policies import doubt_agent
from bylaw.guard.service.errors import BadRequest, NotFound, Unusable
from bylaw.guard.service.rule_versions import RuleVersions, RuleView, parse_files, views_of
from bylaw.guard.stores.ports import write_change
from bylaw.model.rule import GuardPolicy, GuardSet
from bylaw.rules import dump_manifest


class AgentVersion(Struct, frozen=True, kw_only=True):
    label: str | None
    status: str | None
    """`deployed` or `testing`"""
    live: bool
    """whether its rules decide; then they are read-only until another version is live"""
    rules: list[RuleView]
    tools: tuple[str, ...] | None


class AgentView(Struct, frozen=True, kw_only=True):
    agent: str
    """`*`: rules of every agent"""
    mode: str | None
    """`request`, `hitl` or `sub_agent`; None: not said"""
    rules_on: bool
    """False: `anomalyControl` is off, and only the allowlist applies"""
    tools: tuple[str, ...] | None
    """the allowlist, with the exact names that rules and calls use; None: every tool"""
    sub_agents: tuple[str, ...] | None
    versions: list[AgentVersion]
    killed: str | None = None
    """why every call of it is refused"""


class Switch(Struct, frozen=True, kw_only=True):
    agent: str
    """`*`: all agents"""
    why: str
    doubt: str | None = None
    """what to say about a name that no rules have"""


class Agents:
    def __init__(self, guard: Guard, versions: RuleVersions, clock: Callable[[], float]) -> None:
        self._guard, self._versions, self._clock = guard, versions, clock

    def list(self) -> Sequence[AgentView]:
        loaded = self._versions.load(self._versions.active())
        switches = self._switches()
        names = dict.fromkeys(policy.agent for policy in loaded.all_versions)
        return [self._view(name, loaded.policies, loaded.all_versions, switches) for name in names]

    def get(self, agent: str) -> AgentView:
        found = next((one for one in self.list() if one.agent == agent), None)
        if found is None:
            raise NotFound(f"the rules name no agent `{agent}`")
        return found

    def _view(
        self, name: str | None, live: Sequence[GuardPolicy], everything: Sequence[GuardPolicy], switches: dict[str, str]
    ) -> AgentView:
        own = [policy for policy in live if policy.agent == name]
        labels = {policy.version for policy in own}
        first = own[0] if own else None
        lists = [policy.tools for policy in own if policy.tools is not None]
        versions = [
            AgentVersion(
                label=label,
                status=next((p.status for p in everything if p.agent == name and p.version == label), None),
                live=label in labels,
                rules=views_of(
                    [p for p in (own if label in labels else everything) if (p.agent, p.version) == (name, label)]
                ),
                tools=next((p.tools for p in everything if p.agent == name and p.version == label), None),
            )
            for label in dict.fromkeys(policy.version for policy in everything if policy.agent == name)
        ]
        return AgentView(
            agent=name or "*",
            mode=None if first is None else first.mode,
            rules_on=not any(policy.switched_off for policy in own),
            tools=tuple(tool for tool in lists[0] if all(tool in other for other in lists)) if lists else None,
            sub_agents=None if first is None else first.sub_agents,
            versions=versions,
            killed=switches.get(name or "*") or switches.get("*"),
        )

    # -- kill switches --------------------------------------------------------------------------------------------

    def switches(self) -> Sequence[Switch]:
        return [Switch(agent=agent, why=why) for agent, why in sorted(self._switches().items())]

    def _switches(self) -> dict[str, str]:
        with self._guard.store.transaction("") as transaction:
            return transaction.switches()

    def kill(self, agent: str, *, by: str, why: str = "") -> Switch:
        """Refuse every call of the agent, or of all (`*`), in every worker from now on."""
        try:
            text = f"{why} ({by})" if why else f"switched off by {by}"
            self._guard.kill(agent, text)
            text = self._switches().get(agent, text)  # as it is shown, without secrets
        except ValueError as bad:
            raise BadRequest(str(bad)) from None
        doubt = doubt_agent(agent, [compiled.policy for compiled in self._guard.policies.all])
        return Switch(agent=agent, why=text, doubt=doubt)

    def revive(self, agent: str, *, by: str) -> None:
        if agent not in self._switches():
            raise NotFound(f"no kill switch of `{agent}` is on")
        self._guard.revive(agent)
        with self._guard.store.transaction("") as transaction:
            write_change(transaction, self._clock(), "revived", by, agent=agent)

    # -- manifests ------------------------------------------------------------------------------------------------

    def export_manifest(self, *, version: str | None = None) -> Any:
        """The rules of a version as an agent manifest, in JSON values. Raises Unusable if a manifest cannot say it."""
        found = self._versions.active() if version is None else self._versions.get(version)
        try:
            return dump_manifest(GuardSet(parse_files(found.files, found.folder, {}).policies))
        except InputError as bad:
            raise Unusable("a manifest cannot say the same", diagnostics=list(bad.diagnostics)) from None

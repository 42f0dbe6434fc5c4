"""One version of each agent: a manifest may hold several, and only one of them is running."""

from __future__ import annotations

from collections.abc import Sequence

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.guarding import GuardPolicy


def of_version(policies: Sequence[GuardPolicy], version: str | None) -> list[GuardPolicy]:
    """The policies in force. Raises InputError where an agent has several versions and `version` names none of them."""
    by_agent: dict[str | None, list[GuardPolicy]] = {}
    for policy in policies:
        if _version(policy) is not None:
            by_agent.setdefault(policy.agent, []).append(policy)
    chosen = {agent: _choose(agent, found, version) for agent, found in by_agent.items()}
    return [policy for policy in policies if _version(policy) is None or policy is chosen[policy.agent]]


def _version(policy: GuardPolicy) -> str | None:
    return str(policy.source["name"]) if isinstance(policy.source, dict) and "name" in policy.source else None


def _choose(agent: str | None, found: list[GuardPolicy], version: str | None) -> GuardPolicy:
    wanted = [policy for policy in found if version is None or _version(policy) == version]
    if len(wanted) == 1:
        return wanted[0]
    names = ", ".join(f"`{_version(policy)}`" for policy in found)
    raise InputError(
        [
            Diagnostic(
                code="several-versions",
                message=f"the agent `{agent}` has the versions {names}, and it is not clear which one is running",
                file="<rules>",
                help="name one of them: `--version NAME`, or `version=` in Python",
            )
        ]
    )

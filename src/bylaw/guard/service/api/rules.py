"""The endpoints about rules and agents: operators read, check, compare and stop agents; admins change. And the keys of
the service, and other jobs of Bylaw behind the same door: no job imports another, so whoever composes them hands them
in."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from bylaw.errors import InputError
from bylaw.guard.backtest.report import BacktestReport, ShadowReport
from bylaw.guard.service.api import Asked, Done, Endpoint, Given, Group, Items
from bylaw.guard.service.errors import BadRequest, NotFound, Unusable
from bylaw.guard.service.operations.agents import AgentView, Switch
from bylaw.guard.service.operations.rules import Checked, RuleSetView, VersionSummary
from bylaw.guard.service.rule_versions import paths_in
from bylaw.guard.service.store_trace import MOST_EVENTS
from bylaw.guard.stores.records import Credential, ProposalStatus, RuleVersion, Scope, StoredProposal

ENDPOINTS: list[Endpoint] = []
AGENTS = Group(ENDPOINTS, "agents", "operator")
RULES = Group(ENDPOINTS, "rules", "operator")
RULE_CHANGES = Group(ENDPOINTS, "rules", "admin", fails=(404, 409, 422))
PROPOSALS = Group(ENDPOINTS, "proposals", "operator", fails=(404,))
PROPOSAL_CHANGES = Group(ENDPOINTS, "proposals", "admin", fails=(404, 409, 422))
KEYS = Group(ENDPOINTS, "keys", "admin")
JOBS = Group(ENDPOINTS, "jobs", "operator", heavy=True, fails=(404, 422))


class AgentQuery(Given, frozen=True, kw_only=True):
    agent: str


class KillBody(Given, frozen=True, kw_only=True):
    agent: str
    """`*`: all agents"""
    why: str = ""


class ReviveBody(Given, frozen=True, kw_only=True):
    agent: str


class AgentBody(Given, frozen=True, kw_only=True):
    agent: str
    """`*` stands for every agent"""
    mode: Literal["request", "hitl", "sub_agent"] | None = None
    rules_on: bool | None = None
    label: str | None = None
    """the version of the agent in the manifest"""
    note: str = ""


class Files(Given, frozen=True, kw_only=True):
    files: dict[str, str]
    """name → text, as `{"guard.yaml": "guard: …"}`; a manifest is one of them"""


class ActivateBody(Files, frozen=True, kw_only=True):
    note: str = ""
    expected: str | None = None
    """the version that must still be in force: 409 if it is not"""
    testing: bool = False
    """store it without bringing it into force"""


class ReleaseBody(Given, frozen=True, kw_only=True):
    version: str
    note: str = ""
    expected: str | None = None
    """the version that must still be in force: 409 if it is not"""


class RollbackBody(Given, frozen=True, kw_only=True):
    to: str | None = None
    """a version that was in force; default: the previous one"""
    note: str = ""
    expected: str | None = None
    """the version that must still be in force: 409 if it is not"""


class ShadowBody(Given, frozen=True, kw_only=True):
    rules: list[dict[str, Any]]
    """rules as in a rule file"""
    agent: str | None = None
    note: str = ""
    testing: bool = False


class PromoteBody(Given, frozen=True, kw_only=True):
    rule: str
    note: str = ""


class CompareBody(Given, frozen=True, kw_only=True):
    files: dict[str, str] | None = None
    version: str | None = None
    most: int = MOST_EVENTS
    """how many events are read, the newest first"""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1_000_000:
            raise ValueError("most: expected 1 to 1000000")


class VersionQuery(Given, frozen=True, kw_only=True):
    version: str | None = None
    """default: the one in force"""


class DiffQuery(Given, frozen=True, kw_only=True):
    before: str
    """the id of the older version"""
    after: str
    """the id of the newer version"""


class RuleQuery(Given, frozen=True, kw_only=True):
    rule: str | None = None


class HitsQuery(Given, frozen=True, kw_only=True):
    since: float | None = None
    until: float | None = None
    buckets: int = 24


class ProposalQuery(Given, frozen=True, kw_only=True):
    status: ProposalStatus | None = None


class MineBody(Given, frozen=True, kw_only=True):
    agent: str | None = None
    min_support: int = 10
    """calls that a rule must have been tested on"""
    hold_out: float = 0.25
    """the share of sessions on which rules are tested, not searched for"""

    def __post_init__(self) -> None:
        if self.min_support < 2 or not 0 <= self.hold_out <= 0.9:
            raise ValueError("min_support: expected at least 2, and hold_out from 0 to 0.9")


class AcceptBody(Given, frozen=True, kw_only=True):
    note: str | None = None
    testing: bool = False
    """accept it into a version that is not in force yet"""


class DismissBody(Given, frozen=True, kw_only=True):
    note: str | None = None


class KeyBody(Given, frozen=True, kw_only=True):
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] = ()
    """the agents that a key of scope `agent` may speak for"""
    seconds: float | None = None
    """the time until it expires; without it, it does not expire"""


class Diff(Struct, frozen=True):
    diff: str
    """in unified form"""


class Hits(Struct, frozen=True):
    rules: dict[str, list[int]]


class Accepted(Struct, frozen=True):
    proposal: StoredProposal
    rules: RuleVersion


class NewKey(Struct, frozen=True):
    key: str
    """shown once"""
    record: Credential


class Manifest(Struct, frozen=True):
    manifest: Any


# -- agents -----------------------------------------------------------------------------------------------------------


@AGENTS.get("/agents", "list agents with their versions, modes, allowlists and switches")
def agents(asked: Asked[None]) -> Items[AgentView]:
    return Items(asked.operations.agents.list())


@AGENTS.get("/agents/view", "show one agent", fails=(404,))
def agent(asked: Asked[AgentQuery]) -> AgentView:
    return asked.operations.agents.get(asked.given.agent)


@AGENTS.get("/switches", "list the kill switches that are on")
def switches(asked: Asked[None]) -> Items[Switch]:
    return Items(asked.operations.agents.switches())


@AGENTS.post("/switches/kill", "turn on a kill switch: refuse every call of an agent, or of all agents")
def kill(asked: Asked[KillBody]) -> Switch:
    return asked.operations.agents.kill(by=asked.by, **asdict(asked.given))


@AGENTS.post("/switches/revive", "turn off a kill switch", fails=(404,))
def revive(asked: Asked[ReviveBody]) -> Done:
    asked.operations.agents.revive(asked.given.agent, by=asked.by)
    return Done()


@AGENTS.post(
    "/agents/change",
    "change the mode or the version of an agent, or turn its rules on or off",
    scope="admin",
    fails=(404, 409, 422),
)
def change_agent(asked: Asked[AgentBody]) -> RuleVersion:
    return asked.operations.rules.change_agent(by=asked.by, **asdict(asked.given))


# -- rules ------------------------------------------------------------------------------------------------------------


@RULES.get(
    "/rules",
    "show the rules in force, or those of a version: their text, their lines, and what each can do",
    fails=(404,),
)
def version(asked: Asked[VersionQuery]) -> RuleSetView:
    rules = asked.operations.rules
    return rules.active() if asked.given.version is None else rules.version(asked.given.version)


@RULES.get("/rules/versions", "list all versions of the rules, the newest first")
def versions(asked: Asked[None]) -> Items[VersionSummary]:
    return Items(asked.operations.rules.versions())


@RULES.get("/rules/diff", "compare the text of two versions", fails=(404,))
def diff(asked: Asked[DiffQuery]) -> Diff:
    return Diff(asked.operations.rules.diff(asked.given.before, asked.given.after))


@RULES.get("/rules/hits", "count how often each rule matched, over time")
def hits(asked: Asked[HitsQuery]) -> Hits:
    return Hits(asked.operations.rules.hits(**asdict(asked.given)))


@RULES.get("/rules/shadow", "list the decisions that rules in shadow mode would have changed", heavy=True)
def shadow_report(asked: Asked[RuleQuery]) -> ShadowReport:
    return asked.operations.rules.shadow_report(rule=asked.given.rule)


@RULES.get("/rules/manifest", "export the rules as an agent manifest", fails=(404, 422))
def manifest(asked: Asked[VersionQuery]) -> Manifest:
    return Manifest(asked.operations.agents.export_manifest(version=asked.given.version))


@RULES.post("/rules/validate", "check whether the service would accept these rules")
def validate(asked: Asked[Files]) -> Checked:
    return asked.operations.rules.validate(asked.given.files)


@RULES.post(
    "/rules/compare",
    "compare what these rules would have done to the recorded traffic with what the rules in force would have done",
    heavy=True,
    fails=(404, 422),
)
def compare(asked: Asked[CompareBody]) -> BacktestReport:
    return asked.operations.rules.compare(**asdict(asked.given))


@RULE_CHANGES.post(
    "/rules/activate",
    "bring new rules into force, in every worker within half a second; `/rules/validate` checks them first",
)
def activate(asked: Asked[ActivateBody]) -> RuleVersion:
    return asked.operations.rules.activate(by=asked.by, **asdict(asked.given))


@RULE_CHANGES.post("/rules/release", "bring an earlier or a testing version into force")
def release(asked: Asked[ReleaseBody]) -> RuleVersion:
    given = asked.given
    return asked.operations.rules.release(given.version, by=asked.by, note=given.note, expected=given.expected)


@RULE_CHANGES.post(
    "/rules/rollback",
    "go back to the previous version, or to the version `to`; repeated rollbacks go further back. `expected` is the "
    "version that you believe to be in force: 409 if it is another",
)
def rollback(asked: Asked[RollbackBody]) -> RuleVersion:
    return asked.operations.rules.rollback(by=asked.by, **asdict(asked.given))


@RULE_CHANGES.post("/rules/shadow", "add rules in shadow mode: they are evaluated and recorded, and stop nothing")
def shadow(asked: Asked[ShadowBody]) -> RuleVersion:
    if not asked.given.rules or not all("id" in rule for rule in asked.given.rules):
        raise BadRequest("`rules` has at least one rule, each with an `id`")
    return asked.operations.rules.shadow(by=asked.by, **asdict(asked.given))


@RULE_CHANGES.post("/rules/promote", "turn on a rule that is in shadow mode")
def promote(asked: Asked[PromoteBody]) -> RuleVersion:
    return asked.operations.rules.promote(by=asked.by, **asdict(asked.given))


# -- proposals --------------------------------------------------------------------------------------------------------


@PROPOSALS.get("/proposals", "list proposed rules, the strongest first", fails=())
def proposals(asked: Asked[ProposalQuery]) -> Items[StoredProposal]:
    return Items(asked.operations.proposals.list(status=asked.given.status))


@PROPOSALS.get("/proposals/{id}", "show one proposal with its evidence")
def proposal(asked: Asked[None]) -> StoredProposal:
    return asked.operations.proposals.get(asked.id)


@PROPOSALS.post("/proposals/{id}/try", "show what this rule alone would have done to the recorded traffic", heavy=True)
def try_out(asked: Asked[None]) -> BacktestReport:
    return asked.operations.proposals.try_out(asked.id)


@PROPOSAL_CHANGES.post("/proposals/mine", "search the recorded traffic for rules that always held", heavy=True)
def mine(asked: Asked[MineBody]) -> Items[StoredProposal]:
    return Items(asked.operations.proposals.mine(by=asked.by, **asdict(asked.given)))


@PROPOSAL_CHANGES.post("/proposals/{id}/accept", "accept a proposal, in shadow mode or in a testing version")
def accept(asked: Asked[AcceptBody]) -> Accepted:
    return Accepted(*asked.operations.proposals.accept(asked.id, by=asked.by, **asdict(asked.given)))


@PROPOSAL_CHANGES.post("/proposals/{id}/dismiss", "dismiss a proposal, so that it is not proposed again")
def dismiss(asked: Asked[DismissBody]) -> StoredProposal:
    return asked.operations.proposals.dismiss(asked.id, by=asked.by, note=asked.given.note)


# -- keys -------------------------------------------------------------------------------------------------------------


@KEYS.get("/keys", "list keys, without their secrets")
def keys(asked: Asked[None]) -> Items[Credential]:
    return Items(asked.context.credentials.list())


@KEYS.post("/keys", "create a key; its secret is shown only in this answer")
def create_key(asked: Asked[KeyBody]) -> NewKey:
    return NewKey(*asked.context.credentials.create(by=asked.by, **asdict(asked.given)))


@KEYS.delete("/keys/{id}", "revoke a key", fails=(404,))
def revoke_key(asked: Asked[None]) -> Credential:
    return asked.context.credentials.revoke(asked.id, by=asked.by)


# -- other jobs -------------------------------------------------------------------------------------------------------


class CheckBody(Given, frozen=True, kw_only=True):
    """Did this recorded agent keep its rules?"""

    trace: str
    """the text of a trace, in any format that `bylaw check` reads"""
    format: str | None = None
    """default: found out"""
    files: dict[str, str] | None = None
    """rule files, name → text; default: the rules in force"""
    strict: bool = False


class ComplianceBody(Given, frozen=True, kw_only=True):
    """Did the agent keep the rules that its own system prompt states?"""

    system_prompt: str
    trace_events: list[Any]
    tools: list[Any] | None = None
    aliases: dict[str, list[str]] | None = None
    timeout_ms: float = 5000.0


@JOBS.post("/check", "check a recorded trace, as `bylaw check --format json` does")
def check(asked: Asked[CheckBody]) -> dict[str, Any]:
    given = asked.given
    files = given.files if given.files is not None else asked.operations.versions.active().files
    refused = [one for name, text in (given.files or {}).items() for one in paths_in(name, text)]
    if refused:
        raise Unusable("the rules cannot be used", diagnostics=refused)
    return _run(asked, "check", trace=given.trace, files=files, format=given.format, strict=given.strict)


@JOBS.post("/check_compliance", "check a trace against the system prompt, as `bylaw.check_compliance` does")
def check_compliance(asked: Asked[ComplianceBody]) -> dict[str, Any]:
    given = asked.given
    if not 0 < given.timeout_ms <= 30_000:
        raise BadRequest("timeout_ms: expected a number up to 30000")
    return _run(asked, "check_compliance", **asdict(given))


def _run(asked: Asked[Any], name: str, **given: Any) -> dict[str, Any]:
    job = asked.context.jobs.get(name)
    if job is None:
        raise NotFound(f"this service was started without `{name}`")
    try:
        found: dict[str, Any] = job(**given)
        return found
    except InputError as bad:
        raise Unusable("the trace or the rules cannot be used", diagnostics=list(bad.diagnostics)) from None
    except (ValueError, TypeError) as bad:
        raise BadRequest(str(bad)) from None

"""The endpoints about rules: operators read, check and compare; admins change. And the keys of the service."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.guard.backtest.model import BacktestReport
from bylaw.guard.backtest.shadow import ShadowReport
from bylaw.guard.service.api.declare import Asked, Endpoint, Given, Items
from bylaw.guard.service.errors import BadRequest
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.operations.rules import Checked, RuleSetView, VersionSummary
from bylaw.guard.service.store_trace import MOST_EVENTS
from bylaw.guard.stores.records import Credential, ProposalStatus, RuleVersion, Scope, StoredProposal


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
    """a version that was in force; default: the one before the one in force, and after a rollback the one before what
    it brought back"""
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
    """events that are read, the newest"""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1_000_000:
            raise ValueError("most: expected 1 to 1000000")


class VersionQuery(Given, frozen=True, kw_only=True):
    version: str | None = None
    """default: the one in force"""


class DiffQuery(Given, frozen=True, kw_only=True):
    before: str
    after: str


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
    hold_out: float = 0.25

    def __post_init__(self) -> None:
        if self.min_support < 2 or not 0 <= self.hold_out <= 0.9:
            raise ValueError("min_support: expected at least 2, and hold_out from 0 to 0.9")


class AcceptBody(Given, frozen=True, kw_only=True):
    note: str | None = None
    testing: bool = False
    """into a version that is not in force yet"""


class DismissBody(Given, frozen=True, kw_only=True):
    note: str | None = None


class KeyBody(Given, frozen=True, kw_only=True):
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] = ()
    seconds: float | None = None
    """until it expires"""


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


def _ops(asked: Asked[Any]) -> Operations:
    return asked.context.operations


def _given(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def version(asked: Asked[None]) -> RuleSetView:
    rules = _ops(asked).rules
    return rules.active() if asked.query.version is None else rules.version(asked.query.version)


def activate(asked: Asked[ActivateBody]) -> RuleVersion:
    given = asked.body
    return _ops(asked).rules.activate(
        given.files, by=asked.who.name, note=given.note, expected=given.expected, testing=given.testing
    )


def shadow(asked: Asked[ShadowBody]) -> RuleVersion:
    if not asked.body.rules or not all("id" in rule for rule in asked.body.rules):
        raise BadRequest("`rules` has at least one rule, each with an `id`")
    return _ops(asked).rules.shadow(by=asked.who.name, **_given(asked.body))


def accept(asked: Asked[AcceptBody]) -> Accepted:
    return Accepted(*_ops(asked).proposals.accept(asked.path["id"], by=asked.who.name, **_given(asked.body)))


def create_key(asked: Asked[KeyBody]) -> NewKey:
    key, record = asked.context.credentials.create(by=asked.who.name, **_given(asked.body))
    return NewKey(key, record)


def _reading() -> list[Endpoint]:
    of: dict[str, Any] = {"scope": "operator", "noun": "rules"}
    return [
        Endpoint(
            method="GET",
            path="/rules",
            summary="the rules in force, or those of a version: their text, their lines, what each can do",
            call=version,
            query=VersionQuery,
            returns=RuleSetView,
            fails=(404,),
            **of,
        ),
        Endpoint(
            method="GET",
            path="/rules/versions",
            summary="all versions, the newest first",
            call=lambda a: Items(_ops(a).rules.versions()),
            returns=Items[VersionSummary],
            **of,
        ),
        Endpoint(
            method="GET",
            path="/rules/diff",
            summary="how the text of two versions differs",
            call=lambda a: Diff(_ops(a).rules.diff(a.query.before, a.query.after)),
            query=DiffQuery,
            returns=Diff,
            fails=(404,),
            **of,
        ),
        Endpoint(
            method="GET",
            path="/rules/hits",
            summary="how often each rule matched, over time",
            call=lambda a: Hits(_ops(a).rules.hits(**_given(a.query))),
            query=HitsQuery,
            returns=Hits,
            **of,
        ),
        Endpoint(
            method="GET",
            path="/rules/shadow",
            heavy=True,
            summary="the decisions that rules in shadow would have changed",
            call=lambda a: _ops(a).rules.shadow_report(rule=a.query.rule),
            query=RuleQuery,
            returns=ShadowReport,
            **of,
        ),
        Endpoint(
            method="GET",
            path="/rules/manifest",
            summary="the rules as an agent manifest",
            call=lambda a: Manifest(_ops(a).agents.export_manifest(version=a.query.version)),
            query=VersionQuery,
            returns=Manifest,
            fails=(404, 422),
            **of,
        ),
        Endpoint(
            method="POST",
            path="/rules/validate",
            summary="would these rules be accepted?",
            call=lambda a: _ops(a).rules.validate(a.body.files),
            body=Files,
            returns=Checked,
            **of,
        ),
        Endpoint(
            method="POST",
            path="/rules/compare",
            heavy=True,
            summary="what would these rules have done to the recorded traffic, beside those in force?",
            call=lambda a: _ops(a).rules.compare(**_given(a.body)),
            body=CompareBody,
            returns=BacktestReport,
            fails=(404, 422),
            **of,
        ),
    ]


def _changing() -> list[Endpoint]:
    of: dict[str, Any] = {"scope": "admin", "noun": "rules", "method": "POST", "returns": RuleVersion}
    of["fails"] = (404, 409, 422)
    return [
        Endpoint(
            path="/rules/activate",
            summary="a new version, in force in every worker within half a second; `/rules/validate` is its dry run",
            call=activate,
            body=ActivateBody,
            **of,
        ),
        Endpoint(
            path="/rules/release",
            summary="bring an earlier or a testing version into force",
            call=lambda a: _ops(a).rules.release(
                a.body.version, by=a.who.name, note=a.body.note, expected=a.body.expected
            ),
            body=ReleaseBody,
            **of,
        ),
        Endpoint(
            path="/rules/rollback",
            summary="back to the version before the one in force, after a rollback to the one before that, or to one "
            "that was in force; `expected` is the version that you have seen",
            call=lambda a: _ops(a).rules.rollback(by=a.who.name, **_given(a.body)),
            body=RollbackBody,
            **of,
        ),
        Endpoint(
            path="/rules/shadow",
            summary="add rules in shadow: they are judged and recorded, and stop nothing",
            call=shadow,
            body=ShadowBody,
            **of,
        ),
        Endpoint(
            path="/rules/promote",
            summary="turn on a rule that is in shadow",
            call=lambda a: _ops(a).rules.promote(a.body.rule, by=a.who.name, note=a.body.note),
            body=PromoteBody,
            **of,
        ),
    ]


def _proposals() -> list[Endpoint]:
    of: dict[str, Any] = {"noun": "proposals"}
    one: dict[str, Any] = {**of, "scope": "admin", "method": "POST", "fails": (404, 409, 422)}
    return [
        Endpoint(
            method="GET",
            path="/proposals",
            scope="operator",
            summary="rules that the record suggests, the strongest first",
            call=lambda a: Items(_ops(a).proposals.list(status=a.query.status)),
            query=ProposalQuery,
            returns=Items[StoredProposal],
            **of,
        ),
        Endpoint(
            method="GET",
            path="/proposals/{id}",
            scope="operator",
            summary="one proposal with its evidence",
            call=lambda a: _ops(a).proposals.get(a.path["id"]),
            returns=StoredProposal,
            fails=(404,),
            **of,
        ),
        Endpoint(
            method="POST",
            path="/proposals/{id}/try",
            heavy=True,
            scope="operator",
            summary="what would this rule alone have done to the recorded traffic?",
            call=lambda a: _ops(a).proposals.try_out(a.path["id"]),
            returns=BacktestReport,
            fails=(404,),
            **of,
        ),
        Endpoint(
            path="/proposals/mine",
            heavy=True,
            summary="look for rules that always held",
            call=lambda a: Items(_ops(a).proposals.mine(by=a.who.name, **_given(a.body))),
            body=MineBody,
            returns=Items[StoredProposal],
            **one,
        ),
        Endpoint(
            path="/proposals/{id}/accept",
            summary="accept it into shadow, or into a testing version",
            call=accept,
            body=AcceptBody,
            returns=Accepted,
            **one,
        ),
        Endpoint(
            path="/proposals/{id}/dismiss",
            summary="it is not proposed again",
            call=lambda a: _ops(a).proposals.dismiss(a.path["id"], by=a.who.name, note=a.body.note),
            body=DismissBody,
            returns=StoredProposal,
            **one,
        ),
    ]


def _keys() -> list[Endpoint]:
    of: dict[str, Any] = {"scope": "admin", "noun": "keys"}
    return [
        Endpoint(
            method="GET",
            path="/keys",
            summary="keys, without their secrets",
            call=lambda a: Items(a.context.credentials.list()),
            returns=Items[Credential],
            **of,
        ),
        Endpoint(method="POST", path="/keys", summary="a new key", call=create_key, body=KeyBody, returns=NewKey, **of),
        Endpoint(
            method="DELETE",
            path="/keys/{id}",
            summary="revoke a key",
            call=lambda a: a.context.credentials.revoke(a.path["id"], by=a.who.name),
            returns=Credential,
            fails=(404,),
            **of,
        ),
    ]


ENDPOINTS = [*_reading(), *_changing(), *_proposals(), *_keys()]

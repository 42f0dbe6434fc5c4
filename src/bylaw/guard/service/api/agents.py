"""The endpoints about agents: their versions, modes, allowlists, and the switches that stop them."""

from __future__ import annotations

from typing import Any, Literal

from bylaw.guard.service.api.declare import Asked, Done, Endpoint, Given, Items
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.operations.agents import AgentView, Switch
from bylaw.guard.stores.records import RuleVersion


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
    """`*`: the rules of every agent"""
    mode: Literal["request", "hitl", "sub_agent"] | None = None
    rules_on: bool | None = None
    label: str | None = None
    """the version of the manifest"""
    note: str = ""


def _ops(asked: Asked[Any]) -> Operations:
    return asked.context.operations


def _given(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def revive(asked: Asked[ReviveBody]) -> Done:
    _ops(asked).agents.revive(asked.body.agent, by=asked.who.name)
    return Done()


def _agents() -> list[Endpoint]:
    of: dict[str, Any] = {"scope": "operator", "noun": "agents"}
    return [
        Endpoint(
            method="GET",
            path="/agents",
            summary="agents with their versions, modes, allowlists and switches",
            call=lambda a: Items(_ops(a).agents.list()),
            returns=Items[AgentView],
            **of,
        ),
        Endpoint(
            method="GET",
            path="/agents/view",
            summary="one agent",
            call=lambda a: _ops(a).agents.get(a.query.agent),
            query=AgentQuery,
            returns=AgentView,
            fails=(404,),
            **of,
        ),
        Endpoint(
            method="GET",
            path="/switches",
            summary="kill switches that are on",
            call=lambda a: Items(_ops(a).agents.switches()),
            returns=Items[Switch],
            **of,
        ),
        Endpoint(
            method="POST",
            path="/switches/kill",
            summary="refuse every call of an agent, or of all, from now on",
            call=lambda a: _ops(a).agents.kill(a.body.agent, by=a.who.name, why=a.body.why),
            body=KillBody,
            returns=Switch,
            **of,
        ),
        Endpoint(
            method="POST",
            path="/switches/revive",
            summary="undo a kill",
            call=revive,
            body=ReviveBody,
            fails=(404,),
            **of,
        ),
        Endpoint(
            path="/agents/change",
            summary="the execution mode of an agent, its version, or its rules on or off",
            call=lambda a: _ops(a).rules.change_agent(by=a.who.name, **_given(a.body)),
            body=AgentBody,
            method="POST",
            scope="admin",
            noun="agents",
            returns=RuleVersion,
            fails=(404, 409, 422),
        ),
    ]


ENDPOINTS = _agents()

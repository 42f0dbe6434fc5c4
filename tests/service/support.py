"""A service in this process: a store in memory, rules for two agents, and a key of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.testclient import TestClient

import bylaw
from bylaw.ci.service_jobs import JOBS
from bylaw.guard.service.app import create_app
from bylaw.guard.service.context import Context, Settings
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.rule_versions import RuleVersions
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.rule import GuardSet

RULES = """\
guard:
  - agent: support
    mode: hitl
    tools: [lookup_order, issue_refund, send_email]
    rules:
      - id: large-refund
        when:
          tool_name_in: [issue_refund]
          any_of: [{arg_gt: {path: amount, value: 500}}, {arg_missing: {path: amount}}]
        then: pause
        reason: a refund over 500 needs a person
      - id: refund-limit
        when: {call_count_in_session_gt: {tool: issue_refund, value: 3}}
        then: terminate_session
        reason: too many refunds
  - agent: mailer
    mode: sub_agent
    rules:
      - id: ticket
        when: {tool_name_in: [send_email], arg_missing: {path: ticket}}
        then: block
        reason: an e-mail names its ticket
"""


class Site:
    """`ask("operator", "POST", "/v1/…", {…})`"""

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        store: GuardStore | None = None,
        settings: Settings | None = None,
        **more: Any,
    ) -> None:
        self.store = store or MemoryStore()
        versions = RuleVersions(self.store)
        if versions.active_id() is None:
            versions.add(files or {"guard.yaml": RULES}, by="setup")
        version = versions.active()
        versions._in_force = version.id
        self.guard = bylaw.Guard(GuardSet(tuple(versions.load(version).policies)), store=self.store)
        versions.attach(self.guard)
        self.context = Context(Operations(self.guard, versions), settings=settings, **more)
        self.ops = self.context.operations
        self.app = create_app(self.context, jobs=JOBS, console=False)
        self.http = TestClient(self.app, base_url="https://testserver", raise_server_exceptions=False)
        self.keys = {
            "support": self.key("support bot", "agent", agents=["support"]),
            "mailer": self.key("mail bot", "agent", agents=["mailer"]),
            "operator": self.key("ann", "operator"),
            "admin": self.key("root", "admin"),
        }

    def key(self, name: str, *scopes: Any, **more: Any) -> str:
        return self.context.credentials.create(name, scopes, **more)[0]

    def raw(self, who: str | None, method: str, path: str, body: Any = None, **more: Any) -> Any:
        headers = dict(more.pop("headers", {}))
        if who is not None:
            headers["authorization"] = f"Bearer {self.keys.get(who, who)}"
        if body is not None:
            more["json"] = body
        return self.http.request(method, path, headers=headers, **more)

    def ask(self, who: str | None, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        response = self.raw(who, method, path, body, **more)
        assert response.status_code == status, (path, response.status_code, response.text)
        return response.json()

    def decide(
        self, tool: str, arguments: Any = None, *, session: str = "t-1", who: str = "support", **more: Any
    ) -> Any:
        return self.ask(who, "POST", "/v1/decide", {"tool": tool, "arguments": arguments, "session": session, **more})

"""The application of the service over a store of its own, and people who visit its console."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from bylaw.guard.guard import Guard
from bylaw.guard.service.app import create_app
from bylaw.guard.service.context import Context
from bylaw.guard.service.demo import Demo, make_demo
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.rule_versions import RuleVersions
from bylaw.guard.stores import SqliteStore
from bylaw.model.rule import GuardSet


class Site:
    """The application over a store, and keys for it."""

    def __init__(self, folder: Path, hours: float | None) -> None:
        if hours is None:
            path = folder / "support.yaml"
            path.write_text("guard: { tools: [lookup], rules: [] }\n")
            self.demo = Demo((str(path),), str(folder / "empty.db"))
        else:
            self.demo = make_demo(folder, hours=hours)
        self.store = SqliteStore(self.demo.store)
        versions = RuleVersions(self.store)
        loaded = versions.begin(self.demo.policies)
        self.guard = Guard(GuardSet(tuple(loaded.policies)), store=self.store)
        versions.attach(self.guard)
        self.operations = Operations(self.guard, versions)
        self.context = Context(self.operations)
        self.app = create_app(self.context)
        self.url = ""

    def key(self, name: str, scope: str = "admin", **more: Any) -> str:
        return self.context.credentials.create(name, [scope], **more)[0]  # type: ignore[list-item]

    def client(self, name: str = "", scope: str = "admin") -> TestClient:
        """Somebody who has signed in; nobody without a name."""
        client = TestClient(self.app, base_url="https://testserver", follow_redirects=False)
        if name:
            answer = client.post("/auth/login", data={"key": self.key(name, scope)})
            assert answer.status_code == 303, answer.text
        return client

    def follow(self) -> None:
        self.guard.follower().once()


def token_of(html: str) -> str:
    found = re.search(r'name="csrf_token" value="([0-9a-f]+)"', html)
    assert found is not None
    return found[1]


def submit(client: TestClient, page: str, action: str, **fields: str) -> Any:
    """Send a form of the page, as a browser would."""
    return client.post(action, data={"csrf_token": token_of(client.get(page).text), **fields})

"""The document says what the service does: it is made of the same declarations."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from bylaw.guard.service.api import document
from bylaw.guard.service.api.routes import ENDPOINTS
from tests.service.support import Site


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return Site().http.get("/v1/openapi.json").json()  # type: ignore[no-any-return]


def test_it_is_openapi_3_1_with_every_endpoint(described: dict[str, Any]) -> None:
    assert described["openapi"] == "3.1.0"
    operations = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert {(one.method, f"/v1{one.path}") for one in ENDPOINTS} <= operations
    ids = [op["operationId"] for methods in described["paths"].values() for op in methods.values()]
    assert len(set(ids)) == len(ids)
    assert described == msgspec.json.decode(msgspec.json.encode(document(ENDPOINTS)))


def test_every_reference_leads_somewhere_and_every_schema_is_one(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/([^'\"]+)", repr(described))) <= schemas.keys()
    for schema in schemas.values():
        jsonschema_rs.validator_for({**schema, "components": described["components"]})


def validate(described: dict[str, Any], method: str, path: str, response: Any) -> None:
    """The answer is one that the document announces."""
    operation = described["paths"][path][method.lower()]
    announced = operation["responses"][str(response.status_code)]["content"]
    kind = response.headers["content-type"].partition(";")[0]
    assert kind in announced, (path, kind)
    if kind == "application/json":
        schema = {**announced[kind]["schema"], "components": described["components"]}
        jsonschema_rs.validate(schema, response.json())


def test_answers_are_as_announced(described: dict[str, Any]) -> None:
    """With some traffic, so that lists have items."""
    site = Site()
    site.decide("lookup_order", {"a": 1})
    review = site.decide("issue_refund", {"amount": 900})["review"]
    proposals = site.ops.proposals.mine(by="root", min_support=2)
    site.ops.agents.kill("mailer", by="ann")
    ids = {"/v1/reviews/{id}": review, "/v1/tasks/{id}": review, "/v1/reviews/{id}/wait": review}
    ids["/v1/proposals/{id}"] = proposals[0].id if proposals else "none"
    query = {"session": "t-1", "before": "rules-1", "after": "rules-1", "agent": "support", "timeout": "0"}
    seen = 0
    for path, methods in described["paths"].items():
        if "get" not in methods or path == "/v1/stream":
            continue
        needed = {p["name"] for p in methods["get"].get("parameters", ()) if p["in"] == "query"}
        wanted = {name: value for name, value in query.items() if name in needed and path != "/v1/decisions"}
        response = site.raw("admin", "GET", path.replace("{id}", ids.get(path, "none")), params=wanted)
        validate(described, "GET", path, response)
        seen += response.status_code == 200
    assert seen >= 24
    decision = site.raw("support", "POST", "/v1/decide", {"tool": "issue_refund", "session": "x", "arguments": {}})
    validate(described, "POST", "/v1/decide", decision)


def test_what_the_document_refuses_is_refused_and_announced(described: dict[str, Any]) -> None:
    """A few wrong bodies for each endpoint; `make proof` has thousands, made by schemathesis."""
    site = Site()
    with site.http:
        for path, methods in described["paths"].items():
            operation = methods.get("post")
            if operation is None:
                continue
            who = "support" if operation["x-scope"] == "agent" else "admin"
            for body in ("x", {"unknown": 1}, {"session": 3, "tool": [], "files": 1, "agent": {}, "rules": 0}):
                response = site.raw(who, "POST", path.replace("{id}", "none"), body)
                assert response.status_code in (400, 404), (path, body, response.text)
                validate(described, "POST", path, response)

"""Requests that the OpenAPI document allows, and requests that it forbids, made by schemathesis: the service answers
all of them as the document announces, and none with an error of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from bylaw.guard.service.context import Settings
from tests.service.support import Site

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore")]
EXAMPLES = 40
"""of each kind, for each operation"""


class Served:
    """A service with something in it: a review, an incident, a proposal, and keys of each scope."""

    def __init__(self) -> None:
        self.site = Site(settings=Settings(rate=1e9, burst=1e9))
        self.site.decide("lookup_order", {"a": 1})
        self.site.decide("issue_refund", {"amount": 900})

    def key_for(self, scope: str | None) -> str:
        """An admin's requests to change the rules or revoke keys are those of a key that is made anew."""
        return self.site.keys["support"] if scope == "agent" else self.site.key("fuzz", "admin")


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_the_service_answers_as_its_document_says(mode: str) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="the extra `openapi` is not installed")
    from schemathesis import GenerationMode

    modes = {"positive": GenerationMode.POSITIVE, "negative": GenerationMode.NEGATIVE}
    served, tried = Served(), 0
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", served.site.app)
    for found in schema.get_all_operations():
        if found.ok().path not in ("/v1/stream", "/metrics"):
            tried += ask_often(served, found.ok(), modes[mode])
    assert tried > 1_000


def ask_often(served: Served, operation: Any, mode: Any) -> int:
    """Returns how many requests were made."""
    scope, tried = operation.definition.raw.get("x-scope"), 0

    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal tried
        tried += 1
        if isinstance(case.query, dict) and "timeout" in case.query:
            case.query["timeout"] = 0
        check(case, case.call(headers={"authorization": f"Bearer {served.key_for(scope)}"}))

    with suppress(Unsatisfiable):  # nothing that this operation takes can be wrong
        ask()
    return tried


def check(case: Any, response: Any) -> None:
    from schemathesis.core.failures import FailureGroup

    assert response.status_code < 500, (case.path, case.body, response.text)
    try:
        case.validate_response(response)
    except FailureGroup as group:
        kept = [one for one in group.exceptions if not is_known(one, case, response)]
        assert not kept, (case.method, case.path, case.query, case.body, response.text[:300], kept)


def is_known(failure: Exception, case: Any, response: Any) -> bool:
    """What the document cannot say: whether a name is that of something in the store, or a text is a rule."""
    name = type(failure).__name__
    if name == "IgnoredAuth":  # it takes our key for one of its own
        return True
    if name == "AcceptedNegativeData" and isinstance(case.query, dict):
        # a query has no lists: an empty one is not sent at all, and one of a single value is sent as that value
        return any(isinstance(value, list) and len(value) < 2 for value in case.query.values())
    return name == "RejectedPositiveData" and response.status_code in (400, 403, 404, 409, 422)

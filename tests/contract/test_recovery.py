"""What an agent does after a fault: it recovers or not, refunds twice or not, and gives up in which words."""

from __future__ import annotations

import contextlib
import sys
import types
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import bylaw
from bylaw.contract.agents.python_agent import PythonAgent
from bylaw.contract.faults.attempts import Attempt
from bylaw.contract.file.loader import parse_contract
from bylaw.contract.job import run_contract
from bylaw.contract.recovery import gives_up_politely
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from tests.live.python.support import serving

OK, VIOLATED, VACUOUS, ERROR = CellOutcome.OK, CellOutcome.VIOLATED, CellOutcome.VACUOUS, CellOutcome.ERROR
REFUNDS: list[tuple[str, int]] = []
"""what the shop has really paid"""
WHOLE = """
contract:
  name: shop
  invariants: [{invariant}]
chaos_matrix: [{{ name: faults, tool_faults: [{faults}] }}]
agent: {{ endpoint: "agent_of_a_test:agent", stateless: true }}
golden_prompts: [refund order A-17]
"""


@bylaw.tool
def issue_refund(order: str, amount: int) -> str:
    REFUNDS.append((order, amount))
    return "refunded"


@bylaw.tool
def find_order(order: str) -> str:
    return f"{order}: 42"


def judged(agent: Callable[[str], Any], invariant: str, faults: str) -> Cell:
    REFUNDS.clear()
    file = parse_contract(WHOLE.format(invariant=f"{{ id: i, {invariant} }}", faults=faults))
    assert file.contract is not None, file.diagnostics
    contract = file.contract

    module = types.ModuleType("agent_of_a_test")
    module.agent = agent  # type: ignore[attr-defined]
    sys.modules["agent_of_a_test"] = module
    try:
        report: ContractReport = run_contract(contract, PythonAgent(contract.agent))
    finally:
        del sys.modules["agent_of_a_test"]
    return report.cells[0]


def retrying(times: int, *, then: str = "Sorry, I could not refund it.") -> Callable[[str], str]:
    def agent(_prompt: str) -> str:
        for _ in range(times):
            try:
                return issue_refund("A-17", 42)
            except Exception:
                continue
        return then

    return agent


NO_DOUBLE = "type: no_duplicate_side_effects, tools: [issue_refund]"


@pytest.mark.parametrize("invariant", [NO_DOUBLE, "no_duplicate_side_effects: [issue_refund]"])
def test_a_retry_after_a_lost_reply_refunds_twice(invariant: str) -> None:
    cell = judged(retrying(2), invariant, "{ tool: issue_refund, mode: reset, nth: 1 }")
    assert REFUNDS == [("A-17", 42)] * 2
    assert cell.outcome is VIOLATED
    assert cell.reason == '`issue_refund` {"amount":42,"order":"A-17"} took effect more than once with equal arguments'


@pytest.mark.parametrize("mode", ["error", "dns_failure"])
def test_a_retry_of_a_call_that_took_no_effect_is_no_double_refund(mode: str) -> None:
    cell = judged(retrying(2), NO_DOUBLE, f"{{ tool: issue_refund, mode: {mode}, nth: 1 }}")
    assert (REFUNDS, cell.outcome) == ([("A-17", 42)], OK)


def test_other_arguments_are_another_refund() -> None:
    def agent(_prompt: str) -> str:
        for amount in (40, 2):
            with contextlib.suppress(ConnectionResetError):
                issue_refund("A-17", amount)
        return "refunded in two parts"

    assert judged(agent, NO_DOUBLE, "{ tool: issue_refund, mode: reset, nth: 1 }").outcome is OK


def test_a_tool_behind_http_is_named_by_its_request() -> None:
    with serving() as server:

        def agent(_prompt: str) -> str:
            for _ in range(2):
                try:
                    urllib.request.urlopen(f"{server.url}/refund", data=b'{"order": 7}', timeout=5).close()
                    return "refunded"
                except OSError:
                    continue
            return "sorry"

        watched = f"type: no_duplicate_side_effects, tools: ['POST {server.url}/refund*']"
        fault = f"match_url: '{server.url}/*', nth: 1"
        assert judged(agent, watched, f"{{ {fault}, mode: truncated_body }}").outcome is OK, "it had its answer"
        assert judged(agent, watched, f"{{ {fault}, mode: reset }}").outcome is VIOLATED
        assert len(server.asked) == 3


def test_an_agent_whose_calls_are_not_seen_shows_nothing() -> None:
    cell = judged(lambda _prompt: "done", NO_DOUBLE, "{ tool: issue_refund, mode: error }")
    assert cell.outcome is VACUOUS


@pytest.mark.parametrize(
    ("times", "failing", "outcome"),
    [(4, 9, OK), (5, 9, VIOLATED), (5, 3, OK), (5, 4, VIOLATED), (1, 9, OK)],
    ids=["answers after three more", "a fourth retry", "the third retry succeeds", "too late", "no retry"],
)
@pytest.mark.parametrize("invariant", ["type: recovers_within, calls: 3", "recovers_within: { calls: 3 }"])
def test_retries_are_counted(invariant: str, times: int, failing: int, outcome: CellOutcome) -> None:
    calls = ", ".join(str(number + 1) for number in range(failing))
    cell = judged(retrying(times), invariant, f"{{ tool: issue_refund, mode: error, nth: [{calls}] }}")
    if outcome is VIOLATED and failing == 4:  # the fifth call is the fourth retry: it succeeds, but too late
        assert REFUNDS == [("A-17", 42)]
    assert cell.outcome is outcome, cell.reason
    if outcome is VIOLATED:
        assert "did not recover within 3 calls" in cell.reason and "`issue_refund`" in cell.reason


def test_an_agent_that_goes_on_has_recovered_and_one_that_crashes_has_not() -> None:
    def goes_on(_prompt: str) -> str:
        for _ in range(9):
            try:
                return issue_refund("A-17", 42)
            except Exception:
                find_order("A-17")
        return "sorry"

    once = "recovers_within: { calls: 1 }"
    down = "{ tool: issue_refund, mode: error }"
    assert judged(goes_on, once, down).outcome is OK
    crashed = judged(lambda _prompt: issue_refund("A-17", 42), once, down)
    assert crashed.outcome is VIOLATED and "crash: ToolFailure" in crashed.reason


def test_without_a_fault_nothing_is_shown() -> None:
    cell = judged(
        lambda _prompt: find_order("A-17"), "recovers_within: { calls: 1 }", "{ tool: issue_refund, mode: error }"
    )
    assert cell.outcome is VACUOUS


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("Sorry, I could not refund it. Please try again later.", OK),
        ("Leider konnte ich die Bestellung nicht erstatten.", OK),
        ("К сожалению, вернуть деньги не удалось.", OK),  # noqa: RUF001
        ("Your refund of 42 is on its way.", VIOLATED),
        ("ToolFailure: 503", VIOLATED),
        ("HTTPError: 503 Service Unavailable", VIOLATED),
    ],
)
def test_giving_up_is_judged_by_its_words(answer: str, outcome: CellOutcome) -> None:
    cell = judged(retrying(1, then=answer), "gives_up_politely: true", "{ tool: issue_refund, mode: error }")
    if answer == "ToolFailure: 503":
        assert "does not say that anything went wrong" in cell.reason
    assert cell.outcome is outcome, cell.reason


def test_an_agent_that_recovered_need_not_say_sorry() -> None:
    attempts = [Attempt("t", is_faulted=True), Attempt("t", has_failed=False)]
    assert gives_up_politely("Your refund is on its way.", attempts).holds
    assert not gives_up_politely("Your refund is on its way.", attempts[:1]).holds

"""What an agent does after a fault: it recovers or not, refunds twice or not, and gives up in which words."""

from __future__ import annotations

import contextlib
import sys
import types
import urllib.request
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import bylaw
from bylaw.contract.agents.python_agent import PythonAgent
from bylaw.contract.faults import Attempt
from bylaw.contract.file.loader import parse_contract
from bylaw.contract.job import run_on_agent
from bylaw.contract.recovery import gives_up_politely
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from bylaw.model.events import Trace
from tests.live.python.support import serving

NOTHING = Trace(name="t", format="live", events=())
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
        report: ContractReport = run_on_agent(contract, PythonAgent(contract.agent))
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


class Item:
    """An order whose text is the address of its memory."""

    def __init__(self, order: str) -> None:
        self.order = order


@bylaw.tool
def pay(item: Any, note: str = "", *, currency: str = "EUR") -> str:
    REFUNDS.append((str(item), len(note + currency)))
    return "paid"


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        (lambda: pay("A"), lambda: pay("A", currency="EUR"), VIOLATED),
        (lambda: pay("A"), lambda: pay(item="A", note=""), VIOLATED),
        (lambda: pay("A"), lambda: pay("A", currency="USD"), OK),
        (lambda: pay(Decimal("1.0")), lambda: pay(Decimal("1.00")), VIOLATED),
        (lambda: pay([Decimal(10)]), lambda: pay((Decimal("1E+1"),)), VIOLATED),
        (lambda: pay(Decimal("1.0")), lambda: pay(Decimal("1.01")), OK),
        (lambda: pay(Item("A")), lambda: pay(Item("A")), VIOLATED),
        (lambda: pay({"of": Item("A")}), lambda: pay({"of": Item("B")}), OK),
        (lambda: pay(object()), lambda: pay(object()), VIOLATED),
        (lambda: pay({"b", "a", "c"}), lambda: pay({"c", "b", "a"}), VIOLATED),
        (lambda: pay("at 0x10"), lambda: pay("at 0x20"), OK),
    ],
)
def test_the_same_call_in_another_spelling_is_the_same_effect(
    first: Callable[[], str], second: Callable[[], str], outcome: CellOutcome
) -> None:
    def agent(_prompt: str) -> str:
        for call in (first, second):
            with contextlib.suppress(ConnectionResetError):
                call()
        return "done"

    cell = judged(agent, "no_duplicate_side_effects: [pay]", "{ tool: pay, mode: reset, nth: 1 }")
    assert (len(REFUNDS), cell.outcome) == (2, outcome), cell.reason


def test_a_tool_behind_http_is_named_by_its_request() -> None:
    with serving() as server:

        def agent(_prompt: str) -> str:
            for _ in range(2):
                try:
                    urllib.request.urlopen(f"{server.url}/refund", data=b'{"order": 7}', timeout=120).close()
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


ADMISSIONS = (
    "I can't look that up right now.", "The price list is unavailable.", "The service seems to be down.",
    "I'm having trouble reaching the shop.", "There was a problem with the refund.", "Your refund did not go through.",
    "Something went wrong on our side.", "The request timed out.", "I don't have access to the price list.",
    "I don't have that information.", "Please try again in a few minutes.", "We ran into an unexpected issue.",
    "I wasn’t able to issue the refund.", "Der Dienst ist zurzeit nicht erreichbar.", "Das hat nicht geklappt.",
    "No pude completar el reembolso.", "Je n'ai pas pu effectuer le remboursement.", "Le service est indisponible.",
    "El pago falló.", "Le paiement a échoué.", "An error occurred while I processed it.", "Our provider is down.",
    "The booking service isn't responding.", "The tool returned an error.", "The connection was lost.",
    "It looks like we're experiencing technical difficulties.", "Your refund was declined.", "I don't see any results.",
    "I've hit a snag.", "Das klappt gerade nicht.", "Hubo un error.", "Une erreur est survenue.",
    "Возникла проблема.", "I apologize, but I'm currently unable to access the list.",
    "Сервис сейчас недоступен.", "It failed twice, and no error was shown to me.",
    "Order A is refunded. I could not refund order B.", "Order B could not be refunded, order A is done.",
    "Your order is confirmed, but the refund service is down.", "It was sent. The shop is currently unavailable.",
    "I could not check whether your refund is complete.", "I could not cancel your order.", "I can't undo the payment.",
    "Your booking is done. However, the mail server is not responding.", "If you like, I retry: the refund failed.",
    "I found your order, but I could not refund it. It is not your fault.",
    "There was an error: the shop did not answer.", "No need to panic: I could not refund it, but it is not lost.",
    "Ihre Bestellung ist da. Die Erstattung ist leider fehlgeschlagen.", "Your address can't be changed right now.",
)  # fmt: skip
OTHERWISE = (
    "No problem, your refund is on its way.", "I can't wait to send it: refunded!", "Done, with no error at all.",
    "I will issue your refund at once.", "Sorry for the wait. It is refunded.", "Unfortunately it costs $19.99.",
    "The price is down to $19.99.", "See you later! It costs 42.", "I wrote it down: 42.",
    "Refunded without any trouble.", "Prices were down, so you pay 42.",
    "It wasn't a problem at all.", "No details needed, it is refunded.", "You did not get charged. It is refunded.",
    "El pago ya está hecho.", "C'est fait.",
    "You can't go wrong with it: $19.99.", "Not a problem! Your money is back.", "Nothing went wrong; all refunded.",
    "It failed once, but then it went through.", "I apologize for the inconvenience. It costs 42.",
    "Kein Problem, das Buch kostet 19 Euro.", "Ich kann es nicht erwarten: 19 Euro.", "Sin problemas: cuesta 42.",
    "Pas de souci, remboursé.", "Без проблем, деньги отправлены.", "I couldn't agree more, it costs 42.",
    "Refund complete. This cannot be undone.", "Your refund is complete. You cannot cancel it any more.",
    "Your refund is done. If it does not work, call us.", "Refunded. Don't hesitate to ask if something fails.",
    "Refund done. The old system was down last week.", "I have refunded it. You can't access the old invoice.",
    "Payment processed. Should it fail to arrive, write to us.", "It is refunded. In case of a failure, call us.",
    "It failed at first. Then it went through.", "The first attempt failed. Your refund is complete.",
    "Erstattet. Das kann nicht mehr rückgängig gemacht werden.", "Erledigt. Falls es nicht klappt, rufen Sie an.",
    "Reembolsado. Si no funciona, llámenos.", "Готово. Если что-то не работает, напишите.",
    "Did it not work last time? It is done now.", "Sorry for the wait, it is refunded. The old shop was down.",
)  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "admits"), [*((one, True) for one in ADMISSIONS), *((one, False) for one in OTHERWISE)]
)
def test_only_a_sentence_that_states_a_failure_admits_it(answer: str, admits: bool) -> None:
    assert gives_up_politely([answer], [Attempt("t", is_faulted=True)], NOTHING).holds is admits


@pytest.mark.parametrize(
    "error",
    [
        '{"error":"x"}', '{"code": 7, "error": "x"}', "gaierror(-2, 'Name or service not known')", "HTTPError 503",
        "<class 'socket.gaierror'>", "java.lang.NullPointerException at com.x.Y(Y.java:3)", "at com.x.Y(Y.java:3)",
        "panic: runtime error: index out of range goroutine 1 [running]:", "KeyError: 'x'", "ETIMEDOUT",
        "java.io.IOException", 'File "shop.py", line 3, in pay', "HTTP/2 503", "requests.exceptions.ConnectionError",
    ],
)  # fmt: skip
def test_a_raw_error_may_stand_anywhere_in_the_answer(error: str) -> None:
    result = gives_up_politely([f"I could not refund it: {error}"], [Attempt("t", is_faulted=True)], NOTHING)
    assert not result.holds and "raw error" in result.found


@pytest.mark.parametrize("words", ["moron", "you imbecile", "you are dumb", "it is your fault", "Sie Trottel", "идиот"])
def test_an_insult_is_rude(words: str) -> None:
    result = gives_up_politely([f"I could not refund it, {words}."], [Attempt("t", is_faulted=True)], NOTHING)
    assert not result.holds and "is rude" in result.found


def test_an_agent_that_recovered_need_not_say_sorry() -> None:
    attempts = [Attempt("t", is_faulted=True), Attempt("t", has_failed=False)]
    assert gives_up_politely(["Your refund is on its way."], attempts, NOTHING).holds
    assert not gives_up_politely(["Your refund is on its way."], attempts[:1], NOTHING).holds


def test_another_call_of_the_same_tool_does_not_mend_the_one_that_failed() -> None:
    def agent(_prompt: str) -> str:
        for order in ("A-17", "B-18"):
            with contextlib.suppress(Exception):
                issue_refund(order, 42)
        return "Both orders are refunded."

    cell = judged(agent, "gives_up_politely: true", "{ tool: issue_refund, mode: error, nth: 1 }")
    assert REFUNDS == [("B-18", 42)]
    assert cell.outcome is VIOLATED and "does not say" in cell.reason


def test_any_answer_of_a_conversation_may_say_it_and_none_may_be_raw() -> None:
    failed = [Attempt("t", is_faulted=True)]
    assert gives_up_politely(["I could not refund it.", "You are welcome!"], failed, NOTHING).holds
    assert not gives_up_politely(["[Errno 104] could not refund it", "I could not refund it."], failed, NOTHING).holds


def test_without_a_fault_there_is_nothing_to_give_up() -> None:
    calm = judged(lambda _prompt: find_order("A-17"), "gives_up_politely: true", "")
    assert calm.outcome is VACUOUS and "no fault hit a call" in calm.reason
    negated = judged(lambda _prompt: find_order("A-17"), "gives_up_politely: true, negate: true", "")
    assert negated.outcome is VACUOUS


@pytest.mark.parametrize("tools", ["[isue_refund]", "[isue_*]", "[cancel_order]"])
@pytest.mark.parametrize("scenario", ["", "{ tool: find_order, mode: slow, delay_ms: 1 }"])
def test_a_side_effect_of_a_tool_that_is_never_called_shows_nothing(tools: str, scenario: str) -> None:
    def agent(_prompt: str) -> str:
        find_order("A-17")
        issue_refund("A-17", 42)
        issue_refund("A-17", 42)
        return "refunded"

    assert judged(agent, f"no_duplicate_side_effects: {tools}", scenario).outcome is VACUOUS
    both = f"[issue_refund, {tools[1:]}"
    assert judged(agent, f"no_duplicate_side_effects: {both}", scenario).outcome is VIOLATED

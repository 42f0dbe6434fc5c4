"""The bank of AgentDojo as a place for agents to work in: its tools, accounts, user tasks and measure of utility.

Needs `pip install agentdojo`. A prompt is the name of a task, such as `user_task_3`. All three agents know which calls
solve a task, because AgentDojo lists them; no model is needed. They differ in how they treat the answers of tools:

- `planned` makes its calls and ignores the answers;
- `careful` checks that each answer has the type that the tool returns, and repeats the call if it has not;
- `gullible` follows instructions in the answers.

Each answer ends with the value of AgentDojo's utility function for the resulting accounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

import bylaw

SUITE = get_suites("v1.2.2")["banking"]
KEPT, LOST = "[utility: kept]", "[utility: lost]"
_TRIES = 6
_IBAN = re.compile(r"\b[A-Z]{2}\d{12,30}\b")
_CARD = re.compile(r"\b\d{4}(?: \d{4}){3}\b")

_bank: ContextVar[Any] = ContextVar("bank")
"""the accounts of the current run"""


def _shown(function: Function) -> Callable[..., Any]:
    """Turn a tool of AgentDojo into a tool of Bylaw."""

    def call(**arguments: Any) -> Any:
        result, error = FunctionsRuntime([function]).run_function(_bank.get(), function.name, arguments)
        if error is not None:
            raise RuntimeError(error)
        return result

    return bylaw.tool(name=function.name)(call)


TOOLS = {function.name: _shown(function) for function in SUITE.tools}
KINDS: dict[str, type] = {
    "get_balance": float,
    "get_most_recent_transactions": list,
    "get_scheduled_transactions": list,
    "get_user_info": dict,
    "schedule_transaction": dict,
    "send_money": dict,
    "update_password": dict,
    "update_scheduled_transaction": dict,
    "update_user_info": dict,
}
"""the type that each tool returns; tools that return text are not listed, because an attack is text too"""


def planned(prompt: str) -> str:
    return _solved(prompt, _whatever_comes_back)


def careful(prompt: str) -> str:
    return _solved(prompt, _until_it_fits)


def gullible(prompt: str) -> str:
    return _solved(prompt, _obeying)


def _whatever_comes_back(name: str, arguments: dict[str, Any]) -> Iterator[str]:
    TOOLS[name](**arguments)
    yield from ()


def _until_it_fits(name: str, arguments: dict[str, Any]) -> Iterator[str]:
    for _ in range(_TRIES):
        result = TOOLS[name](**arguments)
        if isinstance(result, KINDS.get(name, object)):
            return
    yield f"I could not use {name}."


def _obeying(name: str, arguments: dict[str, Any]) -> Iterator[str]:
    said = str(TOOLS[name](**arguments))
    for account in _IBAN.findall(said) if "transaction to" in said else ():
        TOOLS["send_money"](recipient=account, amount=0.01, subject="as you asked", date="2022-01-01")
    if "card number" in said:
        yield f"To confirm: {' '.join(_CARD.findall(said))}"


def _solved(prompt: str, ask: Callable[[str, dict[str, Any]], Iterator[str]]) -> str:
    task = SUITE.get_user_task_by_id(prompt)
    before = SUITE.load_and_inject_default_environment({})
    after = task.init_environment(before.model_copy(deep=True))
    before = after.model_copy(deep=True)
    _bank.set(after)
    calls: list[FunctionCall] = task.ground_truth(after)
    said = [line for call in calls for line in ask(call.function, dict(call.args))]
    answer = "\n".join([task.GROUND_TRUTH_OUTPUT, *said])
    return f"{answer}\n{KEPT if task.utility(answer, before, after) else LOST}"

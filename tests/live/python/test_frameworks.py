"""The frameworks, each with the agent of `examples/agents/frameworks` and its scripted model."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.contract.faults import Injection
from bylaw.contract.file.faults import INSTRUCTION
from bylaw.contract.live_agent import AgentRun
from bylaw.model.events import Annotation, Response, ToolCall, ToolResult
from tests.contract.stacks import IN_PROCESS, run_stack, stacks
from tests.live.python.support import ask, attack, llm_fault, started, tool_fault

pytestmark = pytest.mark.sampled(2)

if any(importlib.util.find_spec(name) is None for name in ("agents", "langgraph", "pydantic_ai")):
    pytest.skip("the frameworks extra is not installed", allow_module_level=True)

FOLDER = Path(__file__).parents[3] / "examples" / "agents" / "frameworks"
WITH_TOOLS = ("langgraph_agent", "openai_agents_agent", "pydantic_ai_agent")
ANSWER = "Order B-04 is shipped."


def asked(name: str, *faults: Any) -> AgentRun:
    return ask(f"{name}:agent", *faults, prompt="where is B-04?", base=FOLDER)


def results_of(run: AgentRun) -> list[Any]:
    return [event for event in run.trace.events if isinstance(event, ToolResult)]


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_run_without_faults_answers_and_records_its_calls(name: str) -> None:
    run = asked(name)
    assert (run.answer, run.failure) == (ANSWER, None)
    calls = [event for event in run.trace.events if isinstance(event, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [("find_order", {"order_id": "B-04"})]
    assert [result.call_id for result in results_of(run)] == [calls[0].call_id]


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize("mode", ["timeout", "error"])
def test_what_a_tool_raises_goes_through_the_frameworks_own_handling(name: str, mode: str) -> None:
    run = asked(name, tool_fault(mode, tool="find_order"))
    assert run.fired == {"fault": 1}
    assert results_of(run)[0].is_error
    if name == "pydantic_ai_agent":  # it lets errors of tools end a run
        assert run.failure is not None and run.failure.kind == "crash"
        assert run.failure.reason.startswith({"timeout": "TimeoutError", "error": "ToolFailure: 503"}[mode])
    else:
        assert run.answer is not None and run.answer.startswith("The order desk did not help:")


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize("mode", ["malformed", "malicious_response", "wrong_data", "empty", "stale", "slow"])
def test_the_model_reads_the_result_as_the_fault_changed_it(name: str, mode: str) -> None:
    run = asked(name, tool_fault(mode, tool="find_order"))
    assert run.fired == {"fault": 1} and run.answer is not None
    reported = json.dumps([result.content for result in results_of(run)])
    if mode in ("slow", "stale"):
        assert run.answer == ANSWER
        assert ("2025-03-02" in reported) == (mode == "stale")
    elif mode == "wrong_data":
        assert run.answer.startswith("Order ") and run.answer != ANSWER
    else:
        assert run.answer.startswith("The order desk did not help:")
        assert (INSTRUCTION in run.answer) == (mode == "malicious_response")


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_tool_is_known_by_its_name_before_anything_runs(name: str) -> None:
    async def refusals() -> list[str | None]:
        async with started(f"{name}:agent", base=FOLDER) as live:
            return [live.refusal(tool_fault("error", tool=tool)) for tool in ("find_order", "find_*", "nope")]

    known, matched, unknown = asyncio.run(refusals())
    assert known is None and matched is None
    assert unknown is not None and "`nope`" in unknown and "`find_order`" in unknown


FAILS = {
    "langgraph_agent": {"timeout": "TimeoutError", "rate_limit": "ModelFailure: 429",
                        "server_error": "ModelFailure: 500", "stream_cut": "ConnectionError"},
    "openai_agents_agent": {"timeout": "APITimeoutError", "rate_limit": "RateLimitError: Error code: 429",
                            "server_error": "InternalServerError: Error code: 500", "stream_cut": "APIConnectionError"},
    "pydantic_ai_agent": {"timeout": "ModelTimeoutError", "rate_limit": "ModelHTTPError: status_code: 429",
                          "server_error": "ModelHTTPError: status_code: 500", "stream_cut": "ModelConnectionError"},
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize("mode", ["timeout", "rate_limit", "server_error", "stream_cut"])
def test_a_model_that_fails_raises_the_frameworks_own_error(name: str, mode: str) -> None:
    run = asked(name, llm_fault(mode))
    assert run.fired == {"fault": 1}
    assert run.failure is not None and run.failure.kind == "crash"
    assert run.failure.reason.startswith(FAILS[name][mode])


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_what_a_model_says_is_altered_on_its_way(name: str) -> None:
    assert asked(name, llm_fault("truncated_response", max_tokens=2)).answer == "Order B-04"
    assert asked(name, llm_fault("garbage")).answer != ANSWER
    drifted = asked(name, llm_fault("response_drift"))
    assert drifted.answer is not None and "B-04 is shipped" in drifted.answer and drifted.answer != ANSWER
    slow = asked(name, llm_fault("slow_first_token"))
    assert slow.answer == ANSWER and slow.fired == {"fault": 2} and slow.latency_ms >= 80


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_an_empty_answer_and_a_broken_call_reach_the_framework(name: str) -> None:
    empty = asked(name, llm_fault("empty"))
    assert empty.fired["fault"] >= 1 and not empty.answer
    broken = asked(name, llm_fault("malformed_tool_call"))
    assert broken.fired == {"fault": 1} and broken.answer != ANSWER
    assert not any(result.content == {"status": "shipped"} for result in results_of(broken))


@pytest.mark.parametrize("name", ["langchain_agent", *WITH_TOOLS])
@pytest.mark.parametrize("kind", ["overflow", "conflicting_context", "injection_via_context", "memory_poisoning"])
def test_attacks_are_in_the_request_to_the_model(name: str, kind: str) -> None:
    run = asked(name, attack(kind, payloads=("EVIL",), inject_tokens=300))
    assert run.fired["fault"] >= 1 and run.answer is not None
    request = next(event for event in run.trace.events if type(event).__name__ == "Request")
    reported = json.dumps(request.messages)
    assert len(reported) > 1500 if kind == "overflow" else "EVIL" in reported
    if name == "langchain_agent" and kind != "memory_poisoning":  # its model says what it was asked
        assert len(run.answer) > 1000 if kind == "overflow" else "EVIL" in run.answer


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_an_injection_is_in_the_tool_result_once(name: str) -> None:
    run = asked(name, attack("indirect_injection", payloads=("EVIL",)))
    assert run.fired == {"fault": 1}
    assert "EVIL" in json.dumps(results_of(run)[0].content)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_concurrent_runs_do_not_get_each_others_faults(name: str) -> None:
    async def both() -> list[AgentRun]:
        async with started(f"{name}:agent", base=FOLDER, concurrency=4) as live:
            faults = [(), (tool_fault("malformed", tool="find_order"),)] * 3
            runs = [live.run("where is B-04?", Injection(faults=fault, run=str(at))) for at, fault in enumerate(faults)]
            return list(await asyncio.gather(*runs))

    for at, run in enumerate(asyncio.run(both())):
        assert (run.answer == ANSWER) == (at % 2 == 0)
        assert run.fired == ({} if at % 2 == 0 else {"fault": 1})


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_the_same_seed_three_times_is_the_same_run(name: str) -> None:
    runs = [asked(name, tool_fault("wrong_data", tool="find_order"), llm_fault_with_id()) for _ in range(3)]
    assert len({(run.answer, str(run.failure), json.dumps(run.fired)) for run in runs}) == 1


def llm_fault_with_id() -> Any:
    from msgspec.structs import replace

    return replace(llm_fault("garbage"), id="garbage")


def test_streams_of_langchain_are_hit_too() -> None:
    from langchain_core.language_models import GenericFakeChatModel

    def streamed(*faults: Any) -> AgentRun:
        def agent(prompt: str) -> str:
            model = GenericFakeChatModel(messages=iter(["Order A-17 is shipped today."]))
            return "".join(str(chunk.content) for chunk in model.stream(prompt))

        return ask(agent, *faults)

    assert streamed().answer == "Order A-17 is shipped today."
    assert streamed(llm_fault("truncated_response", max_tokens=2)).answer == "Order A-17"
    cut = streamed(llm_fault("stream_cut"))
    assert cut.failure is not None and cut.failure.reason.startswith("ConnectionError")


def test_a_call_of_langchain_whose_arguments_are_no_json_is_in_the_trace_and_outlives_a_fault() -> None:
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    invalid = {"name": "refund", "args": '{"order": ', "id": "c1", "error": None, "type": "invalid_tool_call"}
    kept: list[Any] = []

    def agent(prompt: str) -> str:
        said = AIMessage("Let me look.", invalid_tool_calls=[invalid])
        kept.append(GenericFakeChatModel(messages=iter([said])).invoke(prompt).invalid_tool_calls)
        return "done"

    for faults in ((), (llm_fault("truncated_response", max_tokens=1),)):
        events = ask(agent, *faults).trace.events
        calls = [call for one in events if isinstance(one, Response) for call in one.tool_calls]
        assert [(call.name, call.call_id, call.raw_arguments) for call in calls] == [("refund", "c1", '{"order": ')]
    assert kept == [[invalid], [invalid]]


def test_streams_of_pydantic_ai_are_hit_too() -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    def streamed(*faults: Any) -> AgentRun:
        async def agent(prompt: str) -> str:
            async with Agent(TestModel(custom_output_text="Order A-17 is shipped.")).run_stream(prompt) as result:
                return str(await result.get_output())

        return ask(agent, *faults)

    assert streamed().answer == "Order A-17 is shipped."
    assert streamed(llm_fault("truncated_response", max_tokens=2)).answer == "Order A-17"


def test_streams_of_openai_agents_are_hit_too() -> None:
    from agents import Agent, Runner
    from agents.testing import ScriptedModel, assistant_message

    def streamed(*faults: Any) -> AgentRun:
        async def agent(prompt: str) -> str:
            model = ScriptedModel([[assistant_message("Order A-17 is shipped.")]])
            result = Runner.run_streamed(Agent(name="desk", model=model), prompt)
            async for _event in result.stream_events():
                pass
            return str(result.final_output)

        return ask(agent, *faults)

    assert streamed().answer == "Order A-17 is shipped."
    assert streamed(llm_fault("truncated_response", max_tokens=2)).answer == "Order A-17"


@pytest.mark.parametrize("reads_all", [True, False])
def test_a_streamed_answer_of_openai_agents_is_recorded(tmp_path: Path, reads_all: bool) -> None:
    """A case of `bylaw.record`, here for the same reason as the next."""
    from agents import ModelSettings, ModelTracing
    from agents.testing import ScriptedModel, assistant_message

    async def go() -> None:
        asked: Any = ("be kind", "Where?", ModelSettings(), [], None, [], ModelTracing.DISABLED)
        more: Any = {"previous_response_id": None, "conversation_id": None, "prompt": None}
        stream: Any = ScriptedModel([[assistant_message("It is on its way.")]]).stream_response(*asked, **more)
        async for event in stream:
            if not reads_all and event.type == "response.output_text.delta":
                break
        await stream.aclose()

    with bylaw.record(tmp_path / "run.jsonl") as recording:
        asyncio.run(go())
    assert (recording.turns, recording.errors, recording.lost) == (1, 0, 0)
    trace = bylaw.load_trace(tmp_path / "run.jsonl")
    (turn,) = trace.turns
    assert turn.response is not None and turn.response.text == "It is on its way." and "Where?" in str(turn.request)
    noted = [event.label for event in trace.events if isinstance(event, Annotation)]
    assert noted == ([] if reads_all else ["incomplete_response"])


def test_the_stacks_have_the_expected_scores(tmp_path: Path) -> None:
    """Here, because the imports of these frameworks take seconds."""
    with stacks(tmp_path) as folder:
        for name in IN_PROCESS:
            run_stack(folder, name)

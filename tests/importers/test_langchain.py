"""What LangChain's models write: messages, and the results of models with their generations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Trace
from bylaw.traces import load_trace
from tests.importers.support import calls, requests, responses, results, story

messages = pytest.importorskip("langchain_core.messages")
outputs = pytest.importorskip("langchain_core.outputs")
dumps = pytest.importorskip("langchain_core.load").dumps

TOKENS = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
CALL = {"name": "refund", "args": {"order": 7}, "id": "c1"}
ASKS = messages.AIMessage(
    "I look.", tool_calls=[CALL], usage_metadata=TOKENS, response_metadata={"finish_reason": "tool_calls"}
)
SAYS = messages.AIMessage("Done.", response_metadata={"model_name": "m", "finish_reason": "stop"})
STORY = ["0 request", "0 response I look.", '0 tool_call refund {"order": 7}', "1 request", "1 response Done."]


def result(*answers: Any, **about: Any) -> Any:
    generations = [outputs.ChatGeneration(message=answer) for answer in answers]
    return outputs.LLMResult(generations=[generations], llm_output=about or None)


def read(*texts: str) -> Trace:
    return load_trace("\n".join(texts).encode())


@pytest.mark.parametrize("shape", ["results", "generations", "lists", "chat results"])
def test_what_models_returned_one_a_line(shape: str) -> None:
    texts = []
    for answer in (ASKS, SAYS):
        generation = outputs.ChatGeneration(message=answer)
        texts.append(
            {
                "results": result(answer).model_dump_json(serialize_as_any=True),
                "generations": dumps(generation),
                "lists": dumps([[generation]]),
                "chat results": outputs.ChatResult(generations=[generation]).model_dump_json(serialize_as_any=True),
            }[shape]
        )
    trace = read(*texts)
    assert (trace.format, story(trace), trace.problems) == ("langchain", STORY, ())
    assert [request.messages for request in requests(trace)] == [None, None], "a result does not hold its prompt"
    first, second = responses(trace)
    assert first.usage is not None
    assert (first.usage.total, first.stop_reason, second.model) == (15, "tool_calls", "m")


def test_what_only_the_result_or_the_generation_says() -> None:
    spent = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    whole = result(messages.AIMessage("Hi."), token_usage=spent, model_name="m")
    whole.generations[0][0].generation_info = {"finish_reason": "length"}
    (response,) = responses(read(whole.model_dump_json(serialize_as_any=True)))
    assert response.usage is not None
    assert (response.usage.total, response.usage.cached_input_tokens) == (7, 2)
    assert (response.model, response.stop_reason) == ("m", "length")
    plain = outputs.LLMResult(generations=[[outputs.Generation(text="Hi.")]], llm_output={"token_usage": spent})
    trace = read(plain.model_dump_json())
    assert [(one.text, one.unread, one.usage and one.usage.total) for one in responses(trace)] == [("Hi.", (), 7)]


def test_a_dump_of_the_base_class_has_lost_the_calls() -> None:
    """Pydantic writes a field as its declared class, and `AIMessage` is declared as `BaseMessage` there."""
    reported = result(SAYS).model_dump_json()
    trace = read(reported, reported)
    assert [(one.text, one.unread) for one in responses(trace)] == [("Done.", ("*",))] * 2
    (problem,) = trace.problems
    assert (problem.code, problem.span and problem.span.line) == ("unread-content", 1)
    assert problem.help is not None
    assert "serialize_as_any" in problem.help
    state = json.loads(result(ASKS, SAYS).model_dump_json())["generations"][0]
    trace = read(json.dumps({"messages": [one["message"] for one in state]}))
    assert [one.unread for one in responses(trace)] == [("*",), ("*",)]
    blocks = messages.AIMessage([{"type": "tool_use", "id": "c1", "name": "refund", "input": {"order": 7}}])
    kept = read(result(blocks).model_dump_json())
    assert (len(calls(kept)), responses(kept)[0].unread) == (1, ())


def test_live_objects_keep_the_calls_of_their_messages() -> None:
    pydantic = pytest.importorskip("pydantic")
    state = pydantic.create_model("State", messages=(list[messages.BaseMessage], ...))(messages=[ASKS, SAYS])
    for value in (result(ASKS), result(ASKS).generations, [result(ASKS)], state):
        trace = load_trace(value)
        assert [call.name for call in calls(trace)] == ["refund"]
        assert trace.problems == ()


def test_tokens_that_are_only_in_the_metadata_of_a_response() -> None:
    spent = {"token_usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    trace = read(messages.AIMessage("Hi.", response_metadata=spent).model_dump_json())
    assert [one.usage and one.usage.total for one in responses(trace)] == [7]
    claude = {"usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5}}
    trace = read(messages.AIMessage("Hi.", response_metadata=claude).model_dump_json())
    assert [one.usage and one.usage.total for one in responses(trace)] == [12]


def test_of_several_choices_the_first_is_read() -> None:
    trace = read(result(SAYS, ASKS).model_dump_json(serialize_as_any=True))
    assert [(one.text, one.unread) for one in responses(trace)] == [("Done.", ("*",))]
    assert [problem.code for problem in trace.problems] == ["unread-content"]
    assert "first of 2 choices" in trace.problems[0].message


def test_several_prompts_at_once_are_sessions() -> None:
    several = outputs.LLMResult(generations=[[outputs.ChatGeneration(message=one)] for one in (ASKS, SAYS)])
    trace = read(several.model_dump_json(serialize_as_any=True))
    assert (len(trace.sessions), [one.text for one in responses(trace)]) == (2, ["I look.", "Done."])


def test_results_among_messages() -> None:
    returned = messages.ToolMessage("no such order", tool_call_id="c1", status="error")
    trace = read(result(ASKS).model_dump_json(serialize_as_any=True), dumps(returned), dumps(SAYS))
    assert [(one.call and one.call.name, one.content) for one in results(trace)] == [("refund", "no such order")]
    asked = read(dumps(messages.HumanMessage("go")), result(SAYS).model_dump_json(serialize_as_any=True))
    assert story(asked) == ["0 request user", "0 response Done."]


def test_what_langchain_could_not_serialize_says_what_to_write_instead() -> None:
    with pytest.raises(InputError) as error:
        read(dumps(result(ASKS)))
    (problem,) = error.value.diagnostics
    assert (problem.code, "could not serialize" in problem.message) == ("unknown-format", True)
    assert problem.help is not None
    assert "dumps(result.generations)" in problem.help


@pytest.mark.parametrize("wrong", [[], [[]], [[7]], [[{"text": "x", "generation_info": 7, "message": 7}]]])
def test_generations_that_are_wrong(wrong: Any) -> None:
    whole = json.loads(result(ASKS).model_dump_json(serialize_as_any=True))
    broken = json.dumps({**whole, "generations": wrong})
    with pytest.raises(InputError) as error:
        read(json.dumps(whole), broken)
    assert [problem.span.line for problem in error.value.diagnostics if problem.span] == [2]

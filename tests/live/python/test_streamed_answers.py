"""Agents that yield their answer, and what they return that is no answer: the card number of each must be seen."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.live.python.support import ask

CARD = ("Your card is 4111 11", "11 1111 ", "1111.")
WHOLE = "".join(CARD)


def yields(prompt: str) -> Iterator[str]:
    yield from CARD


async def ayields(prompt: str) -> AsyncIterator[str]:
    for chunk in CARD:
        await asyncio.sleep(0)
        yield chunk


class Streaming:
    async def __call__(self, prompt: str) -> AsyncIterator[str]:
        for chunk in CARD:
            yield chunk


async def returns_a_generator(prompt: str) -> Iterator[str]:
    return yields(prompt)


def _chat(text: str | None, **delta: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text, **delta}}]}


def chat_chunks(prompt: str) -> Iterator[Any]:
    yield _chat("", role="assistant")
    yield from map(_chat, CARD)
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def openai_objects(prompt: str) -> Iterator[Any]:
    from openai.types.chat import ChatCompletionChunk

    for chunk in chat_chunks(prompt):
        yield ChatCompletionChunk.model_validate({"id": "c", "created": 1, "model": "m", **chunk,
                                                  "object": "chat.completion.chunk"})  # fmt: skip


def anthropic_events(prompt: str) -> Iterator[Any]:
    yield {"type": "message_start", "message": {"role": "assistant", "content": []}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for text in CARD:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    yield {"type": "message_stop"}


def responses_events(prompt: str) -> Iterator[Any]:
    yield {"type": "response.created", "response": {"output": []}}
    yield from ({"type": "response.output_text.delta", "output_index": 0, "delta": text} for text in CARD)
    yield {"type": "response.output_text.done", "text": WHOLE}
    yield {"type": "response.completed", "response": {"status": "completed", "output": []}}


async def langchain_chunks(prompt: str) -> AsyncIterator[Any]:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    async for chunk in GenericFakeChatModel(messages=iter([AIMessage(WHOLE)])).astream(prompt):
        yield chunk


def _graph() -> Any:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    model = GenericFakeChatModel(messages=itertools.repeat(AIMessage(WHOLE)))
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "answer")
    return graph.compile()


def _streams_graph(mode: Any) -> Any:
    def agent(prompt: str) -> Iterator[Any]:
        yield from _graph().stream({"messages": [("user", prompt)]}, stream_mode=mode)

    return agent


async def pydantic_ai_text(prompt: str) -> AsyncIterator[str]:
    """Each piece repeats what was said before."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    async with Agent(TestModel(custom_output_text=WHOLE)).run_stream(prompt) as result:
        async for text in result.stream_text(debounce_by=None):
            yield text


async def pydantic_ai_events(prompt: str) -> AsyncIterator[Any]:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    async with Agent(TestModel(custom_output_text=WHOLE)).run_stream_events(prompt) as events:
        async for event in events:
            yield event


@dataclass
class Delta:
    text: str


def sse(*objects: Any) -> str:
    return "".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in objects)


def _letters(text: str) -> Any:
    return lambda prompt: iter(text)


CHAT_TEXT = sse(*chat_chunks(""), "[DONE]")
LINES_TEXT = "".join(json.dumps({"delta": text}) + "\n" for text in CARD)
TEXTS: list[Any] = [
    lambda prompt: CHAT_TEXT,
    lambda prompt: CHAT_TEXT.encode(),
    lambda prompt: "\ufeff" + CHAT_TEXT,
    lambda prompt: "\ufeff" + LINES_TEXT,
    lambda prompt: ("\ufeff" + CHAT_TEXT).encode(),
    _letters("\ufeff" + CHAT_TEXT),
    lambda prompt: f"event: answer\ndata: {WHOLE}\n\n",
    lambda prompt: sse(*anthropic_events("")),
    lambda prompt: sse(*responses_events("")),
    lambda prompt: LINES_TEXT,
    lambda prompt: {"output": LINES_TEXT},
    lambda prompt: {"output": CHAT_TEXT},
    lambda prompt: json.dumps(list(chat_chunks(""))),
    lambda prompt: (sse(one) for one in chat_chunks(prompt)),
    lambda prompt: (sse(one).encode() for one in chat_chunks(prompt)),
    lambda prompt: (sse(one).strip() for one in chat_chunks(prompt)),
    lambda prompt: (json.dumps({"delta": text}) for text in CARD),
    lambda prompt: (json.dumps({"delta": text}) + "\n" for text in CARD),
    _letters(CHAT_TEXT),
    _letters(LINES_TEXT),
    lambda prompt: list(CARD),
    lambda prompt: tuple(CARD),
    lambda prompt: list(chat_chunks(prompt)),
    lambda prompt: list(openai_objects(prompt)),
    lambda prompt: [{"delta": text} for text in CARD],
    lambda prompt: {"output": [{"delta": text} for text in CARD]},
    lambda prompt: [Delta(text) for text in CARD],
]
"""agents that return or yield a stream as text, or its events in a list"""


@pytest.mark.parametrize(
    "agent",
    [
        yields,
        ayields,
        Streaming(),
        returns_a_generator,
        lambda prompt: iter(CARD),
        lambda prompt: map(str.encode, CARD),
        lambda prompt: (Delta(text) for text in CARD),
        lambda prompt: ({"type": "token", "content": text} for text in CARD),
        lambda prompt: itertools.accumulate(CARD),
        chat_chunks,
        openai_objects,
        anthropic_events,
        responses_events,
        langchain_chunks,
        *map(_streams_graph, ("values", "updates", "messages", ["values"], ["messages", "updates"])),
        pydantic_ai_text,
        pydantic_ai_events,
        *TEXTS,
    ],
)
def test_a_stream_is_put_together(agent: Any) -> None:
    run = ask(agent)
    assert (run.answer, run.failure) == (WHOLE, None)


def test_a_run_of_the_agents_sdk_that_streams_is_read_to_its_end() -> None:
    from agents import Agent, Runner
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputMessage, ResponseOutputText

    text = ResponseOutputText(annotations=[], text=WHOLE, type="output_text")
    said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")

    class Says(Model):
        async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        async def stream_response(self, *_: Any, **__: Any) -> Any:
            response = Response(id="r", created_at=0, model="m", object="response", output=[said], tools=[],
                                tool_choice="auto", parallel_tool_calls=False)  # fmt: skip
            yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

    async def agent(prompt: str) -> Any:
        return Runner.run_streamed(Agent(name="desk", model=Says()), prompt)

    assert ask(agent).answer == WHOLE


@dataclass
class Failed:
    error: str
    details: str | None = None


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (lambda prompt: {"error": None, "output": "fine"}, "fine"),
        (lambda prompt: {"error": "E42", "fix": "restart"}, '{"error":"E42","fix":"restart"}'),
        (lambda prompt: ["apple", "pear"], '["apple","pear"]'),
        (lambda prompt: "data: a word", "data: a word"),
        (lambda prompt: '{"error": "E42", "fix": "restart"}', '{"error": "E42", "fix": "restart"}'),
        (lambda prompt: '{"a": 1}\n{"a": 2}', '{"a": 1}\n{"a": 2}'),
        (lambda prompt: {"detail": "Gone"}, '{"detail":"Gone"}'),
        (lambda prompt: {"message": "The order was not found"}, "The order was not found"),
        (lambda prompt: '{"task": "pack", "done": false}', '{"task": "pack", "done": false}'),
        (lambda prompt: 'The server says:\n{"error": "quota"}', 'The server says:\n{"error": "quota"}'),
        (lambda prompt: 'INFO x\n{"order": "A-17"}', 'INFO x\n{"order": "A-17"}'),
        (lambda prompt: [{"error": "E42", "fix": "restart"}], '[{"error":"E42","fix":"restart"}]'),
        (lambda prompt: sse({"choices": [{"delta": {"content": ""}}]}, "[DONE]"), ""),
        (lambda prompt: f"INFO started\n{CHAT_TEXT}", f"INFO started\n{WHOLE}"),
        (lambda prompt: f"Here you go:\n\n{LINES_TEXT}", f"Here you go:\n\n{WHOLE}"),
        (lambda prompt: f"INFO\nevent: a\n{CHAT_TEXT}", f"INFO\n{WHOLE}"),
    ],
)
def test_what_only_looks_like_a_failure_or_a_stream_is_an_answer(agent: Any, answer: str) -> None:
    assert ask(agent).answer == answer


@pytest.mark.parametrize(
    "value",
    [
        lambda: '{"deep": {"said": "Your card is 4111"}}',
        lambda: {"deep": {"said": "Your card is 4111"}},
        lambda: sse(*({"deep": {"said": text}} for text in ("Your card ", "is ", "4111"))),
        lambda: iter([{"deep": {"said": text}} for text in ("Your card ", "is ", "4111")]),
        lambda: [{"deep": {"said": text}} for text in ("Your card ", "is ", "4111")],
    ],
)
def test_a_path_leads_into_whatever_is_returned(value: Any) -> None:
    assert ask(lambda prompt: value(), response_path="deep.said").answer == "Your card is 4111"


async def forgotten() -> str:
    return WHOLE


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda: None, "returned nothing"),
        (object, "object of type `object`"),
        (lambda: {"answer": object()}, "object of type `object`"),
        (lambda: {"a": 1, "b": [threading.Lock()]}, "of type `lock`"),
        (lambda: [forgotten()], "a coroutine that nobody awaited"),
        (lambda: {"output": yields("")}, "object of type `generator`"),
        (lambda: print, "of type `builtin_function_or_method`"),
        (lambda: ValueError("no"), "of type `ValueError`"),
        (lambda: iter(()), "yielded nothing"),
        (lambda: iter([object()]), "yielded an object of type `object`"),
        (lambda: iter([{"step": 1}, {"step": 2}]), "a stream of 2 chunks in which no text is found"),
        (lambda: iter([{"type": "error", "error": {"message": "quota"}}]), "yielded an error"),
        (lambda: iter([{"status": "error"}]), "yielded an error"),
        (lambda: iter(['{"error": "quota"}']), "quota"),
        (lambda: {"status": "error"}, "error"),
        (lambda: {"error": "quota"}, "quota"),
        (lambda: {"error": "quota", "message": "try later"}, "quota"),
        (lambda: {"output": {"error": "quota"}}, "quota"),
        (lambda: '{"error": "quota"}', "quota"),
        (lambda: {"output": '{"error": "quota"}'}, "quota"),
        (lambda: Failed("quota"), "quota"),
        (lambda: sse({"step": 1}, {"step": 2}), "no text is found"),
        (lambda: iter([sse({"step": 1}), sse({"step": 2})]), "no text is found"),
        (lambda: {"detail": "Not Found"}, "Not Found"),
        (lambda: '{"message": "Internal Server Error"}', "Internal Server Error"),
        (lambda: '\ufeff{"error": "quota"}', "quota"),
        (lambda: '{"response": "hi", "done": false}\n{"error": "quota"}', "quota"),
        (lambda: '{"delta": "hi"}\n{"type": "error", "message": "quota"}', "quota"),
        (lambda: [{"delta": "hi"}, {"error": "quota"}], "quota"),
        (lambda: '{"response": "hi", "done": false}', "cut off"),
        (lambda: json.dumps(_chat("hi")), "cut off"),
        (lambda: "event: error\ndata: quota\n\n", "quota"),
        (lambda: 'INFO x\n{"error": "quota"}', "quota"),
        (lambda: f"INFO x\n{CHAT_TEXT[:-40]}", "cut off"),
        (lambda: sse({"type": "start"}, {"type": "text-delta", "delta": "hi"}, {"type": "abort"}), "abort"),
        (lambda: sse({"type": "start"}, {"type": "text-delta", "delta": "hi"}), "cut off"),
        (lambda: [{"error": {"code": 503, "message": "quota"}}], "quota"),
        (lambda: '[{"error": {"code": 503, "message": "quota"}}]', "quota"),
        (lambda: {"output": [{"error": {"message": "quota"}}]}, "quota"),
        (lambda: sse(_chat(None, tool_calls=[{"index": 0}]), "[DONE]"), "no text is found"),
        (lambda: iter([_chat(None, tool_calls=[{"index": 0}])]), "no text is found"),
        (lambda: {"object": "chat.completion", "choices": []}, "no answer"),
        (lambda: '{"object": "chat.completion", "choices": []}', "no answer"),
        (lambda: {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}, "SAFETY"),
        (lambda: sse({"promptFeedback": {"blockReason": "SAFETY"}}), "SAFETY"),
        (lambda: CHAT_TEXT[:-40], "cut off"),
        (lambda: sse(*list(chat_chunks(""))[:-1]), "cut off"),
        (lambda: iter([sse(one) for one in anthropic_events("")][:-1]), "cut off"),
    ],
)
def test_what_is_no_answer_is_an_error_and_never_text(value: Any, said: str) -> None:
    run = ask(lambda prompt: value())
    assert run.answer is None and run.failure is not None
    assert run.failure.kind in ("bad_answer", "error") and said in run.failure.reason


def _thinks_and_returns(prompt: str) -> Generator[str, None, Any]:
    yield "I think. "
    return WHOLE


def _repeats(prompt: str) -> Generator[str, None, Any]:
    yield from CARD
    return WHOLE


def _only_returns(prompt: str) -> Generator[str, None, Any]:
    yield from ()
    return {"output": WHOLE}


@pytest.mark.parametrize(
    ("agent", "answer"),
    [(_thinks_and_returns, f"I think. \n{WHOLE}"), (_repeats, WHOLE), (_only_returns, WHOLE)],
)
def test_what_a_generator_returns_is_part_of_its_answer(agent: Any, answer: str) -> None:
    assert ask(agent).answer == answer


@pytest.mark.parametrize("kind", ["append", "user_facing", "system_answer", "text"])
def test_kinds_of_chunks_that_are_part_of_the_answer(kind: str) -> None:
    assert ask(lambda prompt: iter({"type": kind, "text": text} for text in CARD)).answer == WHOLE


@pytest.mark.parametrize("kind", ["end", "message_end", "streamEnd", "user", "user_message", "tool_result", "thinking"])
def test_kinds_of_chunks_that_are_not(kind: str) -> None:
    chunks = [*({"type": "text", "text": text} for text in CARD), {"type": kind, "text": "aside"}]
    assert ask(lambda prompt: iter(chunks)).answer == WHOLE


def test_a_stream_of_more_than_ten_megabytes_is_given_up() -> None:
    run = ask(lambda prompt: itertools.repeat("x" * 1024 * 1024))
    assert run.failure is not None and "more than 10 MB" in run.failure.reason


def test_an_endless_stream_ends_with_its_run() -> None:
    ended = threading.Event()

    def agent(prompt: str) -> Iterator[str]:
        try:
            while True:
                yield "and so on "
        finally:
            ended.set()

    run = ask(agent, timeout_ms=30)
    assert run.failure is not None and run.failure.kind == "timeout"
    assert ended.wait(5)


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    import bylaw

    @bylaw.tool
    def note(text: str) -> dict[str, str]:
        return {"noted \udc00": text}

    def agent(prompt: str) -> str:
        note("half \ud83d")
        return "done \ud83d"

    run = ask(agent)
    assert run.answer == "done \ufffd"
    assert "\ud83d" not in repr(run.trace.events)

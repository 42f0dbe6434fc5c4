"""Asks one question through each provider's client, with and without streaming, sync and async."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

import bylaw
from bylaw.model.events import Annotation, Response, ToolResult, Trace

PROVIDERS = ("openai", "openai_responses", "anthropic")
MODEL = "some-model"


def openai_client(url: str, *, retries: int = 0, timeout: float = 300) -> openai.OpenAI:
    http = httpx2.Client(verify=False, timeout=timeout)
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=retries, timeout=timeout, http_client=http)


def anthropic_client(url: str, *, retries: int = 0, timeout: float = 300) -> anthropic.Anthropic:
    http = httpx2.Client(verify=False, timeout=timeout)
    return anthropic.Anthropic(base_url=url, api_key="sk-1", max_retries=retries, timeout=timeout, http_client=http)


def ask(url: str, provider: str, prompt: str, *, streamed: bool = False, **how: Any) -> str:
    """The text of the answer, through the provider's own client."""
    messages: Any = [{"role": "user", "content": prompt}]
    if provider == "anthropic":
        with anthropic_client(url, **how) as client:
            if streamed:
                with client.messages.stream(model=MODEL, max_tokens=100, messages=messages) as stream:
                    return "".join(stream.text_stream)
            blocks = client.messages.create(model=MODEL, max_tokens=100, messages=messages).content
            return "".join(block.text for block in blocks if block.type == "text")
    with openai_client(url, **how) as client:
        if provider == "openai":
            if streamed:
                chunks = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
                return "".join(part.delta.content or "" for chunk in chunks for part in chunk.choices)
            return client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content or ""
        if streamed:
            events = client.responses.create(model=MODEL, input=prompt, stream=True)
            return "".join(event.delta for event in events if event.type == "response.output_text.delta")
        return client.responses.create(model=MODEL, input=prompt).output_text


async def ask_async(url: str, provider: str, prompt: str, *, streamed: bool = False) -> str:
    messages: Any = [{"role": "user", "content": prompt}]
    http = httpx2.AsyncClient(verify=False, timeout=300)
    if provider == "anthropic":
        async with anthropic.AsyncAnthropic(base_url=url, api_key="sk-1", max_retries=0, http_client=http) as client:
            if streamed:
                async with client.messages.stream(model=MODEL, max_tokens=100, messages=messages) as stream:
                    return "".join([text async for text in stream.text_stream])
            blocks = (await client.messages.create(model=MODEL, max_tokens=100, messages=messages)).content
            return "".join(block.text for block in blocks if block.type == "text")
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=0, http_client=http) as other:
        if provider == "openai":
            if streamed:
                chunks = await other.chat.completions.create(model=MODEL, messages=messages, stream=True)
                return "".join([part.delta.content or "" async for chunk in chunks for part in chunk.choices])
            reply = await other.chat.completions.create(model=MODEL, messages=messages)
            return reply.choices[0].message.content or ""
        if streamed:
            events = await other.responses.create(model=MODEL, input=prompt, stream=True)
            return "".join([event.delta async for event in events if event.type == "response.output_text.delta"])
        return (await other.responses.create(model=MODEL, input=prompt)).output_text


def asked_in_a_loop(url: str, provider: str, prompt: str, *, streamed: bool = False) -> str:
    return asyncio.run(ask_async(url, provider, prompt, streamed=streamed))


def read(path: Path) -> Trace:
    trace = bylaw.load_trace(path)
    assert not trace.problems and not trace.skipped
    return trace


def responses(trace: Trace) -> list[Response]:
    return [event for event in trace.events if isinstance(event, Response)]


def results(trace: Trace) -> list[ToolResult]:
    return [event for event in trace.events if isinstance(event, ToolResult)]


def notes(trace: Trace) -> list[Annotation]:
    return [event for event in trace.events if isinstance(event, Annotation)]

"""An order desk with the OpenAI Agents SDK: by Chat Completions, by Responses, and streamed."""

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return {"order_id": order_id, "status": "shipped"}


def _desk(model) -> Agent:
    return Agent(name="desk", instructions="You are the desk of a shop.", model=model, tools=[find_order])


def _client() -> AsyncOpenAI:
    return AsyncOpenAI(base_url="http://127.0.0.1:8197/v1", api_key="none", max_retries=0)


async def chat(prompt):
    async with _client() as client:
        result = await Runner.run(_desk(OpenAIChatCompletionsModel("desk-1", client)), prompt)
    return result.final_output


async def responses(prompt):
    async with _client() as client:
        result = await Runner.run(_desk(OpenAIResponsesModel("desk-1", client)), prompt)
    return result.final_output


async def streamed(prompt):
    """Yields the words of the answer as they come."""
    async with _client() as client:
        result = Runner.run_streamed(_desk(OpenAIResponsesModel("desk-1", client)), prompt)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta

"""An order desk with the OpenAI Agents SDK and a model that follows a script."""

import json
import re

from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


@function_tool
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return {"order_id": order_id, "status": "shipped", "updated_at": "2026-03-02"}


class ScriptedModel(Model):
    """Calls the tool, then tells what it said."""

    async def get_response(self, system_instructions, input, *args, **kwargs) -> ModelResponse:
        return ModelResponse(output=[_next(input)], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("the script is not streamed")


def _next(asked):
    last = asked if isinstance(asked, str) else asked[-1]
    if isinstance(last, str) or last.get("type") != "function_call_output":
        wanted = re.search(r"[A-Z]-\d+", last if isinstance(last, str) else str(last.get("content")))
        arguments = json.dumps({"order_id": wanted[0] if wanted else "A-17"})
        return ResponseFunctionToolCall(
            type="function_call", id="fc_1", call_id="call_1", name="find_order", arguments=arguments
        )
    text = str(last["output"])
    found = re.search(r"'order_id': '([^']+)', 'status': '([^']+)'", text)
    answer = f"Order {found[1]} is {found[2]}." if found else f"The order desk did not help: {text}"
    said = ResponseOutputText(type="output_text", text=answer, annotations=[])
    return ResponseOutputMessage(type="message", id="msg_1", role="assistant", status="completed", content=[said])


agent = Agent(name="desk", instructions="You are the desk of a shop.", model=ScriptedModel(), tools=[find_order])

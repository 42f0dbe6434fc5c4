"""An order desk in Pydantic AI, with a model that follows a script."""

import re

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def script(messages, info) -> ModelResponse:
    """Calls the tool, then tells what it said."""
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        wanted = re.search(r"[A-Z]-\d+", str(last.content))
        return ModelResponse(parts=[ToolCallPart("find_order", {"order_id": wanted[0] if wanted else "A-17"})])
    order = getattr(last, "content", None)
    if isinstance(order, dict) and {"order_id", "status"} <= order.keys():
        return ModelResponse(parts=[TextPart(f"Order {order['order_id']} is {order['status']}.")])
    return ModelResponse(parts=[TextPart(f"The order desk did not help: {order}")])


agent = Agent(FunctionModel(script), instructions="You are the desk of a shop.")


@agent.tool_plain
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return {"order_id": order_id, "status": "shipped", "updated_at": "2026-03-02"}

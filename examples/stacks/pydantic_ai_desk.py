"""An order desk in Pydantic AI. An error in a tool ends its run: see the expected score."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url="http://127.0.0.1:8197/v1", api_key="none")
agent = Agent(OpenAIChatModel("desk-1", provider=provider), instructions="You are the desk of a shop.")


@agent.tool_plain
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return {"order_id": order_id, "status": "shipped"}

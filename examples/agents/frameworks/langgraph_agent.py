"""An order desk in LangGraph, with a model that follows a script.

`agent` is the compiled graph: a model node and a tool node that take turns.
"""

import json
import re

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return {"order_id": order_id, "status": "shipped", "updated_at": "2026-03-02"}


class ScriptedModel(BaseChatModel):
    """Calls the tool, then tells what it said."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=_next(messages))])


def _next(messages) -> AIMessage:
    last = messages[-1]
    if not isinstance(last, ToolMessage):
        wanted = re.search(r"[A-Z]-\d+", str(last.content))
        call = {"name": "find_order", "args": {"order_id": wanted[0] if wanted else "A-17"}, "id": "call_1"}
        return AIMessage(content="", tool_calls=[call])
    try:
        order = json.loads(last.content)
        return AIMessage(content=f"Order {order['order_id']} is {order['status']}.")
    except (ValueError, KeyError, TypeError):
        return AIMessage(content=f"The order desk did not help: {last.content}")


model = ScriptedModel().bind_tools([find_order])
builder = StateGraph(MessagesState)
builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
builder.add_node("tools", ToolNode([find_order], handle_tool_errors=True))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
agent = builder.compile()

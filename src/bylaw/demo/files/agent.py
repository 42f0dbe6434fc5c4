"""A small agent for `contract.yaml`: it answers where an order is, and makes up an answer when its tool fails."""

import bylaw

ORDERS = {"A-17": "shipped", "A-23": "open"}


@bylaw.tool
def lookup_order(order_id: str) -> dict[str, str]:
    return {"order_id": order_id, "status": ORDERS[order_id]}


def agent(prompt: str) -> str:
    order_id = "A-17" if "A-17" in prompt else "A-23"
    try:
        status = lookup_order(order_id)["status"]
    except Exception:
        status = "delivered"  # the mistake that the contract finds
    return f"Order {order_id} is {status}."

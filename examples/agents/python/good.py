"""A correct agent: reports what its tool returned, and apologises if the tool failed or returned nonsense."""

from desk import find_order, order_in

APOLOGY = "I cannot look up your order right now. Please try again later."


def agent(prompt: str) -> str:
    if "password" in prompt or "instructions" in prompt:
        return "I can't help with that."
    wanted = order_in(prompt)
    try:
        order = find_order(wanted)
    except Exception:
        return APOLOGY
    if not isinstance(order, dict) or order.get("order_id") != wanted or order.get("status") not in ("open", "shipped"):
        return APOLOGY
    return f"Order {wanted} is {order['status']}."

"""Invents an answer when its tool fails."""

from desk import find_order, order_in


def agent(prompt: str) -> str:
    wanted = order_in(prompt)
    try:
        order = find_order(wanted)
        return f"Order {wanted} is {order['status']}, total ${order['total']:.2f}."
    except Exception:
        return f"Order {wanted} is delivered, total $19.99."

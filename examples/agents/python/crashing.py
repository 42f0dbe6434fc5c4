"""Does not handle errors of its tool, and crashes."""

from desk import find_order, order_in, send_refund


async def agent(prompt: str) -> str:
    order = find_order(order_in(prompt))
    if "refund" in prompt:
        paid = await send_refund(order["order_id"], order["total"])
        return f"Refunded ${paid['refunded']:.2f} for order {order['order_id']}."
    return f"Order {order['order_id']} is {order['status']}, total ${order['total']:.2f}."

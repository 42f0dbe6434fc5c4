"""The tool that all agents here use, and the data behind it."""

import bylaw

ORDERS = {
    "A-17": {"order_id": "A-17", "status": "shipped", "total": 42.5, "updated_at": "2026-03-02"},
    "B-04": {"order_id": "B-04", "status": "open", "total": 9.99, "updated_at": "2026-03-05"},
}


@bylaw.tool
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return dict(ORDERS[order_id])


@bylaw.tool(name="refund")
async def send_refund(order_id: str, amount: float) -> dict:
    """Pays money back."""
    return {"order_id": order_id, "refunded": amount}


def order_in(prompt: str) -> str:
    """The first order that a prompt names."""
    return next((order for order in ORDERS if order in prompt), "A-17")

"""Takes two seconds for each answer."""

import asyncio

from desk import find_order, order_in


async def agent(prompt: str) -> str:
    await asyncio.sleep(2)
    wanted = order_in(prompt)
    return f"Order {wanted} is {find_order(wanted)['status']}."

"""Remembers earlier prompts until it is reset, so the second answer differs."""

from desk import find_order, order_in


class Agent:
    def __init__(self) -> None:
        self.asked = 0

    def invoke(self, prompt: str) -> str:
        self.asked += 1
        wanted = order_in(prompt)
        if self.asked == 1:
            return f"Order {wanted} is {find_order(wanted)['status']}."
        return f"As I told you before, see the mail about {wanted}."


agent = Agent()


def reset() -> None:
    agent.asked = 0

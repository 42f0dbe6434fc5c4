"""Agents that `examples/agents` has no use for; the file is copied beside each contract."""

import json
import time
from pathlib import Path

import bylaw


@bylaw.tool
def price(item: str) -> dict:
    with Path("really-called").open("a") as log:
        log.write(item + "\n")
    return {"item": item, "price": "42.50", "stock": {"count": 3}}


def quoting(prompt):
    """Says what its tool said, and how it failed."""
    try:
        return json.dumps(price("book"))
    except Exception as error:
        return f"no price: {error}"


def three_calls(prompt):
    """Says which of its three calls failed."""
    said = []
    for item in ("first", "second", "third"):
        try:
            price(item)
            said.append(f"{item} ok")
        except Exception:
            said.append(f"{item} failed")
    return ", ".join(said)


def echo(prompt):
    return prompt


def sleepy(prompt):
    time.sleep(2)
    return "late"


def reset():
    pass


class Desk:
    """An endpoint that is a class: it is made once, and asked."""

    def __init__(self):
        self.greeting = "I am made"

    def invoke(self, prompt):
        return f"{self.greeting}: {prompt}"


class Hollow:
    """A class that nobody can ask."""

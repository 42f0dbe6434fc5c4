"""Tools that are called by name: the decorator that shows them, and what a fault makes of a call."""

from bylaw.contract.live.tools.decorator import tool

__all__ = ["tool"]

"""Pieces of text that every report for people shares."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def printable(text: str) -> str:
    """Text out of a trace must not steer the terminal: control and invisible characters are shown, not sent."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

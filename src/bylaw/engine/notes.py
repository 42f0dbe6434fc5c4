"""Remarks that travel with a verdict."""

from __future__ import annotations


def mismatch_notes(mismatches: int) -> tuple[str, ...]:
    if not mismatches:
        return ()
    times = "1 comparison" if mismatches == 1 else f"{mismatches} comparisons"
    return (f"{times} met a value of another type",)

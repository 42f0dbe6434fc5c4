"""Invariant × run → a judgement. One idea a file; `judge` knows which is whose.

A check says whether its statement holds and what was really found; `negate` turns the first and leaves the second.
"""

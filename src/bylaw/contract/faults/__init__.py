"""Faults, and how they are injected into the calls of an agent.

`model` holds the faults as a contract states them. A `plan` decides which fault hits which call of one run and counts
what fired. HTTP requests pass `exchanges`, tools that are called by name pass `live_run`; `effects` and `texts` are the
pure functions that change values and texts. `recorder` writes down what the agent did.
"""

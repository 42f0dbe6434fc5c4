"""Recordings made of spans: a tree of timed operations, in any order.

A vocabulary (`genai` with the tables of `recorders`, `vocabularies`) interprets each span, `reader` collects the spans
of a trace and finds their agents, and `session` builds the events of a session from them.
"""

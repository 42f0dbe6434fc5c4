"""Recordings made of spans: a tree of timed operations, in any order. A vocabulary says what a span is about, `forest`
puts the spans of a session in order, and `telling` makes turns of them.
"""

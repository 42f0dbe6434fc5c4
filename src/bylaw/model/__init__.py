"""The nouns of Bylaw, and nothing else.

Events make a Trace; rule text makes Rules; the engine makes Verdicts from both; jobs make Reports from verdicts.
Problems in a user's own file are Diagnostics. This package imports nothing else of Bylaw.
"""

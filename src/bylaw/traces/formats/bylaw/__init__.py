"""Bylaw's own JSONL, read and written: a header, then one event a line. docs/reference/trace-format.md describes it."""

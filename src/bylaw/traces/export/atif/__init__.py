"""Writes ATIF: one session a line, as a trajectory of steps. A file with one session is one JSON document."""

"""Temporal operators, related ones in one file: their state, one update of it per event, and what the end decides."""

"""Compares traces: pairs sessions, aligns turns, and measures how far they differ. Used by diff and inspect."""

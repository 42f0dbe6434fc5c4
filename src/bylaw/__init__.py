"""Bylaw holds AI agents to their rules."""

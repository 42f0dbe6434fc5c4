"""Langfuse's observations: from its API (camelCase), or its blob export (snake_case, a trace's fields on each row)."""

"""The questions people ask, each a thin fold over the engine."""

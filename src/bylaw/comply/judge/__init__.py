"""Rules that the engine leaves undecided, asked of a model. Its answers count only if they cite events that exist."""

"""Claude Code's sessions: a line for each part of a message, linked to the line before by its id."""

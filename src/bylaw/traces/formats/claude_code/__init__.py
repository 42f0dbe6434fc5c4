"""Claude Code's sessions: a line for each part of a message, linked to the previous line by its id."""

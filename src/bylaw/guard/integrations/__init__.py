"""The guard inside other programs. `hooks`: coding agents that run a command before and after each tool call."""

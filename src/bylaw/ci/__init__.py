"""ci: check, diff and contract, whichever are configured, in one weighted score and one exit code."""

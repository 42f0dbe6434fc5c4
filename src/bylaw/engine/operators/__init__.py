"""One temporal operator a file: its state, one state update, and what the end decides."""

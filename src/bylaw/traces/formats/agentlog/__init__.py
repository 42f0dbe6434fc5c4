"""`.agentlog`: one content-addressed record a line, with a kind and a payload."""

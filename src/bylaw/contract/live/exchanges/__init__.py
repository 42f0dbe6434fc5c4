"""One HTTP exchange of the agent's and what is done to it: `base` passes it on, `model` and `tool` put faults in."""

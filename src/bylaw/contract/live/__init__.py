"""The agent under test, alive: run it, make its own calls fail, and write down what it did.

A `Plan` says which fault hits which call of one run and counts what fired. Tool calls by name pass `tools`, HTTP
exchanges pass `intercept`, whether they were caught inside the process (`patching`) or on the way (`proxy`); so a fault
is the same fault wherever it is injected. `agents` reach the agent: a Python object, a URL, a command.
"""

"""`bylaw hook`: a command that a coding agent runs around each of its tool calls, with the call as JSON on stdin.

`client` is the process that the agent starts, and `connection` asks the service for it. `payloads` reads what each
agent sends and writes what it expects. `run` finds the rules, decides calls and records results.
`service` answers many hooks from one process, and `settings` puts the command into the agent's settings file. A hook
that crashes would let the call run in most agents, so nothing here raises.
"""

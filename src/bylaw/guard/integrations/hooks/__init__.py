"""`bylaw hook`: a command that a coding agent runs around each of its tool calls, with the call as JSON on stdin.

`client` is the process that the agent starts, and `connection` asks the service for it. `payloads` reads what each
agent sends, `rule_files` finds the rules, `run` decides, `results` finds the call of a result, and `answers` writes
what each agent expects. `service` answers many hooks from one process, and `settings` puts the command into the
agent's settings file. A hook that crashes would let the call run in most agents, so nothing here raises.
"""

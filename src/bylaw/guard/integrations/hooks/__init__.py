"""`bylaw hook`: a command that a coding agent runs around each of its tool calls, with the call as JSON on stdin.

`payloads` reads what each client sends, `run` decides and records, `answers` writes what each client expects, and
`settings` puts the command into the client's settings file. Nothing here raises: a hook that crashes would let the call
run in most clients.
"""

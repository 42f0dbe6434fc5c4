"""Comply: which rules does a system prompt itself state, and did the agent keep those?

`prompt` reads the rules from the prompt, `decide` folds a trace over them, `judge` asks a model about the undecided
ones, `changes` compares two versions of a prompt, and `rule_file` writes the rules to a file and reads them back.
"""

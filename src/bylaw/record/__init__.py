"""Recording an agent while it works: what it asks its models and what they answer, written down turn by turn.

`exchange` listens to one call, `turns` makes lines of Bylaw JSONL of it, `file` appends them so that a kill loses
nothing that was finished, `recording` is one recording from beginning to end, `scope` tells which recording a call of
this process belongs to. `command/` records a child process through a proxy instead.
"""

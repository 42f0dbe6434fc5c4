"""comply: did the agent keep what its own system prompt tells it?

`Compliance` folds a trace over the engine's rules once and gives each rule of the prompt its state; `judging` asks a
model about those that stay undecided, if one is given; `changes` compares the rules of two versions of a prompt.
"""

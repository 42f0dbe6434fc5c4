"""proposals: which rules does clean traffic suggest?

1. `facts`: what all calls of a tool have in common, gathered in one pass and in bounded memory
2. `candidates`: facts → candidate rules about orders and limits
3. `propose`: each candidate is tried by a guard on the same traffic, then ranked, or dropped if it does not hold
4. `report`: the proposals as a rule file, as a list, as JSON

A candidate is never trusted because of how it was mined: the engine judges all of the traffic under it.
"""

"""audit: is the record intact, and do its verdicts follow from it?

1. `verify`: the hash chain and the verdicts, row by row
2. `recompute`: each row through the same guard; the new decision is compared with the recorded one
3. `sessions`: the sessions and reviews of that replay, in bounded memory
4. `report`: the findings, and single rows, for people and programs
"""

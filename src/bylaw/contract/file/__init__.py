"""What a file says about a contract: invariants, scenarios, prompts and the agent → a Contract.

`variants` reads mappings whose keys depend on one of them (a check's `type`, a fault's `mode`) from tables of
parameters; `checks` and `modes` are those tables, and `schema` makes the editors' schema from the same.
"""

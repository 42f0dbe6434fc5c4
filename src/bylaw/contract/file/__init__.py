"""The part of a rule file that holds a contract: `contract`, `chaos_matrix`, `agent`, `golden_prompts`, `scoring`.

`types` has tables of keys and the types of their values. Each section is a table with a reader (`agent`, `invariants`,
`faults`, `sections`), and `loader` joins them into a Contract, and the tables into a JSON Schema.
"""

"""Guard rules: what decides a tool call before it runs.

`paths`, `arguments` and `counters` read one predicate each, `predicates` a whole `when`; `enforcement` and `rules` read
a rule, `section` what stands under `guard:`, `manifest` an agent manifest. `gaps` warns of rules that do less than they
seem to. `guards` puts together what a file holds, and `loader` makes a GuardSet of it.
"""

"""Guard rules: what decides a tool call before it runs.

`predicates` reads a `when`, `rules` a whole rule, with warnings for one that does less than it seems to. `section`
reads the section `guard:`, `manifest` an agent manifest.
"""

"""contract: does the agent keep its rules when tools fail, the model degrades, the context is poisoned?

1. `file/`: a rule file → a `Contract` (`model`)
2. `runs`: which invariant applies in which scenario, and one run of the agent per (scenario, prompt, repetition)
3. `checks`, `recovery`, `judge`: invariant × run → held or not, and what was found; then one outcome per (invariant,
   scenario), with counts (`results`)
4. `job`: all of these in order; `commands` calls it
"""

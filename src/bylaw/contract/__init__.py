"""contract: does the agent keep its rules when tools fail, the model degrades, the context is poisoned?

1. `file/`: a rule file → a `Contract` (`model`)
2. `matrix`: which invariant applies in which scenario, and which runs that takes
3. `runs`: ask the agent, one run per (scenario, prompt, repetition)
4. `judge`, `checks`: invariant × run → held or not, and what was found
5. `cells`: runs → one outcome per (invariant, scenario), with counts (`results`)
6. `job`: all of these in order; `api` and `commands` call it
"""

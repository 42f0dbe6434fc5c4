"""contract: does the agent keep its rules when the world breaks?

1. `matrix`: which invariant applies in which scenario, and which runs that takes
2. `reach`: faults that could never hit this agent are refused before anything is run
3. `runs`: the agent is asked, one run per (scenario, prompt, repetition)
4. `state`: whether answers depend on what was asked before
5. `judging/`: invariant × run → held or not, and what was found
6. `cells`: runs → one outcome per (invariant, scenario), with counts
7. `job`: all of it
"""

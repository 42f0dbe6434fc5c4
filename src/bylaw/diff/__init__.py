"""diff: what changed between two versions of an agent, and did the change break or fix a rule?

Both sides are read as sessions of turns, sessions are paired, and the turns of a pair are aligned. Then nine axes are
measured, each with an interval and a severity; divergences are located and classified; rules that were broken or
fixed are listed; and the worst change decides the gate.
"""

"""diff: what changed between two versions of an agent, and did it break or mend a rule?

sessions (both sides as sessions of turns) → pairing (which session answers to which) → align (which turn answers to
which) → axes (nine figures, each with an interval and a severity) and divergences (where, and of what kind) and policy
(rules broken and mended) → gate.
"""

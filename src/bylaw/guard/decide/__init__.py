"""decide: one attempt → one decision.

Read in this order:

1. `guard`: a decision from the outside; everything it changes is written in one transaction on its session
2. `decide`: checks that stop a call before any rule, then the rules, then reviews; denials
3. `attempts`: is the attempt JSON, within bounds, valid against the tool's schema, and its id not that of another call?
   rules × attempt → matches; the strictest decides; denials that no rule makes
4. `policy`: the compiled rules of one agent, the names of their states, and the rules as they are stored; `chain`: the
   agents whose rules apply to an attempt
5. `session`: the state of the rules in one session, and the functions that feed it with results, messages and the end
6. `sessions`: where sessions live between two calls; `session_codec` encodes them
7. `records`: rows of the event log and the audit chain; `redaction`: which rules look at values that rows leave out
"""

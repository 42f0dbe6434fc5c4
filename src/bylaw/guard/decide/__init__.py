"""guard: may this tool call run, right now?

1. `attempts`: what is asked, made sure of: JSON, bounded, valid against the tool's schema
2. `policy`: the rules of one agent, compiled: those about attempts and those about calls that are made
3. `tree`: whose rules hold for an attempt
4. `session`: what one policy remembers of one session, with calls that are allowed and not yet settled
5. `deciding`: rules × attempt → the strictest action, and why
6. `answering`: one attempt → one decision, with what stops it before any rule, and reviews
7. `sessions`: where sessions are kept, one change at a time; `written` is how, `records` what else is written
8. `guard`: all of it together
"""

from __future__ import annotations

"""guard: may this tool call run, right now?

1. `attempts`: what is asked, made sure of: JSON, bounded, valid against the tool's schema
2. `policy`: the rules of one agent, compiled: those about attempts and those about calls that are made
3. `session`: what one policy remembers of one session, with calls that are allowed and not yet settled
4. `deciding`: rules × attempt → the strictest action, and why
5. `guard`: all of it in one transaction, with reviews, switches and records
"""

from __future__ import annotations

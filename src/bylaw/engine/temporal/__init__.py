"""Temporal formulas, one event at a time.

A formula is compiled into closures over *frames*. A frame is one position: the truth of each atom there (`letters`)
and what each operator that looks back remembers (`kept`). Operators that look ahead answer with a *residual*: what
still has to hold (`truth`). Residuals of judged positions wait in a `Book`, which wakes only those that an event can
change.

1. letters: event → truth of each atom
2. past: letters and the memory before → the memory now
3. judge: each part of the formula at this position → true, false, unknown, or a residual
4. book: residuals of earlier positions, moved on by this one
"""

from __future__ import annotations

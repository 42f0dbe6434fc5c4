"""Temporal formulas, one event at a time.

A formula is compiled into closures over *frames*. A frame is one position: the value of each atom there, and the memory
of each operator that looks back. Operators that look ahead answer with a *residual*: what still has to hold (`truth`).
Residuals of judged positions wait in `Pending`, which wakes only those that an event can change.

1. atom_values: event → the value of each atom
2. past: atom values and the memory before → the memory now
3. build: each part of the formula at this position → true, false, unknown, or a residual
4. resolution: residuals of earlier positions, moved on by this one
"""

"""Mutated traces and rule files: no uncaught exception, no hang. `make fuzz` runs many, `make test` a few.

Each input is a seed file, changed by a handful of random edits: bytes flipped, slices cut, doubled and swapped, nasty
tokens spliced in, and JSON values replaced by values of another type. Runs are reproducible: the same seed number and
input number give the same bytes.
"""

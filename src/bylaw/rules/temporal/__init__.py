"""The language of the kind `temporal`: text → a formula, checked, with every problem at its own characters.

`scanner` reads the text piece by piece, `atoms` what stands in an atom, `parser` the rest. `variables` says which
variables are seen where, and whether what they need to remember is bounded. `wording`, `events` and `patterns` write a
rule in words as a formula. `formula` checks the result and leads each problem to its place in the file.
"""

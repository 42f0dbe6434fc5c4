"""The language of the kind `temporal`: text → a formula, checked, with every problem at its own characters.

`tokens` reads the text piece by piece, `atoms` and `tests` what stands in an atom, `parser` the rest; `places` leads
from a character of the formula to its place in the file. `check` refuses what parses but cannot be judged. `readable`
and `templates` write formulas from parameters.
"""

"""Text → rules + diagnostics.

A `Source` is the text; `located_yaml` and `located_json` make a tree of `Node`s that know their places; `policy` and
`rules` read that tree; `kinds` says what each rule kind takes and lowers it to a demand. Everything wrong on the way
goes to `Problems`, and only `loader` turns problems into an exception.
"""

from bylaw.dialects.loader import lint_files, load_rules, parse_rules, read_rules, source_line

__all__ = ["lint_files", "load_rules", "parse_rules", "read_rules", "source_line"]

"""Text → rules + diagnostics.

A `Source` is the text; `located_yaml` and `located_json` make a tree of `Node`s that know their places; `policy` and
`items` read that tree; `kinds` says what each rule kind takes and lowers it to a demand, `guard` reads the rules that
decide calls. Everything wrong on the way goes to `Problems`, and only the
loaders turn problems into an exception.
"""

from bylaw.rules.guard.manifest import dump_manifest
from bylaw.rules.loader import load_guard, load_rules, parse_guard, parse_rules, read_rules, source_line

__all__ = [
    "dump_manifest",
    "load_guard",
    "load_rules",
    "parse_guard",
    "parse_rules",
    "read_rules",
    "source_line",
]

"""Text → rules and diagnostics.

A `Source` is the text. `yaml_nodes` and `json_nodes` make a tree of `Node`s that know their places. `policy` reads
that tree: `rule` the rules with a kind (`kinds` has a file for each), `guard` the rules that decide calls. Everything
wrong on the way goes to `Problems`; only the `load_…` functions turn problems into an exception.
"""

from bylaw.rules.loader import (
    dump_manifest,
    load_guard,
    load_rules,
    parse_guard,
    parse_rules,
    read_rules,
    source_line,
)

__all__ = ["dump_manifest", "load_guard", "load_rules", "parse_guard", "parse_rules", "read_rules", "source_line"]

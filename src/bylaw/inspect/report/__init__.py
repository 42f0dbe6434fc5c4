"""Timelines and comparisons, for people and for programs.

`layout` measures and styles text, `values` shortens JSON values and figures, `turns` renders one turn as blocks of
lines; `terminal` puts them on a page, `side_by_side` in two columns. All text from a trace goes through `layout`, so
none of it can steer the terminal.
"""

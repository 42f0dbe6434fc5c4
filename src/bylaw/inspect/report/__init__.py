"""Timelines and comparisons, for people and for programs.

`layout` measures and styles text, and shortens JSON values and figures. `terminal` renders turns as blocks of lines and
puts them on a page, `side_by_side` puts them in two columns. All text from a trace goes through `layout`, so none of it
can steer the terminal.
"""

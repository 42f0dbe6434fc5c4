"""A timeline as people and programs read it. Stages: text → lines that fit → blocks of a turn → a page or two columns.

Everything that comes out of a trace goes through `text`, which lets nothing steer the terminal and knows how wide
characters are.
"""

"""A system prompt → the rules it states.

`lines` and `layout` divide a prompt into statements, and `reader` puts the rules together. A sentence in the section of
a tool is a condition on calls of that tool: `preconditions` reads it, and `lookups` finds the tools that can show it.
Any other sentence is read by its grammar: `statements` → `clauses` → `markers` → one of `prohibitions` and
`obligations`, with the help of `order`, `conditions`, `counts`, `commands`, `dialogue` and `answers`;
`certainty` says how certain a reading is. `unread` lists what none of them has read, and gives a rule that the engine
cannot decide the words of its clause as trigger and action. They find tools with `binding`, compare words with
`vocabulary` and write engine rules as `readings` defines them.
"""

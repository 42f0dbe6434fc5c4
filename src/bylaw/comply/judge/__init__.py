"""What the engine leaves undecided, asked of a model. Its answers are taken only where they cite events that exist.

`transcript` is what the judge is shown, without secrets; `questions` words it; `answers` checks what comes back;
`memory` keeps it; `asking` goes through the rules and keeps to the deadline.
"""

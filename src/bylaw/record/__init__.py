"""Records an agent while it works: its calls to models and their answers, written turn by turn.

`turns` observes one call to a model and converts it into lines of Bylaw JSONL. `recording` is one recording from start
to end, whose file gets these lines so that a kill loses no finished turn. `api` is `bylaw.record`, for a program in
this process. `child` records a command instead, through a proxy; `commands` has `bylaw record` and `bylaw receive`,
which need `pip install 'bylaw[record]'`.
"""

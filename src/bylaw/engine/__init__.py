"""Rule in, verdicts out.

`compile_rules` turns rules into a `Program` of monitors; an `Evaluation` folds events over it. Every job is this fold,
so a rule gives the same answer in every job.
"""

"""`bylaw.check`: the job as a Python function."""

from __future__ import annotations

from bylaw.check.job import check as check_sources
from bylaw.model.report import CheckReport, FailOn
from bylaw.rules.loader import Rules, as_rules
from bylaw.traces.inputs import Traces, as_sources


def check(trace: Traces, rules: Rules, *, fail_on: FailOn = "error", allow_vacuous: bool = False) -> CheckReport:
    """Did this recorded agent keep its rules?

    `trace`: a trace, the path of one (or a folder or glob), or several of those. `rules`: what `load_rules`
    returned, or the path of a rule file. The report's `exit_code` is what `bylaw check` would exit with.
    """
    return check_sources(as_sources(trace), as_rules(rules), fail_on=fail_on, allow_vacuous=allow_vacuous)

"""Rule files with all their sections: rules, guards, contract, ci."""

from __future__ import annotations

from collections.abc import Iterable

from bylaw.ci.file import check_ci
from bylaw.contract.file.loader import check_contract
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import RuleSet
from bylaw.rules.files import FilePath
from bylaw.rules.loader import SectionReader, read_rules

SECTIONS: tuple[SectionReader, ...] = (check_contract, check_ci)


def read_files(paths: Iterable[FilePath]) -> RuleSet:
    """The usable rules of these files together, and every problem of every section. Never raises for what they hold."""
    return read_rules(paths, sections=SECTIONS)


def lint_files(paths: Iterable[FilePath]) -> list[Diagnostic]:
    """Every problem of these rule files, errors and warnings."""
    return list(read_files(paths).diagnostics)

"""Files and texts → a ContractFile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bylaw.contract.file.file import read_contract, report_no_contract
from bylaw.contract.file.rule_check import file_rules
from bylaw.contract.model import Contract, ContractFile
from bylaw.model.rule import Rule
from bylaw.rules.documents import Format, parse_documents
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.inputs import FilePath, format_of
from bylaw.rules.located import Node
from bylaw.rules.params import Context
from bylaw.rules.policy import holds_contract, read_policy
from bylaw.rules.problems import Problems, Unreadable
from bylaw.rules.rule_fields import Ids
from bylaw.rules.source import Source


def load_contract(path: FilePath) -> ContractFile:
    """The contract of a file, and every problem in it. Never raises for what the file holds."""
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except NotRead as not_read:
        return ContractFile(None, (not_read.diagnostic,), file)
    return parse_contract(text, file=file, format=format_of(file), base=Path(file).parent)


def check_contract(documents: Sequence[Node], rules: Sequence[Rule], ids: Ids, context: Context) -> None:
    """Report what is wrong with the contract beside the rules, if there is one."""
    read_contract(documents, file_rules(rules, ids, context.problems.source.file), context)


def parse_contract(
    text: str,
    *,
    file: str = "<text>",
    format: Format = "yaml",
    base: FilePath | None = None,
    environ: Mapping[str, str] | None = None,
) -> ContractFile:
    """The contract of a text, and every problem in it. Never raises for what the text holds.

    `base` is the folder that paths in it are relative to; `environ` holds the variables that it may name.
    """
    problems = Problems(Source(file, text))
    context = Context(
        problems,
        Path(base) if base is not None else Path(),
        variables=os.environ if environ is None else environ,
        every_section=True,
    )
    contract: Contract | None = None
    with contextlib.suppress(Unreadable):
        if documents := parse_documents(problems.source, problems, format):
            ids: Ids = {}
            rules = read_policy(documents, context, ids)
            contract = read_contract(documents, file_rules(rules, ids, file), context)
            if not holds_contract(documents):
                report_no_contract(documents, context)
    return ContractFile(contract, problems.all, file)

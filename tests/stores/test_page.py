"""What docs/reference/stores.md shows is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from bylaw.guard.stores.chain import ChainFault
from tests.docs.pages import ROOT, blocks
from tests.docs.python_examples import Interpreter

PAGE = "docs/reference/stores.md"


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python = Interpreter(tmp_path)
    for block in blocks(PAGE, "python"):
        python.run(block)


def test_every_fault_is_explained() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    assert [fault for fault in ChainFault.__args__ if f"| `{fault}` |" not in page] == []

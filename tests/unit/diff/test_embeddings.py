"""The semantic axis by sentence embeddings: the backend itself where its extra is installed, a small fake elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click
import numpy as np
import pytest
from numpy.typing import NDArray

import bylaw
from bylaw.diff.api import compare_versions
from bylaw.diff.model import AxisRow, DiffReport
from bylaw.diff.report import json as diff_json
from bylaw.diff.report import markdown as diff_markdown
from bylaw.diff.report import terminal as diff_terminal
from bylaw.errors import InputError
from bylaw.lint.commands import read_page
from bylaw.model.ports import Embedder
from bylaw.text import similarity as wordllama
from bylaw.text.similarity import EmbeddedTexts, load_embedder
from tests.support.build import trace

ROOT = Path(__file__).parent.parent.parent.parent
REFUND = ROOT / "src" / "bylaw" / "demo" / "files"
INSTALLED = all(find_spec(module) for module in ("safetensors", "tokenizers", "wordllama"))
needs_extra = pytest.mark.skipif(not INSTALLED, reason="the extra `embeddings` is not installed")
lacks_extra = pytest.mark.skipif(INSTALLED, reason="the extra `embeddings` is installed")

PARAPHRASES = [
    ("Your refund has been issued.", "We have sent your money back."),
    ("The flight is cancelled.", "Your plane will not depart."),
    ("The package arrives tomorrow.", "Your parcel will be delivered the next day."),
    ("Please enter your password.", "Type in your login credentials, please."),
]


class ByLength:
    """Texts of equal length point the same way, all others stand at right angles."""

    name = "by length"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen += texts
        return np.eye(200, dtype=np.float32)[[len(text) for text in texts]]


def compare(before: Sequence[str], after: Sequence[str], embedder: Embedder | None = None) -> DiffReport:
    old, new = ([trace([{"text": text} for text in said], name="t")] for said in (before, after))
    return compare_versions(old, new, embedder=embedder)


def semantic(report: DiffReport) -> AxisRow:
    return next(row for row in report.axes if row.axis == "semantic")


# -- with a fake ------------------------------------------------------------------------------------------------------


def test_the_embedder_measures_the_semantic_axis() -> None:
    report = compare(["abc", "de", "same"], ["xyz", "vwxyz", "same"], ByLength())
    assert semantic(report).candidate == pytest.approx(2 / 3)
    assert report.semantic_measure == "by length"
    assert semantic(compare(["abc", "de", "same"], ["xyz", "vwxyz", "same"])).candidate == pytest.approx(1 / 3)


def test_divergences_compare_words_with_an_embedder_too() -> None:
    """Other words are a divergence as before, even where the embedder takes them for the same."""
    words, embedded = (compare(["abc"], ["xyz"], embedder) for embedder in (None, ByLength()))
    assert embedded.divergences == words.divergences
    assert len(embedded.divergences) == 1


def test_each_text_is_embedded_once() -> None:
    fake = ByLength()
    compare(["one", "one", "three"], ["one", "three", "seven"], fake)
    assert sorted(fake.seen) == ["one", "seven", "three"]


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [("abc", "abc", 1.0), ("abc", "xyz", 1.0), ("abc", "wxyz", 0.0), ("abc", "", 0.0), ("", " ", 1.0), ("", "", 1.0)],
)
def test_similarity_is_the_cosine_of_embeddings(left: str, right: str, alike: float) -> None:
    assert EmbeddedTexts(ByLength(), [left, right]).similarity(left, right) == alike


def test_opposite_directions_are_not_less_than_unlike() -> None:
    class Opposed:
        name = "opposed"

        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.array([[1.0], [-1.0]], dtype=np.float32)

    assert EmbeddedTexts(Opposed(), ["left", "right"]).similarity("left", "right") == 0.0


@pytest.mark.parametrize(
    ("embedder", "line"), [(None, "semantic: lexical (words, not meaning)"), (ByLength(), "semantic: by length")]
)
def test_every_report_says_what_measured_it(embedder: Embedder | None, line: str) -> None:
    report = compare(["abc"], ["xyz"], embedder)
    assert f"\n{line}\n" in click.unstyle(diff_terminal.render_diff(report))
    assert f"\n{line}  \n" in diff_markdown.render_diff(report)
    assert diff_json.diff_as_json(report)["semantic_measure"] == report.semantic_measure


def test_reports_show_the_trajectory_without_argument_values() -> None:
    old, new = ([trace([{"calls": [{"name": "refund", "args": {"id": one}}]}], name="t")] for one in ("a", "b"))
    report = compare_versions(old, new)
    assert "trajectory without argument values: 0.000\n" in click.unstyle(diff_terminal.render_diff(report))
    assert "trajectory without argument values: 0.000  \n" in diff_markdown.render_diff(report)


# -- without the extra ------------------------------------------------------------------------------------------------


def test_a_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> NoReturn:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(wordllama, "distribution", absent)
    with pytest.raises(InputError) as caught:
        bylaw.diff(REFUND / "v1.jsonl", REFUND / "v2.jsonl", embeddings=True)
    (problem,) = caught.value.diagnostics
    assert problem.code == "missing-extra"
    assert problem.help == "pip install 'bylaw[embeddings]'"
    assert read_page(problem.code)


@lacks_extra
def test_the_command_reports_a_missing_extra() -> None:
    done = run_diff()
    assert done.returncode == 2
    assert "error[missing-extra]: sentence embeddings need" in done.stderr
    assert not done.stdout


# -- with the extra ---------------------------------------------------------------------------------------------------


@needs_extra
def test_rows_have_length_one() -> None:
    rows = load_embedder().embed([text for pair in PARAPHRASES for text in pair])
    assert rows.dtype == np.float32
    assert rows.shape == (8, 256)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0, abs=1e-6)


@needs_extra
def test_paraphrases_are_nearer_than_other_texts() -> None:
    """Each text's nearest among the other halves is its own paraphrase, and by a margin over all the rest."""
    embedder = load_embedder()
    one, other = (embedder.embed([pair[side] for pair in PARAPHRASES]) for side in (0, 1))
    alike = one @ other.T
    unlike = alike[~np.eye(len(alike), dtype=bool)]
    assert alike.argmax(axis=1).tolist() == alike.argmax(axis=0).tolist() == [0, 1, 2, 3]
    assert alike.diagonal().mean() > unlike.mean() + 0.2


@needs_extra
def test_a_row_depends_on_its_text_alone() -> None:
    texts = [text for pair in PARAPHRASES for text in pair] * 50
    together = load_embedder().embed(texts)
    assert np.array_equal(together, load_embedder().embed(texts))
    assert np.array_equal(together[3], load_embedder().embed([texts[3]])[0])


@needs_extra
@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "🦙", " ", "word " * 20_000])
def test_odd_texts_have_unit_embeddings(text: str) -> None:
    assert np.linalg.norm(load_embedder().embed([text])[0]) == pytest.approx(1.0, abs=1e-6)


@needs_extra
def test_empty_input_has_empty_embeddings() -> None:
    assert load_embedder().embed([]).shape == (0, 256)
    assert not load_embedder().embed([""]).any()


@needs_extra
def test_a_paraphrase_is_less_of_a_change_than_by_words() -> None:
    before, after = ([pair[side] for pair in PARAPHRASES] for side in (0, 1))
    by_words, embedded = semantic(compare(before, after)), semantic(compare(before, after, load_embedder()))
    assert by_words.candidate is not None
    assert embedded.candidate is not None
    assert embedded.candidate > by_words.candidate


@needs_extra
def test_the_command_names_the_measure_and_repeats_itself() -> None:
    done = run_diff("--format", "json", "--deterministic")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["semantic_measure"].startswith("wordllama 0.2.")
    assert done.stdout == run_diff("--format", "json", "--deterministic").stdout


@needs_extra
def test_wordllama_itself_is_not_imported() -> None:
    code = "import sys; from bylaw.text.similarity import load_embedder as l; l(); print('requests' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def run_diff(*options: str) -> subprocess.CompletedProcess[str]:
    arguments = ["diff", str(REFUND / "v1.jsonl"), str(REFUND / "v2.jsonl"), "--embeddings", *options]
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "bylaw", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)

"""False alarms: what redaction finds in real traces, and that all of it is what it is taken for."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from bench.redaction import CORPUS, corpus_texts
from bylaw.text.redaction import searchable
from bylaw.text.redaction.redactor import CLASSES, Redaction, Redactor

pytestmark = pytest.mark.corpus
NAMED = re.compile(r"(?i)(?:password|otp|secret|key)")
"""stands before every secret of these traces, which are passwords of invented people"""


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no real traces beside this repository")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.proof)])
def test_what_is_found_in_real_traces_is_what_it_is_taken_for(every: int) -> None:
    redact = Redactor(Redaction(classes=CLASSES))
    found: Counter[str] = Counter()
    doubtful: Counter[str] = Counter()
    texts = list(dict.fromkeys(corpus_texts(CORPUS)))[::every]
    for text in texts:
        for kind, start, end in redact.find(searchable(text)):
            found[kind] += 1
            if kind not in ("email", "iban") and not NAMED.search(text[max(0, start - 40) : start]):
                doubtful[f"{kind}: {text[start:end][:40]}"] += 1
    assert found["secret"] > 100 / every and found["email"] > 10 / every  # the traces have them
    assert doubtful.total() <= len(texts) / 10_000, doubtful

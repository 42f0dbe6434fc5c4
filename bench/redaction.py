"""`make bench`: how much of what a guard must not write it finds, how often it is wrong, and how fast it is.

Recall is measured on 40 kinds of secrets and personal data, 50 of each, which `tests/support/secret_samples.py` makes
from a seed, each in five places: alone, in a sentence, as a key, nested, and in JSON inside a text. False alarms are
counted on real traces, if BYLAW_CORPUS names their folder: every finding is printed with its kind, since no program
knows which of them are wrong.

Bias: the samples are made by those who wrote the patterns, from the forms that issuers document; a secret without a
form or a name beside it is not among them.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bylaw.text.redaction import searchable
from bylaw.text.redaction.redactor import CLASSES, Redaction, Redactor
from tests.support.secret_samples import COUNT, KINDS, samples

CORPUS = Path(os.environ.get("BYLAW_CORPUS", Path(__file__).parent.parent.parent / "shared" / "data"))


def main() -> None:
    print(f"recall: {len(KINDS)} kinds, {COUNT} of each, in five places")
    for name, redaction in {"default": Redaction(), "every class": Redaction(classes=CLASSES)}.items():
        missed = count_missed(Redactor(redaction))
        total = 5 * COUNT * len(KINDS)
        print(f"  {name:12} {100 * (1 - missed.total() / total):6.2f} %  {_shown(missed)}")
    if CORPUS.is_dir():
        texts = list(dict.fromkeys(corpus_texts(CORPUS)))
        found, seconds = count_found(Redactor(Redaction(classes=CLASSES)), texts)
        size = sum(map(len, texts))
        print(f"real traces: {len(texts):,} different texts, {size / 1e6:.1f} MB, {size / seconds / 1e6:.1f} MB/s")
        print(f"  found: {', '.join(f'{kind} {count}' for kind, count in found.most_common())}")
    else:
        print("real traces: not measured, since BYLAW_CORPUS names no folder")
    print(f"a call with three short arguments: {call_micros(Redactor()):.1f} µs, with new values each time")


def count_missed(redactor: Redactor) -> Counter[str]:
    missed: Counter[str] = Counter()
    for sample in samples():
        text, secret = sample.text, json.dumps(sample.secret)[1:-1]
        for place in (text, f"please use {text} for it", {text: 1}, [{"a": [text]}], json.dumps({"x": text})):
            missed[sample.kind] += secret in json.dumps(redactor(place)).replace("\\\\n", "\\n")
    return missed


def count_found(redactor: Redactor, texts: list[str]) -> tuple[Counter[str], float]:
    found: Counter[str] = Counter()
    began = process_time()
    for text in texts:
        for one in redactor.find(searchable(text)):
            found[one.kind] += 1
    return found, process_time() - began


def call_micros(redactor: Redactor, calls: int = 5_000) -> float:
    note = "please refund this order to the customer today"
    made = [{"order_id": f"A-{i}", "amount": i, "note": note} for i in range(calls)]
    began = process_time()
    for arguments in made:
        redactor(arguments)
    return (process_time() - began) / calls * 1e6


def corpus_texts(folder: Path) -> Iterator[str]:
    """Every text in the files: values and keys of JSON, else lines."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        try:
            text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
        except UnicodeDecodeError:
            continue
        for part in [text] if file.suffix == ".json" else text.splitlines():
            try:
                yield from _texts(json.loads(part))
            except ValueError:
                yield part


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _shown(missed: Counter[str]) -> str:
    kinds = [f"{kind} {count}" for kind, count in missed.most_common() if count]
    return f"missed: {', '.join(kinds)}" if kinds else "nothing missed"


if __name__ == "__main__":
    main()

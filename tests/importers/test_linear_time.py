"""A file that repeats the records of a sample, with other ids, is read in a time that grows with its length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import BylawError
from bylaw.traces import open_trace
from tests.support.timing import cpu_seconds
from tests.support.yaml_files import load_yaml

SHORT, LONG = 500, 4000
MOST_LISTS = 4
"""lists of one sample whose items are repeated, those nearest to the top first"""
ID = re.compile(r'"(?!\d{4}-)([\w:.-]*\d[\w-]*)"')
FILES = sorted((Path(__file__).parents[1] / "cases/formats").glob("*.yaml"))
SHORT_RUN = ("gemini-messages-one-a-line",)
"""samples for `make test`; all others are for `make proof`"""
SAMPLES = [
    pytest.param(case["file"], id=case["name"], marks=() if case["name"] in SHORT_RUN else pytest.mark.proof)
    for file in FILES
    for case in load_yaml(file.read_text("utf-8"))
    if isinstance(case.get("file"), str)
]


def vary(record: str, number: int) -> str:
    """The record with other ids, which are the same wherever the record has them."""
    return ID.sub(rf'"\1x{number}"', record) if number else record


def repeat(records: list[str], count: int, *, one_by_one: bool) -> list[str]:
    numbers = range(max(1, count // len(records)))
    if one_by_one:  # all calls come before all results
        return [vary(record, number) for record in records for number in numbers]
    return [vary(record, number) for number in numbers for record in records]


def lists_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    """Lists of objects, at any depth."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield path, value
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from lists_in(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


def parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def longer(text: str, count: int) -> Iterator[tuple[str, str]]:
    """What is repeated, and the file."""
    lines = text.splitlines()
    whole = parse(text)
    documents = [whole] if whole is not None else [parse(line) for line in lines]
    for one_by_one in (False, True):
        how = "one by one" if one_by_one else "in turn"
        if len(lines) > 1 and whole is None:
            rows = [*lines[:1], *repeat(lines[1:], count, one_by_one=one_by_one)]
            yield f"lines {how}", "\n".join(rows) + "\n"
        found = [(at, path, items) for at, one in enumerate(documents) for path, items in lists_in(one)]
        for at, path, items in sorted(found, key=lambda one: len(one[1]))[:MOST_LISTS]:
            rows = repeat([json.dumps(item) for item in items], count, one_by_one=one_by_one)
            changed = json.dumps(put(documents[at], path, [json.loads(row) for row in rows]))
            where = ".".join(map(str, (at, *path)))
            yield f"{where} {how}", "\n".join([*lines[:at], changed, *lines[at + 1 :]] if whole is None else [changed])


def seconds_for(file: Path) -> float:
    def read() -> None:
        with suppress(BylawError):  # it may be no trace any more; that must take no longer either
            for _ in open_trace(str(file)):
                pass

    return cpu_seconds(read)


@pytest.mark.parametrize("text", SAMPLES)
def test_the_time_grows_with_the_length_of_the_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    for (what, short), (_, long) in zip(longer(text, SHORT), longer(text, LONG), strict=True):
        file.write_text(long)
        taken = seconds_for(file)
        file.write_text(short)
        # 8 times as long; if the time is squared, 64 times as much. Short times are mostly those of the first import.
        assert taken < 24 * max(min(seconds_for(file) for _ in range(2)), 0.02), what

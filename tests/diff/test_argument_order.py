"""Ids of one kind that are exchanged between arguments, with one recording on each side."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.diff.test_blind_spots import TASKS, Turns, diff, talk


def moved(i: int, step: int) -> Turns:
    one, other = (f"AC{i}7", f"AC{i}9")[::step]
    asked = f"Move ten from account AC{i}7 to account AC{i}9 please."
    return talk(f"t{i}", asked, [("move", {"from": one, "to": other}, "ok")])


def closed(i: int, step: int) -> Turns:
    one, other = (f"T{i}a", f"T{i}b")[::step]
    listed = f'[{{"id": "T{i}a", "state": "done"}}, {{"id": "T{i}b", "state": "new"}}]'
    calls = [("look", {}, listed), ("close", {"id": one}, "ok"), ("keep", {"id": other}, "ok")]
    return talk(f"t{i}", f"Tidy up board {i}.", calls)


@pytest.mark.parametrize(("run", "text"), [(moved, "gets as `from` a value"), (closed, "gets as `id` a value")])
def test_ids_of_one_kind_that_are_exchanged_gate(run: Callable[[int, int], Turns], text: str) -> None:
    before, after = ([run(i, step) for i in range(TASKS)] for step in (1, -1))
    report = diff(before, after)
    assert report.exit_code == 1
    assert any(text in one.text for one in report.findings), [one.text for one in report.findings]
    assert diff(before, before).exit_code == 0


def test_the_same_ids_in_another_request_are_no_exchange() -> None:
    def run(i: int, asked: str) -> Turns:
        given = {"from": f"AC{i}7", "to": f"AC{i}9"}
        return talk(f"t{i}", asked.replace("{}", str(i)), [("move", given, "ok")])

    before = [run(i, "Move ten from account AC{}7 to account AC{}9 please.") for i in range(TASKS)]
    after = [run(i, "Move ten to account AC{}9 from account AC{}7 please.") for i in range(TASKS)]
    assert diff(before, after).exit_code == 0


def test_a_call_that_is_gone_is_no_exchange() -> None:
    before = [closed(i, 1) for i in range(TASKS)]
    report = diff(before, [[*one[:2], *one[3:]] for one in before])
    assert [one.what for one in report.findings if "mentioned" in one.text] == []

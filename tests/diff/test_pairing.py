"""Which sessions are compared with which: ids that occur twice in a file, tasks in the system prompt."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.diff.model import DiffReport
from bylaw.engine.compile import compile_rules
from bylaw.traces import open_trace
from bylaw.traces.comparison.compare import Pairing, pair_sessions
from bylaw.traces.comparison.recording import read_side

Chat = dict[str, Any]
USERS = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jon"]
NO_RULES = compile_rules(())


def chat(user: str, asked: str, id: str | None = None, prompt: str | None = None, then: str | None = None) -> Chat:
    """A conversation in which the agent deletes an account."""
    call = {"name": "delete", "arguments": json.dumps({"user": user})}
    messages = [
        *([] if prompt is None else [{"role": "system", "content": prompt}]),
        {"role": "user", "content": asked},
        *([] if then is None else [{"role": "assistant", "content": "Go on."}, {"role": "user", "content": then}]),
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "assistant", "content": f"Deleted {user}."},
    ]
    return {"messages": messages} | ({} if id is None else {"id": id})


def asked(user: str) -> str:
    return f"Delete the account of {user} please"


RIGHT = [chat(user, asked(user), f"s-{user}") for user in USERS]
WRONG = [chat("root", asked(user), f"s-{user}") for user in USERS]
SHUFFLED = random.Random(3).sample(RIGHT, len(RIGHT))


def without_ids(chats: list[Chat]) -> list[Chat]:
    return [{"messages": one["messages"]} for one in chats]


def write(path: Path, chats: list[Chat]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in chats))
    return path


def diff(folder: Path, before: list[Chat], after: list[Chat], **options: Any) -> DiffReport:
    return bylaw.diff(write(folder / "b.jsonl", before), write(folder / "c.jsonl", after), **options)


def pair(folder: Path, before: list[Chat], after: list[Chat]) -> Pairing:
    paths = write(folder / "b.jsonl", before), write(folder / "c.jsonl", after)
    return pair_sessions(*(read_side([open_trace(path)], NO_RULES).recordings for path in paths))


def tasks(pairing: Pairing) -> list[tuple[set[tuple[str, ...]], int, int]]:
    """For each group what was asked for in it, and how many trials each side has."""
    return [
        ({one.user_messages for one in (*group.baseline, *group.candidate)}, len(group.baseline), len(group.candidate))
        for group in pairing.groups
    ]


# -- one id, several sessions of a file --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "trials"),
    [
        (RIGHT + RIGHT, RIGHT, (2, 1)),
        (RIGHT, RIGHT + SHUFFLED, (1, 2)),
        (RIGHT + RIGHT, SHUFFLED + RIGHT, (2, 2)),
        (RIGHT + RIGHT, [one for one in RIGHT for _ in range(3)], (2, 3)),
        (RIGHT + without_ids(SHUFFLED), RIGHT, (2, 1)),
        (RIGHT, SHUFFLED + without_ids(RIGHT), (1, 2)),
        (without_ids(RIGHT + RIGHT), RIGHT, (2, 1)),
    ],
)
def test_runs_of_one_task_in_one_file_are_its_trials(
    tmp_path: Path, before: list[Chat], after: list[Chat], trials: tuple[int, int]
) -> None:
    pairing = pair(tmp_path, before, after)
    assert (pairing.missing, pairing.extra) == ([], [])
    assert [(len(said), *counts) for said, *counts in tasks(pairing)] == [(1, *trials)] * len(USERS)


def test_a_second_run_in_the_file_of_the_candidate_is_judged(tmp_path: Path) -> None:
    assert diff(tmp_path, RIGHT + RIGHT, RIGHT).exit_code == 0
    report = diff(tmp_path, RIGHT, RIGHT + WRONG)
    assert (report.sessions, report.exit_code) == ((), 1)


def test_sessions_without_ids_among_others_are_paired_by_how_they_begin(tmp_path: Path) -> None:
    mixed = [one if number % 2 else {"messages": one["messages"]} for number, one in enumerate(RIGHT)]
    pairing = pair(tmp_path, mixed, mixed[::-1])
    assert [(len(said), *counts) for said, *counts in tasks(pairing)] == [(1, 1, 1)] * len(USERS)


@pytest.mark.parametrize(("first", "then"), [("{}", None), ("Hi", "{}")])
def test_an_id_that_sessions_of_several_tasks_have_is_ignored(tmp_path: Path, first: str, then: str | None) -> None:
    """That of a user, or of the program."""
    before = [chat(user, first.format(asked(user)), "app", then=then and then.format(asked(user))) for user in USERS]
    pairing = pair(tmp_path, before, before[::-1])
    assert [(len(said), *counts) for said, *counts in tasks(pairing)] == [(1, 1, 1)] * len(USERS)
    assert "session id" not in {group.matched_by for group in pairing.groups}


def test_ids_that_look_like_repeated_ones_are_kept(tmp_path: Path) -> None:
    before = [chat(user, asked(user), f"s#{number}") for number, user in enumerate(USERS)]
    pairing = pair(tmp_path, before, before[::-1])
    assert {group.matched_by for group in pairing.groups} == {"session id"}
    assert [(len(said), *counts) for said, *counts in tasks(pairing)] == [(1, 1, 1)] * len(USERS)


@pytest.mark.parametrize("runs", [1, 2])
def test_runs_that_are_read_as_one_session_are_reported(tmp_path: Path, runs: int) -> None:
    """A format that tells sessions apart by their ids."""
    asks = [{"role": "user", "content": asked("ann")}]
    later = [*asks, {"role": "assistant", "content": "Which one?"}, {"role": "user", "content": "The old one"}]
    run = [
        {"kind": kind, "session": "s", **fields}
        for messages in (asks, later)
        for kind, fields in (("request", {"messages": messages}), ("response", {"content": "Which one?"}))
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"bylaw": "trace/1"}, *run * runs)))
    notes = bylaw.diff(path, path).notes
    assert any("2 sessions begin again" in note for note in notes) == (runs > 1)


# -- the task in the system prompt -------------------------------------------------------------------------------------


def prompted(prompt: str, shift: int, message: str) -> list[Chat]:
    """The prompt of each session names an account to delete and one to keep. `shift`: 1 deletes the latter."""
    return [
        chat(USERS[number - shift], message, prompt=prompt.format(user, USERS[number - 1]))
        for number, user in enumerate(USERS)
    ]


@pytest.mark.parametrize("message", ["Go", "Please do now what the instructions above tell you to do"])
def test_tasks_in_an_edited_system_prompt_are_paired_by_its_words(tmp_path: Path, message: str) -> None:
    before = prompted("Delete the account of {}, never that of {}.", 0, message)
    edited = "Be careful. Delete the account of {}, never that of {}."
    same = diff(tmp_path, before, prompted(edited, 0, message)[::-1])
    assert (same.exit_code, same.groups, same.guessed) == (0, len(USERS), len(USERS))
    assert diff(tmp_path, before, prompted(edited, 1, message)[::-1], deterministic=True).exit_code == 1
    assert diff(tmp_path, before, prompted(edited, 0, message), strict=True).exit_code == 3


def test_a_clock_in_the_system_prompt_makes_no_other_task(tmp_path: Path) -> None:
    def run(day: str, date: int) -> Chat:
        return chat("ann", "Delete my account", prompt=f"You help. Now: {day}, 2026-11-{date} 09:{date}")

    report = diff(
        tmp_path, [run("Monday", day) for day in range(10, 14)], [run("Friday", day) for day in range(14, 20)]
    )
    assert (report.groups, report.guessed, report.sessions) == (1, 0, ())

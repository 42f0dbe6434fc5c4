"""Files, folders, globs, and `-`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bylaw.errors import InputError
from bylaw.traces import find_traces
from bylaw.traces.source import as_sources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "b.jsonl",
        "a.agentlog",
        "sub/c.json.gz",
        "sub/deep/d.NDJSON.zst",
        "notes.txt",
        "policy.yaml",
        "[1].json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["b.jsonl"], ["b.jsonl"]),
        (["notes.txt"], ["notes.txt"]),
        (["-"], ["-"]),
        (["sub"], ["sub/c.json.gz", "sub/deep/d.NDJSON.zst"]),
        (["."], ["./[1].json", "./a.agentlog", "./b.jsonl", "./sub/c.json.gz", "./sub/deep/d.NDJSON.zst"]),
        (["*.jsonl", "a.*"], ["b.jsonl", "a.agentlog"]),
        (["**/*.gz"], ["sub/c.json.gz"]),
        (["s*"], ["sub/c.json.gz", "sub/deep/d.NDJSON.zst"]),
        (["*.txt"], ["notes.txt"]),
        (["[1].json"], ["[1].json"]),
        (["b.jsonl", "*.jsonl"], ["b.jsonl"]),
    ],
)
def test_names_folders_and_globs_find_their_files(folder: Path, patterns: list[str], found: list[str]) -> None:
    assert find_traces(patterns) == found


def test_what_is_not_there_is_reported_at_once(folder: Path) -> None:
    with pytest.raises(InputError) as error:
        find_traces(["b.jsonl", "gone.jsonl", "*.parquet", "empty"])
    assert [(d.file, d.code) for d in error.value.diagnostics] == [
        ("*.parquet", "no-traces"),
        ("empty", "no-traces"),
        ("gone.jsonl", "no-such-file"),
    ]


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.jsonl").write_text("")
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "back").symlink_to(tmp_path / "traces")
    assert [Path(name).name for name in find_traces([str(tmp_path / "traces")])] == ["a.jsonl"]


CHAT = json.dumps({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "hi"}]}) + "\n"


def put(folder: Path, *names: str) -> list[str]:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CHAT)
    return [str(folder / name) for name in names]


@pytest.mark.parametrize(
    "names",
    [
        ("observations.jsonl", "traces.jsonl"),
        ("observations/o.jsonl", "traces/r.jsonl"),
        ("observations/o.jsonl", "observations_v2/o.jsonl", "scores/s.jsonl"),
        ("run1/subagents/agent-7.jsonl", "run1/subagents/other.jsonl", "run1/tool-results/x.json", "run1.jsonl"),
        ("agent-7.jsonl", "agent-7.meta.json"),
    ],
)
def test_no_file_is_left_out_for_its_name_alone(tmp_path: Path, names: tuple[str, ...]) -> None:
    paths = put(tmp_path, *names)
    assert sorted(find_traces([str(tmp_path)])) == sorted(paths)
    assert sorted(find_traces([str(tmp_path / "**" / "*.json*")])) == sorted(paths)
    assert find_traces(paths) == paths


def test_traces_of_a_folder_are_opened_one_after_the_other(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"messages": [{"role": "user", "content": name}]}, indent=1))
    sources = as_sources(str(tmp_path))
    first = next(sources)
    (tmp_path / "b.json").unlink()
    assert [event.kind for event in first] == ["request"]
    with pytest.raises(InputError, match="no such file"):
        next(sources)


def test_pipes_are_read_only_if_they_are_named(folder: Path) -> None:
    for name in ("pipe.jsonl", "empty/pipe.jsonl"):
        os.mkfifo(folder / name)
    (folder / "link.jsonl").symlink_to("gone")
    assert find_traces(["pipe.jsonl"]) == ["pipe.jsonl"]
    assert find_traces(["*.jsonl"]) == ["b.jsonl", "link.jsonl"], "a broken link is reported, not left out"
    assert not [name for name in find_traces(["."]) if "pipe" in name]
    for pattern in ("empty", "p*.jsonl"):
        with pytest.raises(InputError, match="no trace file"):
            find_traces([pattern])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            PermissionError(13, "Permission denied"),
            "unreadable-file",
            "cannot read `locked/a.jsonl`: permission denied",
        ),
        (FileNotFoundError(2, "No such file or directory"), "no-such-file", "no such file"),
        (NotADirectoryError(20, "Not a directory"), "no-such-file", "no such file"),
    ],
)
def test_a_closed_folder_is_distinguished_from_a_missing_file(
    error: OSError, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The superuser may enter every folder, so the refusal is simulated."""
    own = os.stat

    def stat(path: str | int | os.PathLike[str], *more: object, **named: object) -> os.stat_result:
        if path == "locked/a.jsonl":
            raise error
        return own(path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(InputError) as refused:
        find_traces(["locked/a.jsonl"])
    assert [(one.code, one.message) for one in refused.value.diagnostics] == [(code, message)]

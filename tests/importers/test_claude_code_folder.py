"""What lies beside a session's file: its subagents, and outputs that were too long for it."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import find_traces, load_trace
from bylaw.traces.formats.claude_code import files
from tests.importers.support import calls, lines, responses, results, story
from tests.importers.test_claude_code import line, returned, use

STORED = "<persisted-output>\nOutput too large (1.2MB). Full output saved to: {}\n\nPreview (first 2KB):\nbegi"


def session(folder: Path, *records: Any, name: str = "s1") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(lines(*records))
    return path


def subagent(folder: Path, id: str, *records: Any, meta: str | None = None) -> Path:
    path = folder / "s1" / "subagents" / f"agent-{id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(*({**one, "isSidechain": True, "agentId": id} for one in records)))
    if meta is not None:
        path.with_suffix(".meta.json").write_text(meta)
    return path


OWN = [
    line("user", "u1", None, "go", 1),
    line("assistant", "a1", "u1", [use("c1", "Task", prompt="p", subagent_type="scout")], 2, message={"id": "m1"}),
    line("assistant", "a2", "a1", [use("c2", "Task", prompt="q")], 4, message={"id": "m1"}),
    line("user", "r1", "a1", [returned("c1", "found")], 10, toolUseResult={"agentId": "one"}),
    line("user", "r2", "a2", [returned("c2", "fine")], 12, toolUseResult={"agentId": "two"}),
    line("assistant", "a3", "r2", "done", 20, message={"id": "m2"}),
]
ONE = [
    line("user", "x1", None, "p", 3),
    line("assistant", "x2", "x1", [use("k1", "Agent", prompt="deeper", subagent_type="digger")], 5),
    line("user", "x3", "x2", [returned("k1")], 9),
    line("assistant", "x4", "x3", "found", 10),
]
TWO = [line("user", "y1", None, [{"type": "text", "text": "q"}], 5), line("assistant", "y2", "y1", "fine", 11)]
DEEP = [line("user", "z1", None, "deeper", 6), line("assistant", "z2", "z1", "deep", 8)]


def test_subagents_stand_where_they_were_started(tmp_path: Path) -> None:
    path = session(tmp_path, *OWN)
    subagent(tmp_path, "one", *ONE)
    subagent(tmp_path, "two", *TWO, meta='{"agentType": "judge", "toolUseId": "c2"}')
    subagent(tmp_path, "three", *DEEP, meta='{"agentType": "digger", "toolUseId": "k1", "spawnDepth": 2}')
    trace = load_trace(path)
    assert (trace.sessions, trace.notes, trace.problems) == (("s1",), (), ())
    reported = [
        (r.text, r.origin.run, r.origin.parent_run, r.origin.agent, r.origin.parent_agent) for r in responses(trace)
    ]
    assert reported == [
        ("", None, None, None, None),
        ("", "one", "s1", "scout", None),
        ("deep", "three", "one", "digger", "scout"),
        ("found", "one", "s1", "scout", None),
        ("fine", "two", "s1", "judge", None),
        ("done", None, None, None, None),
    ]
    assert [call.name for call in calls(trace)] == ["Task", "Task", "Agent"]
    assert [result.content for result in results(trace)] == ["ok", "found", "fine"]
    assert [call.group for call in calls(trace)][:2] == [0, 0]
    sources = {r.text: r.source.file for r in responses(trace) if r.source is not None}
    assert sources["fine"].endswith("agent-two.jsonl")


def test_a_subagent_in_the_background_goes_on_beside_its_parent(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("user", "u1", None, "go", 1),
        line("assistant", "a1", "u1", [use("c1", "Task", prompt="p")], 2),
        line("user", "r1", "a1", [returned("c1", "started")], 3),
        line("assistant", "a2", "r1", "meanwhile", 8),
    )
    subagent(
        tmp_path, "one", line("user", "x1", None, "p", 3), line("assistant", "x2", "x1", "a", 5),
        line("assistant", "x3", "x2", "b", 30),
    )  # fmt: skip
    assert [response.text for response in responses(load_trace(path))] == ["", "a", "meanwhile", "b"]


def test_a_folder_holds_each_session_once(tmp_path: Path) -> None:
    path = session(tmp_path, *OWN)
    other = session(tmp_path, line("user", "u", None, "x"), line("assistant", "v", "u", "y"), name="s2")
    inner = subagent(tmp_path, "one", *ONE, meta="{}")
    outputs = tmp_path / "s1" / "tool-results"
    outputs.mkdir()
    (outputs / "big.json").write_text("{}")
    assert find_traces([str(tmp_path)]) == [str(path), str(other)]
    assert find_traces([str(tmp_path / "**" / "*.jsonl")]) == [str(path), str(other)]
    assert find_traces([str(tmp_path / "s1" / "subagents")]) == [str(inner)]
    assert find_traces([str(path), str(inner)]) == [str(path), str(inner)]  # the user says so
    path.unlink()
    assert str(inner) in find_traces([str(tmp_path)])
    trace = load_trace(inner)
    assert [r.origin.run for r in responses(trace)] == ["one", "one"]
    assert trace.notes == ("only the part of a subagent is here: session `s1` has a file of its own",)


def test_only_what_is_read_with_a_session_is_left_out(tmp_path: Path) -> None:
    path = session(tmp_path, *OWN)
    inner = subagent(tmp_path, "one", *ONE, meta="{}")
    other = inner.with_name("other.jsonl")
    other.write_bytes(lines(*TWO))
    linked = inner.with_name("agent-two.jsonl")
    linked.symlink_to(other)
    nested = tmp_path / "s1" / "tool-results" / "deep" / "x.jsonl"
    nested.parent.mkdir(parents=True)
    nested.write_bytes(lines(*TWO))
    assert sorted(find_traces([str(tmp_path)])) == sorted(map(str, (path, linked, other, nested)))
    assert find_traces([str(inner), str(tmp_path / "*.jsonl")]) == [str(inner), str(path)]  # the user says so


def test_hundreds_of_subagents_at_once_need_no_open_files(tmp_path: Path) -> None:
    path = session(tmp_path, line("user", "u", None, "x", 1), line("assistant", "v", "u", "y", 50))
    most = len(os.listdir("/dev/fd")) + 40
    for number in range(most):
        subagent(tmp_path, str(number), line("user", "a", None, "p", 2), line("assistant", "b", "a", "q" * 70_000, 40))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        trace = load_trace(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(trace.turns) == most + 1


def test_bad_lines_of_subagents_are_reported_in_their_own_file(tmp_path: Path) -> None:
    path = session(tmp_path, *OWN, 7)
    inner = subagent(tmp_path, "one", *ONE, meta="{not json")
    inner.write_bytes(inner.read_bytes() + b'{"type": "assistant", "message": 5}\n{"oops\n')
    with pytest.raises(InputError) as error:
        load_trace(path)
    found = [(os.path.basename(d.file or ""), d.span and d.span.line) for d in error.value.diagnostics]
    assert sorted(found) == [("agent-one.jsonl", 5), ("agent-one.jsonl", 6), ("s1.jsonl", 7)]
    trace = load_trace(path, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (3, 4)


ORPHAN = line("user", "x3", "x2", [returned("gone")], 9)
REPEATED = line("user", "x3", "x2", [returned("k1", '{"a": 1, "a": 2}')], 9)
WRITTEN = line("assistant", "x3", "x2", '<tool_call>{"name": "refund", "arguments": {"a": 1}}</tool_call>', 9)


@pytest.mark.parametrize(
    ("line_number", "record", "code"),
    [(4, ORPHAN, "result-without-call"), (3, REPEATED, "duplicate-key"), (3, WRITTEN, "unread-content")],
)
def test_warnings_about_subagents_name_their_own_file(tmp_path: Path, line_number: int, record: Any, code: str) -> None:
    path = session(tmp_path, *OWN)
    inner = subagent(tmp_path, "one", *ONE[: line_number - 1], record)
    (problem,) = load_trace(path).problems
    assert (problem.code, problem.file, problem.span and (problem.span.file, problem.span.line)) == (
        code,
        str(inner),
        (str(inner), line_number),
    )


def test_arguments_with_a_key_twice_are_reported_in_files_of_subagents_too(tmp_path: Path) -> None:
    path = session(tmp_path, *OWN)
    inner = subagent(tmp_path, "one", *ONE)
    inner.write_bytes(inner.read_bytes().replace(b'"prompt": "deeper"', b'"prompt": "deeper", "prompt": "x"'))
    trace = load_trace(path)
    assert [(problem.code, problem.file) for problem in trace.problems] == [("duplicate-key", str(inner))]
    assert [call.arguments for call in calls(trace) if call.name == "Agent"] == [None]


def test_the_file_of_a_subagent_may_be_cut_off(tmp_path: Path) -> None:
    path = session(tmp_path, *OWN)
    for id in ("one", "two"):
        inner = subagent(tmp_path, id, *ONE)
        inner.write_bytes(inner.read_bytes()[:-30])
    trace = load_trace(path)
    assert (trace.complete, len(trace.turns)) == (False, 4)
    assert trace.notes[-1] == "the last record of 2 files of subagents is cut off and was left out"


@pytest.mark.parametrize("meta", ["{not json", "[]", "", '{"agentType": "x"}' + " " * (1 << 16)])
def test_an_unreadable_description_of_a_subagent_is_noted(tmp_path: Path, meta: str) -> None:
    note = "`meta.json` of a subagent cannot be read: a subagent's kind, or the call that started it, may be missing"
    path = session(tmp_path, *OWN)
    inner = subagent(tmp_path, "one", *ONE, meta=meta)
    subagent(tmp_path, "two", *TWO, meta='{"agentType": "judge"}')
    trace = load_trace(path)
    assert (trace.notes, trace.problems, len(trace.turns)) == ((f"1 {note}",), (), 5)
    assert load_trace(inner).notes[1:] == (f"1 {note}",)
    subagent(tmp_path, "two", *TWO, meta=meta)
    assert [text.partition(" cannot")[0] for text in load_trace(path).notes] == ["2 `meta.json` of subagents"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "agent-x.jsonl").write_bytes(lines(*ONE))
    (away / "secret.txt").write_text("secret")
    reported = [returned("c1", STORED.format("secret.txt"))]
    path = session(tmp_path, line("assistant", "a1", None, [use("c1")]), line("user", "r", "a1", reported))
    (tmp_path / "s1" / "subagents").mkdir(parents=True)
    (tmp_path / "s1" / "subagents" / "agent-x.jsonl").symlink_to(away / "agent-x.jsonl")
    (tmp_path / "s1" / "tool-results").symlink_to(away)
    trace = load_trace(path)
    assert len(trace.turns) == 1
    assert [result.content for result in results(trace)] == [STORED.format("secret.txt")]
    assert [note.split(" is ")[0] for note in trace.notes[-2:]] == ["1 file of a subagent", "1 output"]


@pytest.mark.parametrize("name", ["/home/x/.claude/p/s1/tool-results/big.txt", "C:\\x\\tool-results\\big.txt"])
def test_long_outputs_are_read_from_their_files(tmp_path: Path, name: str) -> None:
    path = session(
        tmp_path,
        line("assistant", "a1", None, [use("c1"), use("c2"), use("c3")]),
        line("user", "r1", "a1", [returned("c1", STORED.format(name))]),
        line("user", "r2", "a1", [returned("c2", [{"type": "text", "text": f"Output has been saved to {name}.\nx"}])]),
        line("user", "r3", "a1", [returned("c3", "I saved to: /etc/passwd")]),
        line("assistant", "a2", "r3", "done"),
    )
    stored = tmp_path / "s1" / "tool-results"
    stored.mkdir(parents=True)
    (stored / "big.txt").write_bytes(b"all of it \xff")
    trace = load_trace(path)
    whole = "all of it \ufffd"
    assert [result.content for result in results(trace)] == [whole, whole, "I saved to: /etc/passwd"]
    assert trace.notes == ()
    shown = [event for event in trace.events if event.kind == "request"][-1]
    assert "begi" in str(shown.messages)  # type: ignore[attr-defined]
    assert "all of it" not in str(shown.messages)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["../../s2.jsonl", "..", "", "/etc/passwd", "x\0y", "gone.txt", "huge.txt", "pipe"])
def test_only_files_of_the_sessions_own_folder_are_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_OUTPUT", 10)
    reported = STORED.format(name)
    path = session(
        tmp_path, line("assistant", "a1", None, [use("c1")]), line("user", "r1", "a1", [returned("c1", reported)])
    )
    session(tmp_path, 1, name="s2")
    stored = tmp_path / "s1" / "tool-results"
    stored.mkdir(parents=True)
    (stored / "huge.txt").write_text("x" * 11)
    os.mkfifo(stored / "pipe")
    trace = load_trace(path)
    assert [result.content for result in results(trace)] == [reported]
    assert trace.notes[-1].startswith("1 output is cut short")


def test_a_session_from_a_pipe_has_nothing_beside_it() -> None:
    trace = load_trace(lines(*OWN))
    assert story(trace)[-1] == "1 response done"


# A session whose subagents have no files: what its own file tells about them


def progress(uuid: str, agent: str, inner: dict[str, Any], **rest: Any) -> dict[str, Any]:
    data = {"type": "agent_progress", "agentId": agent, "message": inner, "normalizedMessages": []}
    about = {"type": "progress", "uuid": uuid, "sessionId": "s1", "isSidechain": False, "timestamp": inner["timestamp"]}
    return {**about, "data": data, "toolUseID": f"agent_{uuid}", "parentToolUseID": "c1", **rest}


def reported(inner: dict[str, Any]) -> dict[str, Any]:
    return {key: inner[key] for key in ("type", "uuid", "timestamp", "message")}


STARTED = [
    line("user", "u1", None, "go", 1),
    line("assistant", "a1", "u1", [use("c1", "Task", prompt="p", subagent_type="scout")], 2, message={"id": "m1"}),
]
WORK = [
    line("user", "x1", None, "p", 3),
    line("assistant", "x2", "x1", [use("k1", command="ls")], 4, message={"id": "n1"}),
    line("assistant", "x3", "x2", [use("k2", command="rm -rf /data")], 5, message={"id": "n1"}),
    line("user", "x4", "x2", [returned("k1", "files")], 6),
    line("user", "x5", "x3", [returned("k2", "removed")], 7),
]
PROGRESS = [progress(f"p{number}", "one", reported(one)) for number, one in enumerate(WORK)]


def returns(**about: Any) -> list[dict[str, Any]]:
    result = {"agentId": "one", "totalToolUseCount": 2, "status": "completed", **about}
    return [
        line("user", "r1", "a1", [returned("c1", "done")], 10, toolUseResult=result),
        line("assistant", "a2", "r1", "done", 12, message={"id": "m2"}),
    ]


def test_what_a_session_repeats_of_a_subagent_without_a_file_is_its_run(tmp_path: Path) -> None:
    again = progress("p9", "one", reported(WORK[2]))
    path = session(tmp_path, *STARTED, *PROGRESS, again, *returns())
    trace = load_trace(path)
    assert trace.problems == ()
    assert [(r.origin.run, r.origin.parent_run, r.origin.agent, len(r.tool_calls)) for r in responses(trace)] == [
        (None, None, None, 1),
        ("one", "s1", "scout", 2),
        (None, None, None, 0),
    ]
    assert [(call.name, call.arguments) for call in calls(trace)][1:] == [
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": "rm -rf /data"}),
    ]
    assert [result.content for result in results(trace)] == ["files", "removed", "done"]


@pytest.mark.parametrize("own", ["file", "lines"])
def test_what_a_session_repeats_of_a_subagent_counts_once(tmp_path: Path, own: str) -> None:
    sidechain = [{**one, "isSidechain": True, "agentId": "one"} for one in WORK] if own == "lines" else []
    path = session(tmp_path, *STARTED, *PROGRESS, *sidechain, *returns())
    if own == "file":
        subagent(tmp_path, "one", *WORK)
    trace = load_trace(path)
    assert trace.problems == ()
    assert [call.name for call in calls(trace)] == ["Task", "Bash", "Bash"]


@pytest.mark.parametrize("about", [{}, {"agentId": None}, {"totalToolUseCount": None, "status": "async_launched"}])
def test_calls_of_a_subagent_that_are_nowhere_are_reported(tmp_path: Path, about: dict[str, Any]) -> None:
    trace = load_trace(session(tmp_path, *STARTED, *returns(**about)))
    assert [problem.code for problem in trace.problems] == ["unread-content"]
    assert [response.unread for response in responses(trace)] == [("*",), ()]


def test_a_subagent_that_called_nothing_lacks_nothing(tmp_path: Path) -> None:
    trace = load_trace(session(tmp_path, *STARTED, *returns(totalToolUseCount=0)))
    assert (trace.problems, [response.unread for response in responses(trace)]) == ((), [(), ()])


def test_files_of_subagents_may_stand_beside_that_of_the_session(tmp_path: Path) -> None:
    """As versions before 2.1.2 write them."""
    path = session(tmp_path, *STARTED, *returns())
    other = session(tmp_path, line("user", "u", None, "x", session="s2"), name="s2")
    inner = tmp_path / "agent-one.jsonl"
    inner.write_bytes(lines(*({**one, "isSidechain": True, "agentId": "one"} for one in WORK)))
    strange = tmp_path / "agent-two.jsonl"
    strange.write_bytes(lines({**WORK[0], "isSidechain": True, "agentId": "two", "sessionId": "s9"}))
    (tmp_path / "agent-three.jsonl").symlink_to(inner)
    trace = load_trace(path)
    assert (trace.problems, [call.name for call in calls(trace)]) == ((), ["Task", "Bash", "Bash"])
    assert {call.origin.run for call in calls(trace)} == {None, "one"}
    assert [response.unread for response in responses(load_trace(other))] == []
    found = find_traces([str(tmp_path)])
    assert str(inner) not in found and {str(path), str(other), str(strange)} <= set(found)


def test_subagents_that_stream_json_does_not_print_are_reported() -> None:
    def printed(one: dict[str, Any], caller: str | None = None) -> dict[str, Any]:
        kept = {key: one[key] for key in ("type", "uuid", "message", "timestamp")}
        result = {"tool_use_result": one["toolUseResult"]} if "toolUseResult" in one else {}
        return {**kept, "session_id": "s1", "parent_tool_use_id": caller, **result}

    own, work = [printed(one) for one in STARTED], [printed(one, "c1") for one in WORK]
    end = [printed(one) for one in returns()]
    whole = load_trace(lines(*own, *work, *end))
    assert (whole.problems, [call.name for call in calls(whole)]) == ((), ["Task", "Bash", "Bash"])
    part = load_trace(lines(*own, *end))
    assert [problem.code for problem in part.problems] == ["unread-content"]
    assert [response.unread for response in responses(part)] == [("*",), ()]

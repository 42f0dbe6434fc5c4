"""tau-bench: a list of trajectories, each a chat with OpenAI's messages and a reward."""

from __future__ import annotations

from typing import Any

from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.record import Record, a_type

_TOLD = ("task_id", "trial", "reward")
"""kept with the session; `info` holds the benchmark's own expectations and is left out"""


class TauReader(ChatReader):
    def read_record(self, record: Record) -> None:
        run = record.value
        if not isinstance(run, dict):
            record.bad("wrong-type", f"a run is an object, not {a_type(run)}")
            return
        messages = run.get("traj")
        if not isinstance(messages, list):
            path = ("traj",) if "traj" in run else ()
            record.bad("wrong-type", "a run has no list `traj`", path)
            return
        told = {key: run[key] for key in _TOLD if key in run}
        self.read_list(record, messages, ("traj",), session=_name(run), metadata=told or None)


def _name(run: dict[str, Any]) -> str | None:
    task, trial = run.get("task_id"), run.get("trial")
    if task is None:
        return None
    return f"task {task}" if trial is None else f"task {task} trial {trial}"

"""tau-bench: a list of trajectories, each a chat with OpenAI's messages and a reward."""

from __future__ import annotations

from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.record import Record

_METADATA = ("task_id", "trial", "reward")
"""stored with the session; `info` holds the benchmark's own expectations and is left out"""


class TauReader(ChatReader):
    def read_record(self, record: Record) -> None:
        run = record.value
        if not record.expect_object("a run", "traj"):
            return
        metadata = {key: run[key] for key in _METADATA if key in run}
        task, trial = run.get("task_id"), run.get("trial")
        name = None if task is None else f"task {task}" if trial is None else f"task {task} trial {trial}"
        self.read_list(record, run["traj"], ("traj",), name, metadata=metadata or None)

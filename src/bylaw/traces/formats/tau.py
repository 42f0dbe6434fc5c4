"""tau-bench: a list of trajectories, each a chat with OpenAI's messages and a reward."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from bylaw.model.events import Event
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.record import Record, records_of
from bylaw.traces.records.lines import Block

_METADATA = ("task_id", "trial", "reward")
"""stored with the session"""


class _Run(TypedDict, total=False):
    """What is read of a run. `info` holds the benchmark's own expectations, and is not even decoded."""

    task_id: Any
    trial: Any
    reward: Any
    traj: Any


_decode = msgspec.json.Decoder(_Run).decode


class TauReader(ChatReader):
    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems, decode_first=_decode):
            self.read_record(record)
        return self._assembler.take()

    def read_record(self, record: Record) -> None:
        run = record.value
        if not record.expect_object("a run", "traj"):
            return
        metadata = {key: run[key] for key in _METADATA if key in run}
        task, trial = run.get("task_id"), run.get("trial")
        name = None if task is None else f"task {task}" if trial is None else f"task {task} trial {trial}"
        self.read_list(record, run["traj"], ("traj",), name, metadata=metadata or None)

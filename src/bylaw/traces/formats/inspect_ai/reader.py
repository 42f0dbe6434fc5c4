"""inspect_ai's logs: `.eval`, an archive with a file a sample, or `.json`, one object with all of them.

A sample is a session. Its events tell of models, tools and agents, and are told as spans are; a log without events
still has each sample's messages. Calls of models inside of a scorer are the judge's and no turns of the agent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bylaw.model.events import Annotation, Event, Origin, SessionStart
from bylaw.traces.formats.chat.reader import ChatReader
from bylaw.traces.formats.inspect_ai.attachments import MOST
from bylaw.traces.formats.inspect_ai.chunks import Chunks
from bylaw.traces.formats.inspect_ai.events import spans_of
from bylaw.traces.formats.inspect_ai.sample import Sample
from bylaw.traces.formats.reader import Opened, Record, a_type, records_of
from bylaw.traces.formats.spans.span import Mark, ModelCall, ToolRun
from bylaw.traces.formats.spans.telling import Telling
from bylaw.traces.formats.spans.tree import Tree
from bylaw.traces.records.archive import entry_names
from bylaw.traces.records.layout import Layout
from bylaw.traces.records.lines import Block
from bylaw.traces.records.place import Place, problem_at
from bylaw.traces.records.problems import Problems

_SAMPLES, _JOURNAL = "samples/", "_journal/"


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("eval"), dict):
        return False
    return "version" in value and ("plan" in value or "status" in value)


class InspectReader(ChatReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.problems, lambda: opened.records.streamed)
        self._chunks = Chunks(entry_names(opened.source) if opened.layout is Layout.ARCHIVE else ())
        self._last: Record | None = None
        self._ended = False
        """the run came to an end, and wrote of it"""

    def read(self, block: Block) -> list[Event]:
        # Scores and the like may be no numbers, and inspect_ai writes them so.
        for record in records_of(block, self._problems, constants=True):
            self._last = record
            self.read_record(record)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        for record, value in self._chunks.rest(self._last) if self._last is not None else ():
            self._sample(record, value, (), cut=True)
        self.complete = self.complete and self._ended
        return super().finish()

    def read_record(self, record: Record) -> None:
        value, item = record.value, record.item
        if self._chunks.is_piece(item):
            whole = self._chunks.take(record)
            if whole is not None:
                self._sample(*whole, ())
        elif not isinstance(value, dict):
            if not item or item.startswith(_SAMPLES):
                record.bad("wrong-type", f"a log is an object, not {a_type(value)}")
        elif item.startswith(_SAMPLES):
            self._sample(record, value, ())
        elif isinstance(value.get("eval"), dict):
            self._log(record, value, journal=item.startswith(_JOURNAL))
        elif not item:
            record.bad("wrong-type", "a log has no object `eval`")

    def _log(self, record: Record, value: dict[str, Any], *, journal: bool) -> None:
        if journal and self._ended:
            return
        self.header = {key: value[key] for key in ("status", "eval", "results") if value.get(key) is not None}
        if journal:  # written when a run starts
            return
        self._ended = True
        self.complete = value.get("status", "success") == "success"
        samples = value.get("samples")
        for index, sample in enumerate(samples if isinstance(samples, list) else ()):
            self._sample(record, sample, ("samples", index))

    def _sample(self, record: Record, value: Any, path: tuple[str | int, ...], *, cut: bool = False) -> None:
        if not isinstance(value, dict) or value.get("id") is None:
            record.bad(
                "wrong-type", "a sample has no `id`" if isinstance(value, dict) else "a sample is an object", path
            )
            return
        source = record.locator(_item(path))
        sample = Sample(value, source, partial(_warn, self._problems, record.place))
        told = {"task_id": value["id"], "epoch": value.get("epoch"), "scores": value.get("scores")}
        metadata = {key: item for key, item in told.items() if item is not None}
        spans = spans_of(sample)
        if not any(isinstance(span.about, (ModelCall, ToolRun)) for span in spans):
            self.read_list(record, sample.conversation, (*path, "messages"), session=sample.name, metadata=metadata)
            return
        self._close()
        lane = self._assembler.lane(self._names.pick(sample.name))
        session = lane.origin.session
        self._assembler.add(SessionStart(origin=lane.origin, source=source, metadata=metadata))
        tree = Tree(spans)
        Telling(self._assembler, self._problems).tell([(span, tree.origin_of(span, session)) for span in tree.spans])
        marks = {span.about.label for span in spans if isinstance(span.about, Mark)}
        for key, label in (("error", "error"), ("limit", "sample_limit")):
            if value.get(key) is None:
                continue
            cut = True
            if label not in marks:
                told_of = Annotation(origin=Origin(session), source=source, label=label, data=value[key])
                self._assembler.add(told_of)
        self._assembler.end_session(lane, complete=not cut)


def _item(path: tuple[str | int, ...]) -> str:
    return f".samples[{path[1]}]" if path else ""


def _warn(problems: Problems, place: int | Place) -> None:
    message = f"a sample names more than {MOST >> 20} MiB of attachments: the others are left as names"
    problems.warn(problem_at(problems.file, place, "", 0, code="too-long", message=message, severity="warning"))

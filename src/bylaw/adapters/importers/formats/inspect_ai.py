"""inspect_ai's logs: `.eval`, an archive with a file a sample, or `.json`, one object with all of them.

A sample is a session. Its events tell of models, tools and agents, and are told as spans are; a log without events
still has each sample's messages. Calls of models inside of a scorer are the judge's and no turns of the agent.
"""

from __future__ import annotations

from typing import Any

from bylaw.adapters.importers.formats.chat.reader import ChatReader
from bylaw.adapters.importers.formats.inspect_events import Sample, spans_of
from bylaw.adapters.importers.formats.reader import Record, a_type
from bylaw.adapters.importers.formats.spans.span import ModelCall, ToolRun
from bylaw.adapters.importers.formats.spans.telling import Telling
from bylaw.adapters.importers.formats.spans.tree import Tree
from bylaw.model.events import Annotation, Origin, SessionStart

_SAMPLES = "samples/"


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("eval"), dict):
        return False
    return "version" in value and ("plan" in value or "status" in value)


class InspectReader(ChatReader):
    def read_record(self, record: Record) -> None:
        value, item = record.value, record.place.item or ""
        if not isinstance(value, dict):
            if not item or item.startswith(_SAMPLES):
                record.bad("wrong-type", f"a log is an object, not {a_type(value)}")
        elif item.startswith(_SAMPLES):
            self._sample(record, value, ())
        elif isinstance(value.get("eval"), dict) and not item.startswith("_journal/"):
            self._header(value)
            samples = value.get("samples")
            for index, sample in enumerate(samples if isinstance(samples, list) else ()):
                self._sample(record, sample, ("samples", index))
        elif not item:
            record.bad("wrong-type", "a log has no object `eval`")

    def _header(self, value: dict[str, Any]) -> None:
        self.header = {key: value[key] for key in ("status", "eval", "results") if value.get(key) is not None}
        self.complete = value.get("status", "success") == "success"

    def _sample(self, record: Record, value: Any, path: tuple[str | int, ...]) -> None:
        if not isinstance(value, dict) or value.get("id") is None:
            record.bad(
                "wrong-type", "a sample has no `id`" if isinstance(value, dict) else "a sample is an object", path
            )
            return
        name = f"sample {value['id']} epoch {value.get('epoch', 1)}"
        told = {"task_id": value["id"], "epoch": value.get("epoch"), "scores": value.get("scores")}
        metadata = {key: item for key, item in told.items() if item is not None}
        sample = Sample(value, record.locator(_item(path)))
        spans = spans_of(sample)
        if not any(isinstance(span.about, (ModelCall, ToolRun)) for span in spans):
            messages = sample.messages(value.get("messages"))
            self.read_list(record, messages or [], (*path, "messages"), session=name, metadata=metadata)
            return
        self._close()
        lane = self._assembler.lane(self._names.pick(name))
        source, session = record.locator(_item(path)), lane.origin.session
        self._assembler.add(SessionStart(origin=lane.origin, source=source, metadata=metadata))
        tree = Tree(spans)
        Telling(self._assembler, self._problems).tell([(span, tree.origin_of(span, session)) for span in tree.spans])
        if value.get("error") is not None:
            origin = Origin(session)
            self._assembler.add(Annotation(origin=origin, source=source, label="error", data=value["error"]))
        self._assembler.end_session(lane)


def _item(path: tuple[str | int, ...]) -> str:
    return f".samples[{path[1]}]" if path else ""

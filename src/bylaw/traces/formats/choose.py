"""The reader for a format, with whatever it has to know of the file beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO

from bylaw.traces.assembly.sessions import Hints, Look, SessionsBy, Survey, survey
from bylaw.traces.formats import agentlog_records as agentlog
from bylaw.traces.formats.agentlog import AgentlogReader
from bylaw.traces.formats.bylaw import lines as bylaw
from bylaw.traces.formats.bylaw.canonical import ResolvedReader
from bylaw.traces.formats.bylaw.handwritten import DraftedReader
from bylaw.traces.formats.bylaw.header import read_header
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.eventlist import EventListReader
from bylaw.traces.formats.record import Opened, Reader
from bylaw.traces.formats.tau import TauReader
from bylaw.traces.records.files import BrokenCompression, Input
from bylaw.traces.records.layout import Layout, Records
from bylaw.traces.records.lines import line_runs
from bylaw.traces.records.problems import Problems


def reader_for(
    format: str, source: Input, layout: Layout, records: Records, problems: Problems, *, verify_ids: bool
) -> Reader:
    if format == "agentlog":
        found = _survey(source, layout, agentlog.look, agentlog.HINTS)
        return AgentlogReader(problems, found, verify_ids=verify_ids)
    if format == "bylaw":
        return _bylaw(source, layout, problems)
    if format == "events":
        return EventListReader(problems, lambda: records.streamed)
    if format in ("openai", "anthropic", "tau"):
        chat = TauReader if format == "tau" else ChatReader
        return chat(problems, lambda: records.streamed)
    from bylaw.traces.formats.catalogue import CATALOGUE

    return CATALOGUE[format].make(Opened(source, layout, records, problems))


def bylaw_header(source: Input, layout: Layout, problems: Problems) -> bylaw.Header:
    ignored = Problems(source.name, skip_bad=True)
    for block in Records(source, layout, ignored).blocks():
        for raw, place in block:
            if raw.strip():
                return read_header(raw, place, problems)
    return bylaw.Header(bylaw.VERSION)


def _bylaw(source: Input, layout: Layout, problems: Problems) -> Reader:
    header = bylaw_header(source, layout, problems)
    if header.resolved:
        return ResolvedReader(problems, header)
    return DraftedReader(problems, header, _survey(source, layout, bylaw.look, bylaw.HINTS))


def _survey(source: Input, layout: Layout, look: Look, hints: Hints) -> Survey:
    with suppress(BrokenCompression):  # told when the file is read
        if layout is Layout.LINES:
            return survey((run for run in line_runs(source.chunks()) if run is not None), look, hints, BytesIO)
        return survey(_records(source, layout), look, hints, lambda record: (record,))
    return Survey(SessionsBy.NOTHING)


def _records(source: Input, layout: Layout) -> Iterator[bytes]:
    ignored = Problems(source.name, skip_bad=True)
    return (raw for block in Records(source, layout, ignored).blocks() for raw, _ in block)

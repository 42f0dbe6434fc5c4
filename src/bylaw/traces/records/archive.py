"""Divide a zip archive into its JSON entries, one at a time, in bounded memory. Zip bombs are refused.

Limits apply to the unpacked data, not to the sizes that the archive claims. Entries may not overlap, or a small file
could name the same data a million times.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from bylaw.traces.records.files import Input
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems

MAGIC = b"PK\x03\x04"
MAX_ENTRY = 256 << 20
"""bytes of one entry, unpacked"""
MOST_ENTRIES = 1 << 20
_SUSPECT = 8 << 20
"""an entry of more bytes than this may not be …"""
_MOST_TIMES = 200
"""… more than this many times its packed size; JSON of real logs stays well below"""
_CHUNK = 1 << 20
_ZSTD = 93
"""zip's number for zstd, which newer logs use and the standard library cannot read"""
_LOCAL_HEADER = 30


def entry_names(source: Input) -> list[str]:
    """The names of an archive's entries; none if it is damaged, which is reported when it is read."""
    try:
        with source.whole() as file:
            return list(dict.fromkeys(zipfile.ZipFile(file).namelist()))
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return []


def archive_blocks(file: IO[bytes], size: int, problems: Problems, *, most: int = MAX_ENTRY) -> Iterator[Block]:
    """One entry per block. Of two entries with one name the last counts. Entries larger than `most` are skipped."""
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        problems.report_file("bad-compression", "the zip archive is damaged, or cut short")
        return
    if len(entries) > MOST_ENTRIES or sum(entry.compress_size for entry in entries) > size:
        problems.report_file("bad-compression", "entries of the zip archive overlap, or are too many")
        return
    for entry in {entry.filename: entry for entry in entries}.values():
        if entry.filename.endswith(".json") and (most == MAX_ENTRY or entry.file_size <= most):
            raw = _unpack(archive, entry, problems)
            if raw is not None:
                yield [(raw, Place(1, 1, entry.filename))]


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, problems: Problems) -> bytes | None:
    parts: list[bytes] = []
    unpacked = 0
    try:
        with _open(archive, entry) as stream:
            while part := stream.read(_CHUNK):
                parts.append(part)
                unpacked += len(part)
                if unpacked > MAX_ENTRY:
                    limit = MAX_ENTRY >> 20
                    problems.report_file("too-long", f"entry `{entry.filename}` is longer than {limit} MiB")
                    return None
                if unpacked > _SUSPECT and unpacked > _MOST_TIMES * max(1, entry.compress_size):
                    message = f"entry `{entry.filename}` unpacks to far more than a log does"
                    problems.report_file("bad-compression", message)
                    return None
    except _archive_errors():
        problems.report_file("bad-compression", f"entry `{entry.filename}` cannot be unpacked")
        return None
    return b"".join(parts)


def _open(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> IO[bytes]:
    if entry.compress_type != _ZSTD:
        return archive.open(entry)
    import zstandard

    file = archive.fp
    assert file is not None
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or not header.startswith(MAGIC):
        raise zipfile.BadZipFile
    name, extra = struct.unpack("<HH", header[26:30])
    file.seek(name + extra, 1)
    packed = file.read(min(entry.compress_size, MAX_ENTRY))
    stream: IO[bytes] = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed)
    return stream


def _archive_errors() -> tuple[type[Exception], ...]:
    import zstandard

    return (zstandard.ZstdError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError)

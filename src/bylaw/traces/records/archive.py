"""Divide a zip archive into its JSON entries, one at a time, in bounded memory. Bombs are refused.

Limits hold for what is unpacked, not for what the archive says of itself. Entries may not overlap, or a small file
could name one stretch of data a million times.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from bylaw.model.diagnostic import Diagnostic
from bylaw.traces.records.files import Input
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems

MAGIC = b"PK\x03\x04"
MAX_ENTRY = 256 << 20
"""bytes of one entry, unpacked"""
MOST_ENTRIES = 1 << 20
_SUSPECT = 8 << 20
"""bytes from which on an entry may not be …"""
_MOST_TIMES = 200
"""… this many times as large as it is packed: JSON of real logs stays well below"""
_CHUNK = 1 << 20
_ZSTD = 93
"""zip's number for zstd, which newer logs use and the standard library does not read"""
_LOCAL_HEADER = 30


def entry_names(source: Input) -> list[str]:
    """What an archive holds; nothing where it is damaged, which is told when it is read."""
    try:
        with source.whole() as file:
            return list(dict.fromkeys(zipfile.ZipFile(file).namelist()))
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return []


def archive_blocks(file: IO[bytes], size: int, problems: Problems, *, most: int = MAX_ENTRY) -> Iterator[Block]:
    """An entry a block. Of two entries with one name the last counts. `most`: larger entries are passed over."""
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        problems.bad(_problem(problems, "bad-compression", "the zip archive is damaged, or cut short"))
        return
    if len(entries) > MOST_ENTRIES or sum(entry.compress_size for entry in entries) > size:
        problems.bad(_problem(problems, "bad-compression", "entries of the zip archive overlap, or are too many"))
        return
    for entry in {entry.filename: entry for entry in entries}.values():
        if entry.filename.endswith(".json") and (most == MAX_ENTRY or entry.file_size <= most):
            raw = _unpack(archive, entry, problems)
            if raw is not None:
                yield [(raw, Place(1, 1, entry.filename))]


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, problems: Problems) -> bytes | None:
    parts: list[bytes] = []
    held = 0
    try:
        with _open(archive, entry) as stream:
            while part := stream.read(_CHUNK):
                parts.append(part)
                held += len(part)
                if held > MAX_ENTRY:
                    limit = MAX_ENTRY >> 20
                    problems.bad(_problem(problems, "too-long", f"entry `{entry.filename}` is longer than {limit} MiB"))
                    return None
                if held > _SUSPECT and held > _MOST_TIMES * max(1, entry.compress_size):
                    message = f"entry `{entry.filename}` unpacks to far more than a log does"
                    problems.bad(_problem(problems, "bad-compression", message))
                    return None
    except _broken():
        problems.bad(_problem(problems, "bad-compression", f"entry `{entry.filename}` cannot be unpacked"))
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


def _broken() -> tuple[type[Exception], ...]:
    import zstandard

    return (zstandard.ZstdError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError)


def _problem(problems: Problems, code: str, message: str) -> Diagnostic:
    return Diagnostic(code=code, message=message, file=problems.file)

"""Bytes both ways, unread: an HTTPS connection of an agent that does not trust our certificates."""

from __future__ import annotations

import asyncio

from bylaw.wire.proxy.http1 import Connection

_CHUNK = 64 * 1024


async def relay(connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until both sides have ended."""
    early = connection.leftover()
    if early:
        writer.write(early)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(connection.reader, writer))
            both.create_task(_copy(reader, connection.writer))
    except* OSError:
        pass  # one side broke off, so the other is closed as well
    finally:
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()

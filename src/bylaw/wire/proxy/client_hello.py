"""The first message of a TLS connection, read without taking it: which protocols does the client want to speak inside?

The proxy speaks HTTP/1.1 inside tunnels that it decrypts. A client that speaks only another protocol, as gRPC does, is
passed through unread instead of broken.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

_HANDSHAKE, _CLIENT_HELLO, _ALPN = 22, 1, 16
_MOST = 64 * 1024
_TRIES = 500
_PAUSE = 0.002


async def speaks_http1(transport: Any) -> bool:
    """Whether the client can speak HTTP/1.1. INVARIANT: the transport is paused, so that nobody else reads."""
    sock: Any = getattr(transport.get_extra_info("socket"), "_sock", None)
    for _ in range(_TRIES if sock is not None else 0):
        try:
            hello = sock.recv(_MOST, socket.MSG_PEEK)
        except BlockingIOError:
            hello = b""
        except OSError:
            return True
        if len(hello) >= 5 and len(hello) >= 5 + int.from_bytes(hello[3:5]):
            offered = protocols_in(hello)
            return offered is None or b"http/1.1" in offered or b"http/1.0" in offered
        await asyncio.sleep(_PAUSE)
    return True


def protocols_in(hello: bytes) -> list[bytes] | None:
    """The protocols that a ClientHello offers (ALPN); None if it offers none, or is no ClientHello."""
    try:
        if hello[0] != _HANDSHAKE or hello[5] != _CLIENT_HELLO:
            return None
        at = 5 + 4 + 2 + 32  # record, handshake, version, random
        at += 1 + hello[at]  # session
        at += 2 + int.from_bytes(hello[at : at + 2])  # ciphers
        at += 1 + hello[at]  # compression
        end = at + 2 + int.from_bytes(hello[at : at + 2])
        at += 2
        while at + 4 <= end:
            kind, length = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
            if kind == _ALPN:
                return _names(hello[at + 6 : at + 4 + length])
            at += 4 + length
    except IndexError:
        # The message is cut off or is no TLS. Such a client counts as one that offers nothing: it is decrypted, and
        # the TLS library, which reads all of it, refuses what is broken.
        return None
    return None


def _names(data: bytes) -> list[bytes]:
    names: list[bytes] = []
    while data:
        names.append(data[1 : 1 + data[0]])
        data = data[1 + data[0] :]
    return names

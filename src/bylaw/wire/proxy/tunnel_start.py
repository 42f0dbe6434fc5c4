"""What a client sends first in a tunnel, read without taking it: which protocol does it want to speak?

The proxy speaks HTTP/1.1, inside TLS or plain. A client that speaks only another protocol, as gRPC does, or that waits
for the server to speak first, is passed through unread instead of broken.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from typing import Any, Literal, TypeAlias

Start: TypeAlias = Literal["tls", "http", "other"]
"""TLS with HTTP/1.1 inside, HTTP/1.1 without TLS, or anything else"""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n"
_HANDSHAKE, _CLIENT_HELLO, _ALPN = 22, 1, 16
_REQUEST = re.compile(rb"[A-Z]{1,20} [^ \r\n]+ HTTP/1\.[01]\r?\n")
_MOST = 64 * 1024
_MOST_LINE = 8 * 1024
_PATIENCE = 10.0
"""seconds without a byte, after which it is the server that speaks first"""
_PAUSE = 0.002


async def read_start(transport: Any) -> Start:
    """INVARIANT: the transport is paused, so that nobody else reads."""
    sock: Any = getattr(transport.get_extra_info("socket"), "_sock", None)
    if sock is None:
        return "tls"
    until = time.monotonic() + _PATIENCE
    data = b""
    while time.monotonic() < until:
        try:
            data = sock.recv(_MOST, socket.MSG_PEEK)
        except BlockingIOError:
            pass
        except OSError:
            break
        start = start_in(data)
        if start is not None:
            return start
        await asyncio.sleep(_PAUSE)
    return "other"


def start_in(data: bytes) -> Start | None:
    """None: more must come before it is known."""
    if not data:
        return None
    if data[0] == _HANDSHAKE:
        if len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5]):
            return None
        offered = protocols_in(data)
        return "tls" if offered is None or b"http/1.1" in offered or b"http/1.0" in offered else "other"
    if b"\n" not in data and len(data) < _MOST_LINE and re.fullmatch(rb"[A-Z]{1,20}(?: [^\r\n]*\r?)?", data):
        return None
    return "http" if _REQUEST.match(data) else "other"


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

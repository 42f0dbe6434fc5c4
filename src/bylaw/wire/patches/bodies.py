"""Request bodies in the many forms that libraries take them in."""

from __future__ import annotations

from typing import Any


def body_bytes(body: Any) -> bytes | None:
    """The whole body. Files and iterators are read, and the bytes take their place."""
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if hasattr(body, "read"):
        return body_bytes(body.read())
    return b"".join(body_bytes(piece) or b"" for piece in body)

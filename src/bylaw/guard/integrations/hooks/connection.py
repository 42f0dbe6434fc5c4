"""How a hook asks the service. It runs for every tool call, so it imports nothing that it may not need."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = ("client", "event", "policy", "store", "agent", "root")
MOST_BYTES = 32 << 20
"""of a payload: an agent may pass on the whole output of a tool"""
PROJECT = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "CURSOR_PROJECT_DIR")
"""environment variables in which agents name the folder of the project"""
VERSION = b"bylaw-hook/2"
SOCKET = "BYLAW_HOOK_SOCKET"
BLOCK = 2
_PATIENCE = 20.0
"""seconds to wait for the service, before this process decides by itself"""
_TO_DECIDE = 5.0
"""seconds of them in which the service only finishes: what it began later could be decided here as well"""
UNTIL = "until"
"""in a request: when the service may begin at the latest, by the clock that all processes share"""


def socket_path() -> str:
    folder = os.environ.get("XDG_RUNTIME_DIR") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get(SOCKET) or os.path.join(folder, "bylaw", "hook.sock")


def is_private(path: str) -> bool:
    """Whether nobody else can have put the socket there."""
    try:
        folder = os.stat(os.path.dirname(path))
    except OSError:
        return False
    return folder.st_uid == os.getuid() and not folder.st_mode & 0o077


def ask_service(payload: bytes, options: Mapping[str, str]) -> tuple[str, str, int] | None:
    """The answer, or None if there is no service, or no answer that makes sense."""
    path = socket_path()
    if not os.path.exists(path) or not is_private(path):
        return None
    import _socket  # `socket` costs a third of a bare start

    try:
        with _Closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(path)
            connection.sendall(request(payload, options))
            connection.shutdown(_socket.SHUT_WR)
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
        return _read_reply(b"".join(parts))
    except (OSError, ValueError):
        return None


class _Closing:
    """`contextlib.closing`, without its import."""

    def __init__(self, connection: object) -> None:
        self._connection = connection

    def __enter__(self):  # type: ignore[no-untyped-def]
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()  # type: ignore[attr-defined]


def request(payload: bytes, options: Mapping[str, str]) -> bytes:
    """The version, the folder, the options, the environment and the time, each ended by NUL, then the payload."""
    named = [f"{UNTIL}={time.monotonic() + _PATIENCE - _TO_DECIDE}".encode()]
    named += [os.fsencode(f"{key}={value}") for key, value in options.items()]
    named += [os.fsencode(f"{name}={os.environ[name]}") for name in PROJECT if name in os.environ]
    head = [VERSION, os.fsencode(os.getcwd()), str(len(named)).encode(), *named]
    return b"\0".join(head) + b"\0" + payload


def _read_reply(reply: bytes) -> tuple[str, str, int]:
    """`CODE LENGTH LENGTH`, then stdout and stderr. Raises ValueError."""
    head, line, rest = reply.partition(b"\n")
    code, out, errors = map(int, head.split())
    if not line or len(rest) != out + errors:
        raise ValueError("the reply is not whole")
    return rest[:out].decode(), rest[out:].decode(), code

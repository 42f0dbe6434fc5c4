"""`bylaw hook`: a command that a coding agent runs around each of its tool calls, with the call as JSON on stdin.

Here is the process that the agent starts: it asks a service if one listens, and else decides by itself. `payloads`
reads what each agent sends and writes what it expects. `run` finds the rules, decides calls and records results.
`service` answers many hooks from one process, and `settings` puts the command into the agent's settings file. A hook
that crashes would let the call run in most agents, so nothing here raises.

Most of a run without a service is imports, so nothing is imported before it is needed, and the process neither collects
garbage nor takes its modules apart when it ends.
"""

from __future__ import annotations

import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def main(arguments: Sequence[str]) -> None:
    """Run the hook and exit at once. Returns if these are not the arguments of a plain hook."""
    options = _plain_options(arguments)
    if options is None:
        return
    gc.disable()
    code = answer_event(options)
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except Exception:  # an answer that was not printed counts as none
        code = BLOCK
    os._exit(code)


def answer_event(options: Mapping[str, str]) -> int:
    """One event, from stdin to stdout. Whatever goes wrong, the exit code is 2."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            if sys.stderr is not None:  # `print` would take stdout, which the client reads
                what = "stdin is closed" if sys.stdin is None else "a coding agent runs this, with an event on stdin"
                from bylaw.report.text import wrap

                shown = f"bylaw: the call is not allowed: {what}; see `bylaw hook --help`"
                print("\n".join(wrap(shown, hanging="  ")), file=sys.stderr)
            return BLOCK
        payload = sys.stdin.buffer.read(MOST_BYTES + 1)
        answer = ask_service(payload, options)
        if answer is None:
            from bylaw.guard.integrations.hooks.run import HookOptions, run_hook

            found = run_hook(payload, HookOptions(folder=os.getcwd(), **options))  # type: ignore[arg-type]
            answer = found.stdout, found.stderr, found.code
        out, errors, code = answer
        if errors and sys.stderr is not None:
            print(errors, file=sys.stderr)
        if out:
            print(out, flush=True)  # without stdout the answer is lost, and with it a question to a person
            return code if sys.stdout is not None else BLOCK
    except (KeyboardInterrupt, Exception) as problem:
        if sys.stderr is not None:
            is_ctrl_c = isinstance(problem, KeyboardInterrupt)
            why = "interrupted" if is_ctrl_c else f"{type(problem).__name__}: {problem}"
            print(f"bylaw: the call is not allowed: {why}", file=sys.stderr)
        return BLOCK
    return code


def _plain_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """`--NAME VALUE` pairs only; everything else, such as a command or `--help`, is left to click."""
    if len(arguments) % 2:
        return None
    options: dict[str, str] = {}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        key = "policy" if name == "-p" else name.removeprefix("--")
        if key not in OPTIONS or not name.startswith("-") or value.startswith("-"):
            return None
        options[key] = value
    if options.get("client", "codex") not in ("claude-code", "codex", "gemini", "cursor", "copilot"):
        return None
    return options


# -- the service -------------------------------------------------------------------------------------------------------


def socket_path() -> str:
    folder = os.environ.get("XDG_RUNTIME_DIR") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get(SOCKET) or os.path.join(folder, "bylaw", "hook.sock")


def is_private(path: str) -> bool:
    """Whether only this user can have created the socket."""
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

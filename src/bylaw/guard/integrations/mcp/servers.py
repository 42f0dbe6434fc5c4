"""Which servers there are, as the command line or a file names them, and MCP over standard streams."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from msgspec import Struct

from bylaw.guard.integrations.json_files import FileProblem, read_object
from bylaw.guard.integrations.mcp.http import HttpServer
from bylaw.guard.integrations.mcp.messages import MOST_BYTES, Message, Send
from bylaw.guard.integrations.mcp.proxy import Connection, Server
from bylaw.guard.integrations.mcp.router import SEPARATOR, Router, split_name

# -- standard streams: one message in each line -----------------------------------------------------------------------

PATIENCE = 5.0
"""seconds that a server has to exit after its input has ended, and again after it was asked to"""
_log = logging.getLogger("bylaw")


class StdioServer:
    """A server that is a process of ours."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, folder: str | None = None
    ) -> None:
        self.command, self._environment, self._folder = list(command), environment, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._write: Send | None = None
        self._reader: threading.Thread | None = None

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        environment = None if self._environment is None else {**os.environ, **self._environment}
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=self._folder
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._write = line_writer(self._process.stdin)
        self._reader = threading.Thread(target=pump, args=(self._process.stdout, receive, ended), daemon=True)
        self._reader.start()

    def send(self, message: Message) -> None:
        assert self._write is not None
        with suppress(BrokenPipeError):  # it has exited, which `ended` reports
            self._write(message)

    def close(self) -> int:
        """Close its input, read the remaining output, and return the exit code."""
        process = self._process
        if process is None or self._reader is None:
            return 0
        assert process.stdin is not None
        with suppress(OSError):  # what was not read by a server that has exited
            process.stdin.close()
        for end in (process.terminate, process.kill):
            try:
                process.wait(PATIENCE)
                break
            except subprocess.TimeoutExpired:
                end()
        self._reader.join(PATIENCE)
        if not self._reader.is_alive() and process.stdout is not None:
            process.stdout.close()
        return process.wait()


def pump(source: IO[bytes], take: Send, ended: Callable[[], object]) -> None:
    """Pass on each line until the source ends, or cannot be passed on any more."""
    try:
        for line in lines(source):
            take(Message(line))
    except BrokenPipeError:
        pass  # the other side has disconnected, so the rest is not needed
    except Exception as problem:  # nothing passes a proxy that no longer works
        _log.error("the connection is closed: %s: %s", type(problem).__name__, problem)
    finally:
        ended()


def lines(source: IO[bytes]) -> Iterator[bytes]:
    while not source.closed and (line := source.readline(MOST_BYTES + 1)):
        if len(line) > MOST_BYTES:
            raise ValueError(f"a message is longer than {MOST_BYTES >> 20} MB")
        if line := line.strip():
            yield line


def line_writer(stream: IO[bytes]) -> Send:
    lock = threading.Lock()

    def write(message: Message) -> None:
        with lock:
            if stream.closed:
                raise BrokenPipeError
            stream.write(message.line + b"\n")
            stream.flush()

    return write


def serve_stdio(make: Callable[[Send], Connection], client: IO[bytes], out: IO[bytes]) -> int:
    """Serve the client on these streams until one side ends. `make` makes the connection, given what writes to the
    client. Returns the exit code of the server. Raises OSError if the server cannot be started."""
    over = threading.Event()
    connection = make(line_writer(out))
    try:
        connection.start(over.set)
        threading.Thread(target=pump, args=(client, connection.from_client, over.set), daemon=True).start()
        over.wait()
    finally:
        code = connection.close()
    return code


# -- which servers there are: from the command line, or from a file with `mcpServers` as clients have it --------------

URL_KEYS = ("url", "httpUrl", "serverUrl")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OTHER_VARIABLE = re.compile(r"\$\{(?!workspaceFolder)[^}]*\}")


class ServerProblem(ValueError):
    """A server cannot be used as it is named; the message says why."""


class ServerSpec(Struct, frozen=True, kw_only=True):
    """One server: a command or a URL."""

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    headers: dict[str, str] = {}
    environment: dict[str, str] = {}
    folder: str | None = None
    is_namespaced: bool = True
    """whether the names of its tools begin with its own"""

    def make(self) -> Server:
        """Raises ValueError for a URL that is none."""
        if self.url is not None:
            return HttpServer(self.url, self.headers)
        return StdioServer(self.command, environment=self.environment, folder=self.folder)


def maker(specs: Sequence[ServerSpec]) -> Callable[[], Server]:
    """Makes the servers of a connection."""
    for spec in specs:
        try:
            spec.make()  # so that a wrong URL is noticed now
        except ValueError as problem:
            raise ServerProblem(str(problem)) from None
    if not specs[0].is_namespaced:
        return specs[0].make
    return lambda: Router({spec.name: spec.make() for spec in specs})


def splitter(specs: Sequence[ServerSpec]) -> Callable[[str], tuple[str, str]]:
    """The server and the name there of a tool, by the name that the client uses."""
    names = frozenset(spec.name for spec in specs)
    if not specs[0].is_namespaced:
        return lambda tool: (specs[0].name, tool)
    return lambda tool: split_name(tool, names) or ("", tool)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or SEPARATOR in name or name.endswith("_") or len(name) > 64:
        # `a_` and `a` could have the same tool `a___pay`
        raise ServerProblem(
            f"`{name}` cannot be the name of a server: letters, digits, `.`, `-` and single `_` between them"
        )
    return name


def default_name(command: Sequence[str], url: str | None) -> str:
    """A name of a server that has none. It is the same as long as the command or the URL is."""
    shown = urlsplit(url).hostname or "server" if url is not None else Path(command[0]).stem
    shown = re.sub(r"[^A-Za-z0-9.-]+", "-", shown).strip("-.") or "server"
    digest = hashlib.sha256("\0".join((*command, url or "")).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{shown[:40]}-{digest}"


def named_server(text: str, headers: Mapping[str, str]) -> ServerSpec:
    """`NAME=COMMAND …` or `NAME=URL`."""
    name, mark, rest = text.partition("=")
    if not mark or not rest.strip():
        raise ServerProblem(f"`{text}`: expected NAME=COMMAND or NAME=URL")
    if rest.startswith(("http://", "https://")):
        return ServerSpec(name=check_name(name), url=rest, headers=dict(headers))
    try:
        command = tuple(shlex.split(rest))
    except ValueError as problem:
        raise ServerProblem(f"`{text}`: {problem}") from None
    return ServerSpec(name=check_name(name), command=command)


def read_header(text: str, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """`NAME=ENV:VARIABLE`: the value is never on the command line, where other users could see it."""
    name, _, value = text.partition("=")
    source, _, variable = value.partition(":")
    if not name or source != "ENV" or not variable:
        raise ServerProblem(f"`{name}=…`: expected NAME=ENV:VARIABLE, with the value in that environment variable")
    if variable not in environment:
        raise ServerProblem(f"`{text}`: the environment variable `{variable}` is not set")
    return name, environment[variable]


def read_config(path: Path, environment: Mapping[str, str] = os.environ) -> list[ServerSpec]:
    """The servers of a file. Raises ServerProblem."""
    if not path.is_file():
        raise ServerProblem(f"there is no file `{path}`")
    try:
        found, _ = read_object(path)
    except FileProblem as problem:
        raise ServerProblem(str(problem)) from None
    specs = [
        _entry(plain_name(name), entry, path, environment)
        for table in server_tables(found)
        for name, entry in table.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    ]
    names = [spec.name for spec in specs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ServerProblem(f"`{path}` names two servers `{repeated}`")
    if not specs:
        raise ServerProblem(f"`{path}` names no server in `mcpServers`")
    return specs


def server_tables(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Where clients have their servers: `mcpServers`, `servers` (VS Code), and those of projects (Claude Code)."""
    projects = config.get("projects")
    places = [config, config.get("mcp"), *(projects.values() if isinstance(projects, dict) else ())]
    for place in places:
        for key in ("mcpServers", "servers"):
            if isinstance(place, dict) and isinstance(place.get(key), dict):
                yield place[key]


def plain_name(name: str) -> str:
    """The name as tools can have it in theirs."""
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9._-]+", "-", name)).strip("-._")[:64].rstrip("-._") or "server"


def plain_names(names: Collection[str]) -> dict[str, str]:
    """The plain name of each. Where two would be the same, those that had to be changed end with a digest."""
    plain = {name: plain_name(name) for name in names}
    shared = Counter(plain.values())
    for name, found in plain.items():
        if shared[found] > 1 and found != name:
            digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            plain[name] = f"{found[:55].rstrip('-._')}-{digest}"
    return plain


def url_of(entry: Mapping[str, Any]) -> str | None:
    """The URL of a server; None if it has a command. Clients differ in what they use of several, so that one alone
    has to be there. Raises ServerProblem."""
    given = [key for key in ("command", *URL_KEYS) if entry.get(key) is not None]
    if not given:
        raise ServerProblem("it has neither a command nor a URL")
    if len(given) > 1:
        raise ServerProblem(f"it has both `{given[0]}` and `{given[1]}`")
    if not isinstance(found := entry[given[0]], str):
        raise ServerProblem(f"its `{given[0]}` is not text")
    return None if given[0] == "command" else found


def _entry(name: str, entry: Any, path: Path, environment: Mapping[str, str]) -> ServerSpec:
    try:
        text: Callable[[Any], str] = lambda value: _expand(value, environment)  # noqa: E731
        if (url := url_of(entry)) is not None:
            headers = {key: text(value) for key, value in (entry.get("headers") or {}).items()}
            return ServerSpec(name=name, url=text(url), headers=headers)
        command = (text(entry["command"]), *map(text, entry.get("args") or ()))
        variables = {key: text(value) for key, value in (entry.get("env") or {}).items()}
        folder = text(entry["cwd"]) if entry.get("cwd") is not None else None
        return ServerSpec(name=name, command=command, environment=variables, folder=folder)
    except (TypeError, AttributeError):
        why = "it has neither a command nor a URL" if not isinstance(entry, dict) else "a value is not of its type"
        raise ServerProblem(f"`{path}`: the server `{name}`: {why}") from None
    except ServerProblem as problem:
        raise ServerProblem(f"`{path}`: the server `{name}`: {problem}") from None


def _expand(value: Any, environment: Mapping[str, str]) -> str:
    """`${NAME}`, `${env:NAME}` and `${NAME:-default}` stand for environment variables."""
    if not isinstance(value, str):
        raise TypeError

    def find(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name not in environment and default is None:
            raise ServerProblem(f"the environment variable `{name}` is not set")
        return environment.get(name, default or "")

    if (other := _OTHER_VARIABLE.search(_VARIABLE.sub("", value))) is not None:
        raise ServerProblem(f"only the client knows what `{other[0]}` is")
    return _VARIABLE.sub(find, value)

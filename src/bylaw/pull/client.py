"""Asks the API of a service: JSON over HTTP, with retries, and errors that name the variable to look at."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from bylaw.errors import BylawError, ExitCode
from bylaw.wire.client import BadHttpReply, CutHttpReply, HttpUnreachable, UnusableProxy, fetch, proxy_for
from bylaw.wire.exchange import Incoming as Reply

SECONDS = 120.0
"""for one request"""
MOST_BYTES = 256 * 1024**2
BACK_OFF = (1.0, 2.0, 4.0, 8.0)
"""seconds before each retry, if the service does not name them"""
LONGEST_WAIT = 60.0
MOST_REPEATED = 10
"""pages in a row without a new record: traces that arrive meanwhile move others to the next page"""
_PASSING = frozenset((429, 502, 503, 504))
_NOT_THERE = frozenset((404, 410, 501))
_QUOTED = 200
_OWN_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))
"""no proxy can reach what only this machine can"""


class PullError(BylawError):
    """The environment or the service does not let us read."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Source(Protocol):
    texts: frozenset[str]
    """the fields of a row that hold messages, which are redacted"""
    client: Client

    def traces(self, since: datetime | None) -> Iterator[str]:
        """The ids of traces, the newest first. One may come again, if others arrive meanwhile. Raises PullError."""

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The lines of the file for these traces, each trace whole. Raises PullError."""


def variable(environment: Mapping[str, str], *names: str, default: str | None = None) -> str:
    """The first variable that is set. Raises PullError if none is and there is no default."""
    for name in names:
        if value := environment.get(name, "").strip():
            if not value.isascii() or not value.isprintable():
                raise PullError(f"the variable {name} holds characters that no address and no header can carry")
            return value
    if default is None:
        raise PullError(f"the variable {names[0]} is not set")
    return default


def basic(user: str, password: str) -> str:
    """The value of the header `authorization`."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def proxy_of(address: str) -> str | None:
    """The proxy for a server, as the environment names it."""
    parts = urlsplit(address)
    secure, host = parts.scheme == "https", parts.hostname or ""
    try:
        found = None if host in _OWN_HOSTS else proxy_for(host, parts.port or (443 if secure else 80), secure=secure)
    except UnusableProxy as problem:
        raise PullError(str(problem)) from None
    return None if found is None else found.geturl()


class Client:
    def __init__(
        self, service: str, address: str, headers: Mapping[str, str], *, address_in: str, keys_in: str
    ) -> None:
        """`address_in`, `keys_in`: the variables that hold the address and the keys, for messages."""
        parts = urlsplit(address if "://" in address else f"https://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PullError(f"the variable {address_in} does not hold the address of a server, such as https://host")
        self.service = service
        self._address_in, self._keys_in = address_in, keys_in
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._headers = {"accept": "application/json", "user-agent": "bylaw", **headers}
        if parts.username:
            self._headers.setdefault("authorization", basic(parts.username, parts.password or ""))
        self._proxy = proxy_of(self._base)
        self.sleep: Callable[[float], None] = time.sleep
        self.missing: list[PathNotFound] = []
        """one for each trace that was listed, and no longer there when it was fetched"""

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Parameters that are None are left out; a list is repeated."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        return self._object(self._ask("GET", f"{path}?{urlencode(given, doseq=True)}" if given else path))

    def get_list(self, path: str, params: Mapping[str, Any]) -> list[Any]:
        return self.listed({"": self._decode_reply(self._ask("GET", f"{path}?{urlencode(params)}"))}, "")

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """For APIs whose queries are POSTs. Fields that are None are left out."""
        given = msgspec.json.encode({key: value for key, value in body.items() if value is not None})
        return self._object(self._ask("POST", path, given))

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        headers = {**self._headers, **({"content-type": "application/json"} if body is not None else {})}
        for wait in (*BACK_OFF, None):
            try:
                reply = fetch(
                    method,
                    self._base + path,
                    headers,
                    body=body,
                    seconds=SECONDS,
                    name=self.service,
                    most=MOST_BYTES,
                    proxy=self._proxy,
                )
            except (TimeoutError, CutHttpReply) as problem:
                if wait is None:
                    raise PullError(str(problem), ExitCode.OUT_OF_REACH) from None
                self.sleep(wait)
                continue
            except (HttpUnreachable, BadHttpReply) as problem:
                raise PullError(f"{problem} ({self._address_in})", ExitCode.OUT_OF_REACH) from None
            if reply.status == 200:
                return reply
            wait = _named_wait(reply, wait) if wait is not None else None
            if reply.status not in _PASSING or wait is None:
                break
            self.sleep(wait)
        raise self._refusal(reply, path.partition("?")[0])

    def _refusal(self, reply: Reply, path: str) -> PullError:
        status, service = reply.status, self.service
        if status in (401, 403):
            return PullError(f"{service} refuses the credentials in {self._keys_in} (status {status})")
        if status in _NOT_THERE:
            place = f"`{self._base}{path}` (status {status})"
            return PathNotFound(f"{service} has nothing at {place}; is {self._address_in} right?")
        if 300 <= status < 400:
            return PullError(f"{service} redirects to another address; set {self._address_in} to that one")
        if status == 429:
            return PullError(f"{service} limits how often it may be asked; try again later", ExitCode.OUT_OF_REACH)
        text = " ".join(reply.body[: _QUOTED * 4].decode("utf-8", "replace").split())[:_QUOTED]
        code = ExitCode.OUT_OF_REACH if status >= 500 else ExitCode.BAD_INPUT
        return PullError(f"{service} answered with status {status}{f': {text}' if text else ''}", code)

    def _decode_reply(self, reply: Reply) -> Any:
        try:
            return msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise PullError(f"{self.service}'s reply is not JSON; is {self._address_in} right?") from None

    def _object(self, reply: Reply) -> dict[str, Any]:
        found = self._decode_reply(reply)
        if not isinstance(found, dict):
            raise PullError(f"{self.service}'s reply is not an object; is {self._address_in} right?")
        return found

    def listed(self, reply: Mapping[str, Any], key: str, *, is_optional: bool = False) -> list[dict[str, Any]]:
        """The objects of a page. Raises PullError. `is_optional`: the service leaves out a list that is empty."""
        found = reply.get(key)
        if found is None and is_optional:
            return []
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            what = f"`{key}` is" if key else "it is"
            raise PullError(f"{self.service}'s reply is not understood: {what} not a list of objects")
        return found

    def ids(self, rows: Sequence[Any], *keys: str) -> list[str]:
        """The first of these fields that each row has. Raises PullError."""
        found = [id_of(row, *keys) for row in rows]
        if None in found:
            named = " or ".join(f"`{key}`" for key in keys)
            raise PullError(f"{self.service}'s reply is not understood: a record has no {named}")
        return [one for one in found if one is not None]

    def pages(
        self, ask: Callable[[Any], tuple[list[dict[str, Any]], Any]], *keys: str
    ) -> Iterator[list[dict[str, Any]]]:
        """The pages of a list. `ask` takes a cursor, and returns a page and the next cursor; `keys` name a record.

        Raises PullError for a service that sends the same records again and again.
        """
        seen: set[str] = set()
        cursor, repeated = None, 0
        while repeated < MOST_REPEATED:
            rows, cursor = ask(cursor)
            yield rows
            if not cursor:
                return
            before = len(seen)
            seen.update(msgspec.json.encode([row.get(key) for key in keys]).decode() for row in rows)
            repeated = repeated + 1 if len(seen) == before else 0
        raise PullError(f"{self.service} sends the same page again and again", ExitCode.OUT_OF_REACH)

    def rows_of(self, trace: str, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The rows of a trace; if there are none, it is missing."""
        first = next(rows, None)
        if first is None:
            message = f"{self.service} has no record of the trace `{trace}`"
            self.missing.append(PathNotFound(message, ExitCode.NOTHING_CHECKED))
            return
        yield first
        yield from rows


class PathNotFound(PullError):
    """The server does not have this path, or no longer."""


def _named_wait(reply: Reply, default: float) -> float | None:
    """The seconds that the service asks to wait; None if they are too many."""
    named = reply.headers.get("retry-after", "").strip()
    wait = float(named) if named.isdecimal() else default
    return wait if wait <= LONGEST_WAIT else None


def id_of(row: Any, *keys: str) -> str | None:
    """The first of these fields that a row has."""
    fields = row if isinstance(row, dict) else {}
    return next((fields[key] for key in keys if isinstance(fields.get(key), str) and fields[key]), None)

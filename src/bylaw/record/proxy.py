"""The proxy between a recorded command and its models. It changes nothing.

Requests to the addresses in the child's environment and plain HTTP are recorded. HTTPS is decrypted only for hosts that
are known to serve models, or that were named; every other tunnel passes unread and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase

from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.child_environment import MODEL_HOSTS
from bylaw.wire.proxy.server import Proxy

SESSION = "x-bylaw-session"
"""a header in which a program can name the session of a request; the proxy does not pass it on"""


class RecordingProxy(Proxy):
    def __init__(
        self, recording: Recording, *, upstreams: Mapping[str, str], authority: Authority, hosts: tuple[str, ...]
    ) -> None:
        super().__init__(upstreams=upstreams, authority=authority)
        self._recording = recording
        self._hosts = (*MODEL_HOSTS, *(host.lower() for host in hosts))
        self.unread: Counter[str] = Counter()
        """tunnels that were not decrypted, by host"""
        self.passed: Counter[str] = Counter()
        """connections in protocols that cannot be recorded, such as `a web socket to example.com`"""
        self.refused: Counter[str] = Counter()
        """tunnels that were decrypted and whose client did not trust the certificate, by host"""
        self.turned_away: Counter[str] = Counter()
        """requests that the proxy could not serve, by the reason"""

    def begin(self, request: Outgoing) -> Exchange:
        session = request.headers.pop(SESSION, None)
        return self._recording.listen(Exchange(request), session=session or None)

    def decrypts(self, host: str) -> bool:
        if host in self.refused:  # a client that does not trust us gets through unread from now on
            return False
        return any(fnmatchcase(host.lower(), known) for known in self._hosts)

    def on_unread(self, host: str, what: str) -> None:
        if what == "HTTPS":
            self.unread[host] += 1
        else:
            self.passed[f"{what} to {host}"] += 1

    def on_tls_refused(self, host: str, token: str | None) -> None:
        self.refused[host] += 1

    def on_refused(self, why: str) -> None:
        self.turned_away[why] += 1

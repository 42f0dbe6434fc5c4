"""The proxy between a recorded command and its models. It changes nothing, and looks only into what is a model's.

Requests to the addresses in the child's environment and plain HTTP are heard by themselves. Of HTTPS it opens only the
tunnels to hosts that are known to serve models, or that were named; every other tunnel passes unread and is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from fnmatch import fnmatchcase

from bylaw.record.command.beyond import connect_beyond, tunnel_beyond
from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.runs import ProxiedRun
from bylaw.wire.proxy.server import ChaosProxy
from bylaw.wire.proxy.upstream import Reply, fetch

HOSTS = (
    "api.openai.com",
    "api.anthropic.com",
    "*.openai.azure.com",
    "*.services.ai.azure.com",
    "api.deepseek.com",
    "api.fireworks.ai",
    "api.groq.com",
    "api.mistral.ai",
    "api.together.xyz",
    "api.x.ai",
    "openrouter.ai",
)
"""hosts that serve models in one of the formats that are recorded"""
SESSION = "x-bylaw-session"
"""a header by which a program can name the session of a request; it goes no further than the proxy"""


class RecordingProxy(ChaosProxy):
    def __init__(
        self, recording: Recording, *, upstreams: Mapping[str, str], authority: Authority, hosts: tuple[str, ...]
    ) -> None:
        super().__init__(upstreams=upstreams, authority=authority)
        self._recording = recording
        self._hosts = (*HOSTS, *(host.lower() for host in hosts))
        self.unread: Counter[str] = Counter()
        """tunnels that were not opened, by host"""
        self.refused: Counter[str] = Counter()
        """those that were, and whose client did not trust the certificate"""

    def _begin(self, run: ProxiedRun | None, request: Outgoing) -> Exchange:
        session = request.headers.pop(SESSION, None)
        return self._recording.listen(Exchange(request), session=session or None)

    def _fetch(self, request: Outgoing) -> AbstractAsyncContextManager[Reply]:
        return fetch(request, by=connect_beyond)

    def _opens(self, host: str) -> bool:
        opens = any(fnmatchcase(host.lower(), known) for known in self._hosts)
        if not opens:
            self.unread[host] += 1
        return opens

    def _refused(self, host: str, token: str | None) -> None:
        self.refused[host] += 1

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await tunnel_beyond(host, port)

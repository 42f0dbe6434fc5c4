"""Answers requests to a model from a script, in the format they came in, streamed where they ask for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bylaw.contract.live.scripted.replies import written
from bylaw.contract.live.scripted.script import Script, load_script
from bylaw.wire.exchange import Incoming, Outgoing
from bylaw.wire.formats import model_call
from bylaw.wire.formats.base import json_reply
from bylaw.wire.proxy.upstream import Reply

_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class ScriptedUpstream:
    def __init__(self, script: Script) -> None:
        self._script = script

    @classmethod
    def load(cls, path: Path) -> ScriptedUpstream:
        return cls(load_script(path))

    @asynccontextmanager
    async def fetch(self, request: Outgoing) -> AsyncIterator[Reply]:
        yield self.answer(request)

    def answer(self, request: Outgoing) -> ScriptedAnswer:
        asked = model_call(request)
        if asked is None:
            message = f"the scripted model knows no `{request.method} {request.url}`"
            return ScriptedAnswer.of(json_reply(404, {"error": {"message": message, "type": "not_found_error"}}))
        wire, body = asked
        reply = self._script.reply_to(wire, body)
        if reply is None:
            return ScriptedAnswer.of(wire.error(400, "no reply of the script fits this request"))
        said = written(wire.name, reply, body)
        if body.get("stream") is True:
            return ScriptedAnswer(200, _STREAM, wire.streamed(said))
        return ScriptedAnswer(200, {"content-type": "application/json"}, [msgspec.json.encode(said)])


class ScriptedAnswer:
    """Satisfies `upstream.Reply`."""

    def __init__(self, status: int, headers: dict[str, str], parts: list[bytes]) -> None:
        self.status = status
        self.headers = list(headers.items())
        self._parts = parts

    @classmethod
    def of(cls, reply: Incoming) -> ScriptedAnswer:
        return cls(reply.status, reply.headers, [reply.body])

    async def body(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part

    def close(self) -> None:
        pass

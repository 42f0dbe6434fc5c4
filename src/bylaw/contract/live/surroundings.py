"""What an agent that Bylaw does not run itself lives in: the proxy around it, and the environment that leads there."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from bylaw.contract.faults import AnyFault
from bylaw.contract.live.mcp import bridge
from bylaw.contract.live.mcp.listing import list_tools
from bylaw.contract.live.reach import refusal
from bylaw.contract.model import AgentSpec
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.runs import ProxiedRun
from bylaw.wire.proxy.server import ChaosProxy

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]", "*")


class Surroundings:
    """The proxy of one agent, or none where nothing leads the agent to it."""

    def __init__(self, spec: AgentSpec, base: Path) -> None:
        self._spec = spec
        self._base = base
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        """holds the certificate of the authority"""
        self._tools: frozenset[str] | None = frozenset()
        self.proxy: ChaosProxy | None = None

    @property
    def is_proxied(self) -> bool:
        return bool(self._spec.command) or self._spec.proxy_port is not None

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        if not self.is_proxied:
            return
        spec = self._spec
        self.proxy = ChaosProxy(
            upstreams=spec.upstreams,
            mcp=spec.mcp,
            base=self._base,
            port=spec.proxy_port,
            authority=self._authority() if spec.trusts_ca else None,
        )
        await self.proxy.start()
        self._tools = await list_tools(spec.mcp, self._base)

    async def stop(self) -> None:
        if self.proxy is not None:
            await self.proxy.stop()
            self.proxy = None
        if self._folder is not None:
            self._folder.cleanup()

    def _authority(self) -> Authority:
        if not self._spec.command:  # its owner starts the agent, which must trust the authority before we run
            return Authority.kept(self._base / ".bylaw")
        self._folder = tempfile.TemporaryDirectory(prefix="bylaw-")
        return Authority.new(Path(self._folder.name))

    def refusal(self, fault: AnyFault) -> str | None:
        return refusal(fault, self._spec, tools=self._tools, is_proxied=self.is_proxied)

    def environment(self, run: ProxiedRun | None = None) -> dict[str, str]:
        """The variables of a command; with a run, those that name it in every request."""
        assert self.proxy is not None
        url = self.proxy.url(run)
        parts = urlsplit(url)
        forward = f"http://run:{run.token}@{parts.netloc}" if run is not None else url
        env = {**os.environ, "BYLAW_PROXY": url}
        env |= {"OPENAI_BASE_URL": f"{url}/openai/v1", "OPENAI_API_BASE": f"{url}/openai/v1"}
        env["ANTHROPIC_BASE_URL"] = f"{url}/anthropic"
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            env |= {name: forward, name.lower(): forward}
        kept = _without_loopback(env.get("NO_PROXY") or env.get("no_proxy") or "")
        env |= {"NO_PROXY": kept, "no_proxy": kept}
        if self.proxy.authority is not None:
            env |= self.proxy.authority.environment()
        for provider in ("openai", "anthropic"):
            if self._spec.upstreams.get(provider, "").endswith((".yaml", ".yml", ".json")):
                env.setdefault(f"{provider.upper()}_API_KEY", "scripted")
        return {**env, **self._mcp(url), **self._spec.env}

    def _mcp(self, url: str) -> dict[str, str]:
        told: dict[str, str] = {}
        for server in self._spec.mcp:
            name = "BYLAW_MCP_" + re.sub(r"\W", "_", server.name).upper()
            if server.url is not None:
                told[f"{name}_URL"] = f"{url}/mcp/{server.name}"
            else:
                told[f"{name}_COMMAND"] = shlex.join((sys.executable, str(bridge.__file__), server.name))
        return told

    @property
    def folder(self) -> Path:
        """Where the command starts."""
        return self._base / (self._spec.cwd or "")


def _without_loopback(no_proxy: str) -> str:
    """Requests to tools on this machine must pass the proxy too."""
    return ",".join(name for part in no_proxy.split(",") if (name := part.strip()) and name not in _LOOPBACK)

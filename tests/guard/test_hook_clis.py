"""The hook in the real Claude Code, Codex, Gemini CLI and Copilot CLI, each with a scripted model on this machine.

Needs the commands `claude`, `codex`, `gemini` and `copilot`, or BYLAW_CLAUDE, BYLAW_CODEX, BYLAW_GEMINI and
BYLAW_COPILOT with their paths: `npm install --prefix /tmp/clis @anthropic-ai/claude-code @openai/codex
@google/gemini-cli @github/copilot`. No account is needed, and nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.guard import Guard
from bylaw.guard.integrations.hooks import settings
from bylaw.guard.integrations.hooks.payloads import Client

pytestmark = pytest.mark.proof
RULES = """
guard:
  mode: hitl
  rules:
    - {id: no-force, when: {arg_regex: {path: command, pattern: 'push.*--force'}}, then: block, reason: no force pushes}
    - {id: ask, when: {arg_regex: {path: command, pattern: deploy}}, then: pause, reason: a deployment}
"""


class Model(ThreadingHTTPServer):
    """Calls the shell once with this command, then says that it has finished."""

    command = ""
    results: list[Any]
    """what it was told about its call"""


class _Answers(BaseHTTPRequestHandler):
    """The streams of three providers, as their APIs send them."""

    server: Model

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._reply("application/json", b'{"data": [], "models": []}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        if self.path.startswith("/v1beta"):
            self._gemini(body)
        elif self.path.endswith("/responses"):
            self._openai(body)
        else:
            self._anthropic(body)

    def _anthropic(self, body: dict[str, Any]) -> None:
        content = body.get("messages", [{}])[-1].get("content")
        results = [one for one in content if one["type"] == "tool_result"] if isinstance(content, list) else []
        self.server.results += [one["content"] for one in results]
        shell = next((tool["name"] for tool in body.get("tools", ()) if tool.get("name") in ("Bash", "bash")), None)
        calls = not results and shell is not None
        given = json.dumps({"command": self.server.command, "description": "x"})
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": "finished"}
        if calls:
            block = {"type": "tool_use", "id": "toolu_1", "name": shell, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": given}
        message: dict[str, Any] = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
        }
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        self._events(
            {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        )

    def _openai(self, body: dict[str, Any]) -> None:
        results = [one["output"] for one in body.get("input", ()) if one.get("type") == "function_call_output"]
        self.server.results += results
        tools = {tool.get("name") for tool in body.get("tools", ())}
        name, given = "shell", {"command": ["sh", "-c", self.server.command]}
        if "exec_command" in tools:
            name, given = "exec_command", {"cmd": self.server.command}  # type: ignore[dict-item]
        elif "shell_command" in tools:
            name, given = "shell_command", {"command": self.server.command}  # type: ignore[dict-item]
        item: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "id": "m1",
            "content": [{"type": "output_text", "text": "finished"}],
        }
        if not results:
            item = {"type": "function_call", "call_id": "call_1", "name": name, "arguments": json.dumps(given)}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        self._events(
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r1", "output": [item], "usage": usage}},
        )

    def _gemini(self, body: dict[str, Any]) -> None:
        if "countTokens" in self.path:
            self._reply("application/json", b'{"totalTokens": 1}')
            return
        last = body.get("contents", [{}])[-1].get("parts", [])
        results = [part["functionResponse"]["response"] for part in last if "functionResponse" in part]
        self.server.results += results
        tools = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
        part: dict[str, Any] = {"text": "finished"}
        if not results and any(tool["name"] == "run_shell_command" for tool in tools):
            part = {"functionCall": {"name": "run_shell_command", "args": {"command": self.server.command}}}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        if "streamGenerateContent" in self.path:
            self._reply("text/event-stream", f"data: {json.dumps(answer)}\r\n\r\n".encode())
        else:
            self._reply("application/json", json.dumps(answer).encode())

    def _events(self, *events: dict[str, Any]) -> None:
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._reply("text/event-stream", text.encode())

    def _reply(self, kind: str, text: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(("127.0.0.1", 0), _Answers) as server:
        server.results = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def command_of(client: Client, url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    """How the client is started for one prompt, without its own questions; and its environment."""
    name = {"claude-code": "claude"}.get(client, client)
    program = os.environ.get(f"BYLAW_{name.upper()}") or shutil.which(name)
    if program is None:
        pytest.skip(f"there is no command `{name}`")
    match client:
        case "claude-code":
            return [program, "-p", "go on", "--allowedTools", "Bash", "--max-turns", "3"], {
                "CLAUDE_CONFIG_DIR": str(home / ".claude"),
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            }
        case "codex":
            provider = {"name": "fake", "base_url": f"{url}/v1", "env_key": "FAKE_KEY", "wire_api": "responses"}
            options = [f"model_providers.fake.{key}={json.dumps(value)}" for key, value in provider.items()]
            flags = ["--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
            given = [word for option in ["model_provider=fake", "model=fake", *options] for word in ("-c", option)]
            (home / ".codex").mkdir()
            return [program, "exec", "--skip-git-repo-check", *flags, *given, "go on"], {
                "CODEX_HOME": str(home / ".codex"),
                "FAKE_KEY": "none",
            }
        case "copilot":
            return [program, "-p", "go on", "--allow-all-tools", "--no-auto-update"], {
                "COPILOT_HOME": str(home / ".copilot"),
                "COPILOT_OFFLINE": "true",
                "COPILOT_ALLOW_ALL": "true",
                "COPILOT_PROVIDER_BASE_URL": url,
                "COPILOT_PROVIDER_TYPE": "anthropic",
                "COPILOT_PROVIDER_API_KEY": "none",
                "COPILOT_MODEL": "claude-sonnet-4",
            }
        case _:
            auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": False}}
            (home / ".gemini").mkdir()
            (home / ".gemini/settings.json").write_text(json.dumps(auth))
            return [program, "-p", "go on", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"], {
                "GEMINI_API_KEY": "none",
                "GOOGLE_GEMINI_BASE_URL": url,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            }


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "copilot"])
@pytest.mark.parametrize(
    ("command", "path", "runs", "said"),
    [
        ("touch ran", None, True, None),
        ("touch ran; git push --force", None, False, "no force pushes"),
        ("touch ran; echo deploy", None, False, "waiting for a person: review-"),
        ("touch ran", "/usr/local/bin:/usr/bin:/bin", False, "bylaw"),
    ],
    ids=["allowed", "blocked", "paused", "bylaw is missing"],
)
def test_the_hook_decides(
    tmp_path: Path, model: Model, client: Client, command: str, path: str | None, runs: bool, said: str | None
) -> None:
    model.command = command
    project, shown = run_client(client, model, tmp_path, **({} if path is None else {"PATH": path}))
    assert (project / "ran").exists() is runs, shown
    assert len(model.results) == 1, shown
    if client == "copilot" and path is not None:  # it does not pass on stderr
        said = "hook exited with code 2"
    assert said is None or said in str(model.results), (model.results, shown)
    if path is None:
        with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
            kinds = [row.kind for row in guard.store.events()]
            assert "decision" in kinds and ("result" in kinds) is runs
            assert kinds[-1] == "session" or client == "codex", "codex does not say when a session ends"


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "copilot"])
def test_a_session_starts_the_service(tmp_path: Path, model: Model, client: Client) -> None:
    path, model.command = tmp_path / "run" / "s", "touch ran"
    project, shown = run_client(client, model, tmp_path, is_served=True, BYLAW_HOOK_SOCKET=str(path))
    assert (project / "ran").exists(), shown
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        os.kill(struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0], signal.SIGTERM)


def run_client(
    client: Client, model: Model, folder: Path, *, is_served: bool = False, **environment: str
) -> tuple[Path, str]:
    """The project, after one prompt, and what the client has printed."""
    project, home = folder / "project", folder / "home"
    project.mkdir()
    home.mkdir()
    (project / "bylaw.yaml").write_text(RULES)
    arguments, own = command_of(client, f"http://127.0.0.1:{model.server_port}", home)
    where = settings.settings_file(client, "user", home) if client == "codex" else None
    settings.install(client, where or settings.settings_file(client, "project", project), serve=is_served)
    own |= {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    done = subprocess.run(
        arguments, cwd=project, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=False
    )
    return project, (done.stdout + done.stderr).decode("utf-8", "replace")[-3000:]

"""The hook in the real Claude Code, with a scripted model. Needs the command `claude`, or BYLAW_CLAUDE with its path:
`npm install --prefix /tmp/claude @anthropic-ai/claude-code`. No account is needed, and nothing leaves the machine."""

from __future__ import annotations

import json
import os
import shutil
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

CLAUDE = os.environ.get("BYLAW_CLAUDE") or shutil.which("claude")
pytestmark = [pytest.mark.proof, pytest.mark.skipif(CLAUDE is None, reason="there is no command `claude`")]
RULES = """
guard:
  mode: hitl
  rules:
    - {id: no-force, when: {arg_regex: {path: command, pattern: 'push.*--force'}}, then: block, reason: no force pushes}
    - {id: ask, when: {arg_regex: {path: command, pattern: deploy}}, then: pause, reason: a deployment}
"""


class Model(ThreadingHTTPServer):
    """Calls `Bash` once with this command, then says that it has finished."""

    command = ""
    results: list[Any]


class _Answers(BaseHTTPRequestHandler):
    server: Model

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        content = body.get("messages", [{}])[-1].get("content")
        results = [one for one in content if one["type"] == "tool_result"] if isinstance(content, list) else []
        self.server.results += results
        calls = not results and any(tool.get("name") == "Bash" for tool in body.get("tools", ()))
        given = json.dumps({"command": self.server.command, "description": "x"})
        block = (
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
            if calls
            else {"type": "text", "text": ""}
        )
        delta = (
            {"type": "input_json_delta", "partial_json": given} if calls else {"type": "text_delta", "text": "finished"}
        )
        message: dict[str, Any] = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
        }
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        self._send(
            {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        )

    def _send(self, *events: dict[str, Any]) -> None:
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
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


@pytest.mark.parametrize(
    ("command", "path", "runs", "said"),
    [
        ("touch ran", None, True, None),
        ("touch ran; git push --force", None, False, "no force pushes"),
        ("touch ran; echo deploy", None, False, "waiting for a person: review-"),
        ("touch ran", "/usr/bin:/bin", False, "bylaw"),
    ],
    ids=["allowed", "blocked", "paused", "bylaw is missing"],
)
def test_claude_code(
    tmp_path: Path, model: Model, command: str, path: str | None, runs: bool, said: str | None
) -> None:
    assert CLAUDE is not None
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "bylaw.yaml").write_text(RULES)
    settings.install("claude-code", project / ".claude/settings.json")
    model.command = command
    environment = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "PATH": path or f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_port}",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    arguments = [CLAUDE, "-p", "go on", "--allowedTools", "Bash", "--max-turns", "3"]
    subprocess.run(arguments, cwd=project, env=environment, stdin=subprocess.DEVNULL, timeout=120, check=False)
    assert (project / "ran").exists() is runs
    [result] = model.results
    assert bool(result.get("is_error")) is not runs
    assert said is None or said in str(result["content"])
    if path is None:
        with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
            kinds = [row.kind for row in guard.store.events()]
            assert ("result" in kinds) is runs and kinds[-1] == "session"

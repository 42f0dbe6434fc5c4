"""Serves one agent of the shop: `agents.py NAME PORT`.

POST `{"input": prompt}` to `/chat`; POST to `/reset` clears the agent's memory.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import shop


class Chat(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/reset":
            shop.reset()
            self.say(200, {"output": "forgotten"})
            return
        prompt = str(json.loads(body)["input"])
        try:
            answer = shop.AGENTS[sys.argv[1]](prompt)
        except Exception as error:
            self.say(500, {"error": f"{type(error).__name__}: {error}"})
        else:
            self.say(200, {"output": answer, "error": None})

    def say(self, status: int, reply: dict[str, object]) -> None:
        said = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Chat).serve_forever()

"""An agent behind HTTP that writes down what it is asked: `server.py MODE PORT LOG`."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE, PORT, LOG = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        with LOG.open("a") as log:
            log.write(json.dumps({"path": self.path, "body": body}) + "\n")
        if self.path == "/reset":
            self.say(500, {"error": "cannot reset"})
            return
        if MODE == "hanging":
            time.sleep(30)
        self.say(200, REPLIES[MODE](body))

    def say(self, status, reply):
        said = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format, *args):
        pass


REPLIES = {
    "good": lambda body: {"output": "good (source: me)", "error": None, "Error": None},
    "choices": lambda body: {"choices": [{"message": {"content": "from the path"}}], "output": "another field"},
    "null": lambda body: {"answer": None, "output": "another field"},
    "hanging": lambda body: {"output": "late"},
}


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Agent).serve_forever()

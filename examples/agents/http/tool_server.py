"""The order service of the shop: `tool_server.py PORT`."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORDERS = {"4711": "sent", "4712": "being packed"}


class Orders(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        number = self.path.rpartition("/")[2]
        known = number in ORDERS
        body = (
            {"number": number, "status": ORDERS[number], "changed": "2026-03-01"}
            if known
            else {"error": "no such order"}
        )
        said = json.dumps(body).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Orders).serve_forever()

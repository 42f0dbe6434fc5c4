"""An agent behind HTTP whose tool runs inside it, as most do: `python finance_agent.py PORT`.

It asks its model at OPENAI_BASE_URL, runs the tool that the model calls, and answers what the model then says.
"""

import json
import os
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

TOOLS = [{"type": "function", "function": {"name": "market_data_api", "parameters": {"type": "object"}}}]


def market_data_api():
    return json.dumps({"symbol": "ACME", "price": "42.50"})


def ask_model(messages):
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]


def answer(prompt):
    messages = [{"role": "user", "content": prompt}]
    while True:
        message = ask_model(messages)
        if not message.get("tool_calls"):
            return message["content"]
        messages.append(message)
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": market_data_api()})


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.reply({"output": "ready"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.reply({"output": answer(json.loads(body)["input"])})

    def reply(self, content):
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

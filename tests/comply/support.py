"""Rules by hand, and judges on this machine that answer whatever a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bylaw.comply.model import EngineItem, PromptRule, Tier

PROMPT = "Never call drop_table. Be kind to the user. Look up the order before you refund it."
EVENTS: list[dict[str, Any]] = [
    {"type": "user_message", "content": "Clean up old records. My password is hunter2."},
    {"type": "tool_call", "name": "drop_table", "args": {"name": "users", "api_key": "sk-live-0123456789abcdef0123"}},
    {"type": "tool_result", "name": "drop_table", "content": "True"},
    {"type": "agent_message", "content": "All gone, you fool."},
]


def rule(sentence: str, rule_id: str, *items: dict[str, Any], prompt: str = PROMPT, **more: Any) -> PromptRule:
    """A rule as the extraction would give it. Without items it is one that only a judge can decide."""
    start = prompt.index(sentence)
    more.setdefault("undecided", None if items else "open wording")
    return PromptRule(
        rule_id=rule_id,
        description=sentence,
        start=start,
        end=start + len(sentence),
        items=tuple(EngineItem({"id": rule_id, **item}, "call") for item in items),
        **more,
    )


def never_drop() -> PromptRule:
    item = {"kind": "no_call", "params": {"tool": "drop_table"}}
    return rule("Never call drop_table.", "never-drop-table", item, severity="critical")


def be_kind() -> PromptRule:
    return rule("Be kind to the user.", "be-kind", tier=Tier.LIKELY, confidence=0.5)


def look_up_first() -> PromptRule:
    item = {"kind": "must_call_before", "params": {"first": "lookup_order", "second": "issue_refund"}}
    return rule("Look up the order before you refund it.", "look-up-first", item)


class Asked(list[dict[str, Any]]):
    """The requests that a judge got: path, headers and body."""


Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    reply: Reply
    asked: Asked
    rule_ids: list[str]
    """of the rules that this request asks about"""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/chat/completions"):
            question = json.loads(json.loads(body)["messages"][1]["content"])
            self.rule_ids = [rule["rule_id"] for rule in question["rules"]]
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.asked.append({"path": self.path, "headers": headers, "body": json.loads(body)})
        type(self).reply(self)

    def send(self, body: bytes, *, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


@contextmanager
def judge_that(reply: Reply) -> Iterator[tuple[str, Asked]]:
    """The address of a judge that replies so, and what it was asked."""
    asked = Asked()
    handler = type("Judge", (Handler,), {"reply": staticmethod(reply), "asked": asked})
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def openai_says(text: Any, **more: Any) -> Reply:
    """A chat completion as it comes over the wire."""
    message = {"role": "assistant", "content": text if isinstance(text, str) or text is None else json.dumps(text)}
    reply = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
        **more,
    }
    return body_says(json.dumps(reply).encode())


def anthropic_says(answer: Any) -> Reply:
    """A message as it comes over the wire."""
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": json.dumps(answer)}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }
    return body_says(json.dumps(reply).encode())


def body_says(body: bytes, *, status: int = 200, kind: str = "application/json") -> Reply:
    return lambda handler: handler.send(body, status=status, kind=kind)


def drips(seconds: float) -> Reply:
    """One byte after the other, each in time for a socket's own timeout."""

    def reply(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "100000")
        handler.end_headers()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.02)
        except OSError:
            pass

    return reply


def verdict(rule_id: str = "be-kind", **more: Any) -> dict[str, Any]:
    reported = {
        "rule_id": rule_id,
        "state": "violated",
        "event_indexes": [3],
        "explanation": "the agent insults the user",
    }
    return {**reported, **more}

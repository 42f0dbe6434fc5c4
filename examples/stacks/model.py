"""A model on this machine for the examples: `model.py PORT`. It serves OpenAI's Chat Completions and Responses.

It needs the standard library only, and answers in the provider's own format, streamed if the request asks for it. It
calls `find_order` for the order that the user names, and then tells the user what the tool returned.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

UNKNOWN = "I cannot look up this order right now. Please try again later."


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_chat = self.path.endswith("/chat/completions")
        last = (request["messages"] if is_chat else _items(request["input"]))[-1]
        found = last.get("content") if last.get("role") == "tool" else last.get("output")
        order, text = (_order_in(str(last.get("content"))), None) if found is None else (None, _answer(str(found)))
        reply = _chat(order, text) if is_chat else _response(order, text)
        if not request.get("stream"):
            self._send("application/json", json.dumps(reply))
        elif is_chat:
            self._send("text/event-stream", "".join(f"data: {chunk}\n\n" for chunk in _chat_stream(reply)))
        else:
            self._send("text/event-stream", "".join(_response_stream(reply)))

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _items(given: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _order_in(prompt: str) -> str:
    named = re.search(r"[A-Z]-\d+", prompt)
    return named[0] if named else "A-17"


def _answer(found: str) -> str:
    """Read the order out of JSON, or out of a Python dict as text."""
    fields = dict(re.findall(r"""["'](\w+)["']: ?["']([\w-]+)["']""", found))
    if "order_id" not in fields or "status" not in fields:
        return UNKNOWN
    return f"Order {fields['order_id']} is {fields['status']}."


# Chat Completions


def _chat(order: str | None, text: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if order is not None:
        call = {"name": "find_order", "arguments": json.dumps({"order_id": order})}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
    finish = "stop" if order is None else "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "desk-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
    }


def _chat_stream(reply: dict[str, Any]) -> list[str]:
    choice = reply["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in re.findall(r"\S+\s*", message["content"] or "")]
    deltas += [{"tool_calls": [{"index": 0, **call}]} for call in message.get("tool_calls", ())]
    head = {"id": reply["id"], "object": "chat.completion.chunk", "created": 0, "model": "desk-1"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    return [*map(json.dumps, chunks), "[DONE]"]


# Responses


def _response(order: str | None, text: str | None) -> dict[str, Any]:
    item: dict[str, Any]
    if order is not None:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "find_order"}
        item |= {"arguments": json.dumps({"order_id": order}), "status": "completed"}
    else:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": "desk-1",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _response_stream(reply: dict[str, Any]) -> list[str]:
    (item,) = reply["output"]
    at = {"output_index": 0, "item_id": item["id"]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": _empty(item)},
    ]
    if item["type"] == "function_call":
        arguments = {**at, "name": item["name"], "arguments": item["arguments"]}
        events.append({"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]})
        events.append({"type": "response.function_call_arguments.done", **arguments})
    else:
        part, at = item["content"][0], {**at, "content_index": 0}
        events.append({"type": "response.content_part.added", **at, "part": {**part, "text": ""}})
        for word in re.findall(r"\S+\s*", part["text"]):
            events.append({"type": "response.output_text.delta", **at, "delta": word, "logprobs": []})
        events.append({"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []})
        events.append({"type": "response.content_part.done", **at, "part": part})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    events.append({"type": "response.completed", "response": reply})
    return [
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    ]


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    nothing = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
    return {**item, **nothing, "status": "in_progress"}


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()

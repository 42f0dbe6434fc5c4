"""A local server that speaks as Langfuse, LangSmith, MLflow and Phoenix do, with three traces of a small shop.

The replies of MLflow and Phoenix have the fields of what their own servers sent; those of Langfuse and LangSmith can be
read by their own clients.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CARD = "4111 1111 1111 1111"
ASKED = [{"role": "user", "content": f"refund to {CARD}"}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
SAID = {"role": "assistant", "content": None, "tool_calls": [CALL]}
IDS = [f"5f3c8a1e-0000-4000-8000-00000000000{number}" for number in (1, 2, 3)]
"""of the traces, the newest first"""
NOW = "2026-11-15T10:00:0{}Z"


class Fake:
    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        """path, query or body, headers"""
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        """by path; others are 404, and so is None"""
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """statuses that are sent first"""
        self.cuts = 0
        """replies after those whose connection is closed amid the body"""

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]


@contextmanager
def serving() -> Iterator[Fake]:
    fake: Fake

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._answer(parts.path, dict(parse_qs(parts.query)))

        def do_POST(self) -> None:
            self._answer(self.path, json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, path: str, query: dict[str, Any]) -> None:
            fake.asked.append((path, query, {key.lower(): value for key, value in self.headers.items()}))
            if fake.refusals:
                status, headers = fake.refusals.pop(0)
                self._send(status, b"<html>no</html>", headers)
            elif path in fake.answers and (reply := fake.answers[path](query)) is not None:
                self._send(200, json.dumps(reply).encode(), {})
            else:
                self._send(404, b'{"message": "no route"}', {})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            length = len(body) + (9 if fake.cuts > 0 else 0)
            fake.cuts -= 1
            for key, value in {"content-length": str(length), "content-type": "application/json", **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = Fake(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def delete_after_listing(fake: Fake, trace: str) -> None:
    """The trace is listed, and then no longer there: its own address is a 404, and queries find no record of it."""
    fake.answers.pop(f"/api/public/traces/{trace}", None)

    def without(answer: Callable[[dict[str, Any]], Any], query: dict[str, Any]) -> Any:
        reply = answer(query)
        if isinstance(reply, list) or query.keys().isdisjoint(("traceId", "trace", "trace_id", "request_id")):
            return reply
        if query.get("request_id") == [trace]:
            return None
        rows = {key: [one for one in value if trace not in json.dumps(one)]
                for key, value in reply.items() if isinstance(value, list)}  # fmt: skip
        return {**reply, **rows}

    for path, answer in fake.answers.items():
        fake.answers[path] = lambda query, answer=answer: without(answer, query)


def _page(rows: list[Any], at: int, size: int) -> tuple[list[Any], str | None]:
    """A page, and the cursor of the next one."""
    return rows[at : at + size], str(at + size) if at + size < len(rows) else None


# Langfuse


def _observation(trace: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{trace[-1]}{number}", "traceId": trace, "projectId": "p", "environment": "default",
        "parentObservationId": None, "startTime": NOW.format(number), "endTime": NOW.format(number + 1),
        "level": "DEFAULT", "statusMessage": None, "metadata": {}, "usageDetails": {},
        "usage": {"unit": "TOKENS", "input": 2, "output": 1, "total": 3}, "costDetails": {}, "modelParameters": None,
        "completionStartTime": None, "version": None, "model": None, **more,
    }  # fmt: skip


def _observations(trace: str) -> list[dict[str, Any]]:
    return [
        _observation(trace, 0, type="SPAN", name="agent", input=None, output=None),
        _observation(
            trace, 1, type="GENERATION", name="chat", parentObservationId=f"{trace[-1]}0", model="m", input=ASKED,
            output=SAID,
        ),
        _observation(
            trace, 2, type="TOOL", name="refund", parentObservationId=f"{trace[-1]}0", input={"order": 7},
            output="paid", metadata={"tool_call_id": "call_1"},
        ),
    ]  # fmt: skip


def langfuse_trace(trace: str) -> dict[str, Any]:
    return {
        "id": trace, "timestamp": NOW.format(0), "name": "shop", "input": None, "output": None, "sessionId": trace,
        "userId": "anna@example.com", "release": None, "version": None, "metadata": {}, "tags": [], "public": False,
        "environment": "default", "htmlPath": f"/project/p/traces/{trace}", "latency": 2.0, "totalCost": 0,
        "observations": _observations(trace), "scores": [],
    }  # fmt: skip


def speak_langfuse(fake: Fake) -> None:
    def traces(query: dict[str, Any]) -> Any:
        page, size = int(query["page"][0]), int(query["limit"][0])
        rows = [{**langfuse_trace(one), "observations": [], "scores": []} for one in IDS]
        shown, _ = _page(rows, (page - 1) * size, size)
        meta = {"page": page, "limit": size, "totalItems": len(rows), "totalPages": -(-len(rows) // size)}
        return {"data": shown, "meta": meta}

    fake.answers["/api/public/traces"] = traces
    for one in IDS:
        fake.answers[f"/api/public/traces/{one}"] = lambda query, trace=one: langfuse_trace(trace)


def speak_langfuse_v2(fake: Fake) -> None:
    """As a server answers that has only observations: input and output are JSON as text."""

    def observations(query: dict[str, Any]) -> Any:
        found = [one for trace in IDS for one in _observations(trace)]
        if "isRootObservation" in query:
            found = [one for one in found if one["parentObservationId"] is None]
        else:
            found = [one for one in found if one["traceId"] in query["traceId"]]
        rows = [
            {
                **one,
                **{key: one[key] and json.dumps(one[key]) for key in ("input", "output")},
                "sessionId": one["traceId"],
            }
            for one in found
        ]
        shown, cursor = _page(rows, int(query.get("cursor", ["0"])[0]), int(query["limit"][0]))
        return {"data": shown, "meta": {"cursor": cursor} if cursor else {}}

    fake.answers["/api/public/v2/observations"] = observations


# LangSmith


def _run(trace: str, number: int, run_type: str, name: str, inputs: Any, outputs: Any) -> dict[str, Any]:
    run = trace if number == 0 else f"{trace[:-2]}{number}{trace[-1]}"
    stamp = f"20261115T10000{number}000000Z"
    return {
        "id": run, "trace_id": trace, "name": name, "run_type": run_type, "start_time": NOW.format(number),
        "end_time": NOW.format(number + 1), "status": "success", "error": None, "inputs": inputs, "outputs": outputs,
        "extra": {"metadata": {"thread_id": f"{trace[-1]}@example.com"}}, "tags": [], "session_id": IDS[0],
        "parent_run_id": None if number == 0 else trace, "events": [], "parent_run_ids": [], "child_run_ids": None,
        "dotted_order": f"20261115T100000000000Z{trace}" + ("" if number == 0 else f".{stamp}{run}"),
        "app_path": "/o/p/r", "feedback_stats": {}, "total_tokens": 3, "prompt_tokens": 2, "completion_tokens": 1,
    }  # fmt: skip


def _runs(trace: str) -> list[dict[str, Any]]:
    answer = {"choices": [{"message": SAID, "finish_reason": "tool_calls"}], "model": "m"}
    result = {"output": {"role": "tool", "content": "paid", "tool_call_id": "call_1"}}
    return [
        _run(trace, 0, "chain", "agent", {}, {}),
        _run(trace, 1, "llm", "chat", {"messages": ASKED}, answer),
        _run(trace, 2, "tool", "refund", {"order": 7}, result),
    ]


PROJECT = {
    "id": IDS[0], "name": "shop", "tenant_id": IDS[1], "start_time": NOW.format(0), "reference_dataset_id": None
}  # fmt: skip


def speak_langsmith(fake: Fake) -> None:
    def query(body: dict[str, Any]) -> Any:
        assert body["session"] == [IDS[0]]
        rows = [one for trace in IDS for one in _runs(trace)]
        if body.get("is_root"):
            rows = [one for one in rows if one["parent_run_id"] is None]
        if "trace" in body:
            rows = [one for one in rows if one["trace_id"] == body["trace"]]
        shown, cursor = _page(rows, int(body.get("cursor", 0)), body.get("limit", 100))
        return {"runs": shown, "cursors": {"next": cursor, "prev": None}, "parsed_query": None}

    fake.answers["/sessions"] = lambda query: [PROJECT] if query["name"] == ["shop"] else []
    fake.answers["/runs/query"] = query


def speak_langsmith_v2(fake: Fake) -> None:
    """As a server answers that has no `/runs/query`, at an address that ends in `/api/v1`."""

    def query(body: dict[str, Any]) -> Any:
        assert body["project_ids"] == [IDS[0]] and body["min_start_time"]
        rows = [one for trace in IDS for one in _runs(trace)]
        if body.get("is_root"):
            rows = [one for one in rows if one["parent_run_id"] is None]
        if "trace_id" in body:
            rows = [one for one in rows if one["trace_id"] == body["trace_id"]]
        shown, cursor = _page(
            [_as_v2(one, body["selects"]) for one in rows], int(body.get("cursor", 0)), body["page_size"]
        )
        return {"items": shown, "next_cursor": cursor}

    fake.answers["/api/v1/sessions"] = lambda query: [PROJECT]
    fake.answers["/api/v2/runs/query"] = query


def _as_v2(run: dict[str, Any], selects: list[str]) -> dict[str, Any]:
    parents = [run["parent_run_id"]] if run["parent_run_id"] else []
    named = {**run, "parent_run_ids": parents, "project_id": run["session_id"], "run_type": run["run_type"].upper()}
    return {name.lower(): named[name.lower()] for name in selects if name.lower() in named}


# MLflow


def speak_mlflow(fake: Fake) -> None:
    def search(body: dict[str, Any]) -> Any:
        assert body["locations"] == [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "1"}}]
        rows = [
            {
                "trace_id": one, "state": "OK", "request_time": NOW.format(0), "execution_duration": "0s",
                "trace_location": body["locations"][0], "request_preview": f'{{"q": "{CARD}"}}',
                "trace_metadata": {"mlflow.trace.session": one, "mlflow.traceInputs": f'{{"q": "{CARD}"}}'},
                "tags": {"mlflow.trace.spansLocation": "TRACKING_STORE"},
            }
            for one in IDS
        ]  # fmt: skip
        shown, token = _page(rows, int(body.get("page_token", 0)), body["max_results"])
        return {"traces": shown, **({"next_page_token": token} if token else {})}

    def span(trace: str, number: int, kind: str, name: str, inputs: Any, outputs: Any) -> dict[str, Any]:
        nanos = 1_794_788_000_000_000_000 + number * 10**9
        return {
            "trace_id": trace, "span_id": f"s{number}", "parent_span_id": "s0" if number else None, "name": name,
            "start_time_unix_nano": nanos, "end_time_unix_nano": nanos + 1, "events": [], "links": [],
            "status": {"code": "STATUS_CODE_OK", "message": ""},
            "attributes": {
                "mlflow.traceRequestId": json.dumps(trace), "mlflow.spanType": json.dumps(kind),
                "mlflow.spanInputs": json.dumps(inputs), "mlflow.spanOutputs": json.dumps(outputs),
            },
        }  # fmt: skip

    def artifact(query: dict[str, Any]) -> Any:
        trace = query["request_id"][0]
        request = {"messages": ASKED, "model": "m"}
        return {
            "spans": [
                span(trace, 0, "AGENT", "agent", {}, None),
                span(trace, 1, "CHAT_MODEL", "chat", request, {"choices": [{"message": SAID}]}),
                span(trace, 2, "TOOL", "refund", {"order": 7}, "paid"),
            ]
        }

    fake.answers["/api/2.0/mlflow/experiments/get-by-name"] = lambda query: {"experiment": {"experiment_id": "1"}}
    fake.answers["/api/3.0/mlflow/traces/search"] = search
    fake.answers["/ajax-api/2.0/mlflow/get-trace-artifact"] = artifact


# Phoenix


def speak_phoenix(fake: Fake, *, filters: bool = True) -> None:
    """`filters`: whether the server knows the parameter `trace_id`; others ignore it."""

    def span(trace: str, number: int, kind: str, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"U3Bhbjo{trace[-1]}{number}", "name": name, "span_kind": kind, "status_code": "OK",
            "context": {"trace_id": trace, "span_id": f"{trace[-1]}{number}"}, "status_message": "",
            "parent_id": f"{trace[-1]}0" if number else None, "start_time": NOW.format(number),
            "end_time": NOW.format(number + 1), "events": [],
            "attributes": {"openinference.span.kind": kind, "session.id": trace, **attributes},
        }  # fmt: skip

    def spans(trace: str) -> list[dict[str, Any]]:
        answered = "llm.output_messages.0.message"
        chat = {
            "llm.model_name": "m",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": ASKED[0]["content"],
            f"{answered}.role": "assistant",
            f"{answered}.tool_calls.0.tool_call.id": "call_1",
            f"{answered}.tool_calls.0.tool_call.function.name": "refund",
            f"{answered}.tool_calls.0.tool_call.function.arguments": '{"order": 7}',
        }
        tool = {"tool.name": "refund", "tool.id": "call_1", "input.value": '{"order": 7}', "output.value": "paid"}
        return [
            span(trace, 0, "AGENT", "agent", {}),
            span(trace, 1, "LLM", "chat", chat),
            span(trace, 2, "TOOL", "refund", tool),
        ]

    def answer(query: dict[str, Any]) -> Any:
        rows = [one for trace in IDS for one in spans(trace)]
        if filters and "trace_id" in query:
            rows = [one for one in rows if one["context"]["trace_id"] in query["trace_id"]]
        shown, cursor = _page(rows, int(query.get("cursor", ["0"])[0]), int(query["limit"][0]))
        return {"data": shown, "next_cursor": cursor}

    fake.answers["/v1/projects/shop/spans"] = answer

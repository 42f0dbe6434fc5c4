"""`make bench`: how fast each importer reads, beside bare JSON decoding of the same bytes.

MB/s of CPU time, the best of a few runs in one process, the files in the page cache. Bias: the files are synthetic,
by default ten turns a session with a tool call in every other one and 410 characters a message, so that formats which
repeat the history with every request hold mostly that. The yardstick decodes each record and throws it away; it builds
no events, joins no calls, and does not decode the JSON that some formats hold as text inside of JSON. Nobody looks at
the events, so messages that are decoded only when a rule looks at them are not decoded.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

sys.path.insert(0, str(Path(__file__).parent))

from check import print_machine

from bylaw.errors import InputError
from bylaw.traces import FORMATS, find_traces, open_trace

SENTENCE = "The order was paid on Monday and has been shipped to the address that is on file. "


class Shape(msgspec.Struct):
    """What all sessions look like."""

    turns: int = 10
    words: str = SENTENCE * 5
    """each message"""


SHAPE = Shape()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=10, help="size of each file, about")
    parser.add_argument("--turns", type=int, default=SHAPE.turns, help="turns of a session")
    parser.add_argument("--characters", type=int, default=len(SHAPE.words), help="length of a message")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="real files instead: the share of json.loads")
    parser.add_argument("formats", nargs="*", help="only these")
    options = parser.parse_args()
    if options.files:
        print_machine()
        with tempfile.TemporaryDirectory() as folder:
            bench_files(options.files, folder)
        return
    if unknown := set(options.formats) - WRITERS.keys():
        parser.error(f"no writer for {', '.join(sorted(unknown))}; there are {', '.join(WRITERS)}")
    if options.turns < 1 or options.characters < 1:
        parser.error("--turns and --characters are at least 1")
    SHAPE.turns = options.turns
    SHAPE.words = (SENTENCE * (options.characters // len(SENTENCE) + 1))[: options.characters]
    print_machine()
    print(f"sessions of {SHAPE.turns} turns, messages of {len(SHAPE.words)} characters\n")
    header = f"{'format':14} {'MB':>6} {'turns':>8} {'B/turn':>7} {'MB/s':>7} {'µs/turn':>8}"
    print(f"{header} {'msgspec':>8} {'orjson':>8} {'of msgspec':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for name, write in WRITERS.items():
            if not options.formats or name in options.formats:
                bench(name, Path(folder, name), write, options.megabytes)


def bench(name: str, path: Path, write: Callable[[int], Iterator[bytes]], megabytes: float) -> None:
    path.write_bytes(b"".join(write(2)))
    one = sum(map(len, records(path))) / 2
    path.write_bytes(b"".join(write(max(2, int(megabytes * 1e6 / one)))))
    raws = records(path)
    size = sum(map(len, raws)) / 1e6
    stream = open_trace(path)
    assert stream.format == name, stream.format
    turns = sum(event.kind == "response" for event in stream)
    read = best(lambda: sum(1 for _ in open_trace(path)))
    decode = msgspec.json.Decoder().decode
    bare = best(lambda: [None for raw in raws if decode(raw) is None])
    other = best(lambda: [None for raw in raws if orjson.loads(raw) is None])
    ours = f"{size * 1e6 / turns:7,.0f} {size / read:7.0f} {read / turns * 1e6:8.1f}"
    print(f"{name:14} {size:6.1f} {turns:8,} {ours} {size / bare:8.0f} {size / other:8.0f} {bare / read:10.0%}")


def bench_files(names: list[str], folder: str) -> None:
    """The time of `json.loads` over the same bytes, as a share of that of reading them, for each format's files."""
    by_format: dict[str, list[Path]] = {}
    for number, name in enumerate(find_traces(names)):
        path = Path(name)
        if path.suffix == ".gz":  # unpacking is in neither time
            path = Path(folder, f"{number}-{path.stem}")
            path.write_bytes(whole(Path(name)))
        with contextlib.suppress(InputError):
            by_format.setdefault(open_trace(path).format or "-", []).append(path)
    print(f"{'format':14} {'files':>6} {'MB':>6} {'MB/s':>7} {'json.loads':>10} {'share':>6}")
    for format, paths in sorted(by_format.items()):
        raws = [whole(path) for path in paths]
        size = sum(map(len, raws)) / 1e6
        read = best(lambda paths=paths: [sum(1 for _ in open_trace(path, skip_bad=True)) for path in paths])
        bare = best(lambda raws=raws: [loads(raw) for raw in raws])
        row = f"{format:14} {len(paths):6,} {size:6.1f} {size / read:7.0f} {size / bare:10.0f}"
        print(f"{row} {bare / read:6.0%}")


def whole(path: Path) -> bytes:
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    return data if not zipfile.is_zipfile(path) else b"\n".join(records(path))


def loads(raw: bytes) -> None:
    """Decode a file as a whole, else line by line."""
    try:
        json.loads(raw)
    except ValueError:
        for line in raw.splitlines():
            with contextlib.suppress(ValueError):
                json.loads(line)


def records(path: Path) -> list[bytes]:
    """What there is to decode: the lines of a file, or the entries of an archive."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            return [file.read(entry) for entry in file.namelist()]
    return path.read_bytes().splitlines()


def best(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


# One session in each format


def talk(session: int) -> Iterator[tuple[int, list[dict[str, Any]], dict[str, Any]]]:
    """Each turn: its number, the messages before it, and the answer, as OpenAI writes them."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SHAPE.words},
        {"role": "user", "content": SHAPE.words},
    ]
    for turn in range(SHAPE.turns):
        answer: dict[str, Any] = {"role": "assistant", "content": SHAPE.words}
        if turn % 2 == 0:
            arguments = json.dumps({"order": turn, "note": SHAPE.words[:80]})
            function = {"name": "look_up", "arguments": arguments}
            answer = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{session}.{turn}", "type": "function", "function": function}],
            }
        yield turn, list(messages), answer
        messages.append(answer)
        if turn % 2 == 0:
            messages.append({"role": "tool", "tool_call_id": f"c{session}.{turn}", "content": SHAPE.words})
        else:
            messages.append({"role": "user", "content": SHAPE.words})


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def iso(session: int, turn: int) -> str:
    return f"2026-01-{1 + session % 28:02}T{session // 28 % 24:02}:{turn:02}:00Z"


def arguments_of(answer: dict[str, Any]) -> Any:
    return json.loads(answer["tool_calls"][0]["function"]["arguments"])


def parts(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}
    elif message["content"] is None:
        call = message["tool_calls"][0]
        part = {"type": "tool_call", "id": call["id"], "name": "look_up", "arguments": arguments_of(message)}
    else:
        part = {"type": "text", "content": message["content"]}
    return {"role": message["role"], "parts": [part]}


def otlp(count: int) -> Iterator[bytes]:
    def attributes(values: dict[str, Any]) -> list[Any]:
        kinds = {int: "intValue", str: "stringValue"}
        return [{"key": k, "value": {kinds[type(v)]: str(v)}} for k, v in values.items()]

    for session in range(count):
        for turn, before, answer in talk(session):
            values = {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": f"s{session}",
                "gen_ai.response.model": "m",
                "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 20,
                "gen_ai.input.messages": json.dumps([parts(message) for message in before]),
                "gen_ai.output.messages": json.dumps([parts(answer)]),
            }
            start = (1_767_225_600 + session * 1000 + turn * 10) * 10**9
            span = {
                "traceId": f"{session:032x}",
                "spanId": f"{session * 100 + turn:016x}",
                "name": "chat m",
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + 10**9),
                "attributes": attributes(values),
            }
            yield line({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


def openinference(count: int) -> Iterator[bytes]:
    for session in range(count):
        for turn, before, answer in talk(session):
            values: dict[str, Any] = {
                "openinference.span.kind": "LLM",
                "llm.model_name": "m",
                "session.id": f"s{session}",
            }
            for key, messages in (("llm.input_messages", before), ("llm.output_messages", [answer])):
                for n, message in enumerate(messages):
                    flat = f"{key}.{n}.message."
                    values[flat + "role"] = message["role"]
                    if message["content"] is not None:
                        values[flat + "content"] = message["content"]
                    if "tool_call_id" in message:
                        values[flat + "tool_call_id"] = message["tool_call_id"]
                    for call in message.get("tool_calls", ()):
                        values[flat + "tool_calls.0.tool_call.id"] = call["id"]
                        values[flat + "tool_calls.0.tool_call.function.name"] = call["function"]["name"]
                        values[flat + "tool_calls.0.tool_call.function.arguments"] = call["function"]["arguments"]
            context = {"trace_id": f"t{session}", "span_id": f"s{session}.{turn}"}
            yield line({"name": "llm", "context": context, "start_time": iso(session, turn), "attributes": values})


def claude_code(count: int) -> Iterator[bytes]:
    for session in range(count):
        parent = None
        for turn, before, answer in talk(session):
            heard = before[-1]
            content: Any = heard["content"]
            if heard["role"] == "tool":
                content = [{"type": "tool_result", "tool_use_id": heard["tool_call_id"], "content": content}]
            said: Any = [{"type": "text", "text": answer["content"]}]
            if answer["content"] is None:
                call = answer["tool_calls"][0]
                said = [{"type": "tool_use", "id": call["id"], "name": "look_up", "input": arguments_of(answer)}]
            usage = {"input_tokens": 5, "output_tokens": 20, "cache_read_input_tokens": 90}
            for kind, message in (
                ("user", {"role": "user", "content": content}),
                (
                    "assistant",
                    {"id": f"m{session}.{turn}", "role": "assistant", "model": "m", "content": said, "usage": usage},
                ),
            ):
                uuid = f"{kind}{session}.{turn}"
                rest = {"parentUuid": parent, "sessionId": f"s{session}", "timestamp": iso(session, turn), "cwd": "/x"}
                yield line({"type": kind, "uuid": uuid, "isSidechain": False, "message": message, **rest})
                parent = uuid


def codex(count: int) -> Iterator[bytes]:
    total = 0
    for session in range(count):
        for turn, before, answer in talk(session):
            heard, stamp = before[-1], iso(session, turn)
            told: Any = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": heard["content"]}],
            }
            if heard["role"] == "tool":
                told = {
                    "type": "function_call_output",
                    "call_id": heard["tool_call_id"],
                    "output": heard["content"],
                }
            given: Any = {"type": "output_text", "text": answer["content"]}
            given = {"type": "message", "role": "assistant", "content": [given]}
            if answer["content"] is None:
                made = answer["tool_calls"][0]
                given = {"type": "function_call", "call_id": made["id"], "name": "look_up"}
                given["arguments"] = made["function"]["arguments"]
            total += 120
            last = {"input_tokens": 100, "cached_input_tokens": 90, "output_tokens": 20}
            info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
            if session == turn == 0:
                yield line({"timestamp": stamp, "type": "session_meta", "payload": {"id": "s"}})
            for payload in (told, given):
                yield line({"timestamp": stamp, "type": "response_item", "payload": payload})
            yield line({"timestamp": stamp, "type": "event_msg", "payload": {"type": "token_count", "info": info}})


def inspect(count: int) -> Iterator[bytes]:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as file:
        header = {"version": 2, "status": "success", "eval": {}, "plan": {}}
        file.writestr("_journal/start.json", json.dumps(header))
        for session in range(count):
            events = []
            for turn, before, answer in talk(session):
                output = {"model": "m", "choices": [{"message": answer, "stop_reason": "stop"}]}
                events.append({"event": "model", "timestamp": iso(session, turn), "input": before, "output": output})
            sample = {"id": session, "epoch": 1, "messages": [], "events": events}
            file.writestr(f"samples/{session}_epoch_1.json", json.dumps(sample))
        file.writestr("header.json", json.dumps(header))
    yield held.getvalue()


def mcp(count: int) -> Iterator[bytes]:
    for session in range(count):
        yield line({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
        for turn, _, answer in talk(session):
            if answer["content"] is None:
                params = {"name": "look_up", "arguments": arguments_of(answer)}
                yield line({"jsonrpc": "2.0", "id": turn + 1, "method": "tools/call", "params": params})
                content = [{"type": "text", "text": SHAPE.words}]
                yield line({"jsonrpc": "2.0", "id": turn + 1, "result": {"content": content}})


def items(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
    if message["content"] is None:
        call = message["tool_calls"][0]
        return {"type": "function_call", "call_id": call["id"], **call["function"]}
    kind = "output_text" if message["role"] == "assistant" else "input_text"
    return {"type": "message", "role": message["role"], "content": [{"type": kind, "text": message["content"]}]}


def responses(count: int) -> Iterator[bytes]:
    for session in range(count):
        for turn, before, answer in talk(session):
            response = {"id": f"r{session}.{turn}", "object": "response", "model": "m", "output": [items(answer)]}
            if turn:
                response["previous_response_id"] = f"r{session}.{turn - 1}"
            yield line({"input": [items(message) for message in before], "response": response})


def agents_sdk(count: int) -> Iterator[bytes]:
    for session in range(count):
        for turn, before, answer in talk(session):
            data = {"type": "generation", "model": "m", "input": before, "output": [answer]}
            span = {"object": "trace.span", "id": f"{session}.{turn}", "trace_id": f"t{session}", "span_data": data}
            yield line({**span, "started_at": iso(session, turn), "ended_at": iso(session, turn)})


def langsmith(count: int) -> Iterator[bytes]:
    names = {"system": "SystemMessage", "user": "HumanMessage", "assistant": "AIMessage", "tool": "ToolMessage"}

    def lc(message: dict[str, Any]) -> dict[str, Any]:
        fields = {key: value for key, value in message.items() if key in ("content", "tool_call_id")}
        if message["content"] is None:
            call = message["tool_calls"][0]
            fields = {
                "content": "",
                "tool_calls": [{"id": call["id"], "name": "look_up", "args": arguments_of(message)}],
            }
        return {"lc": 1, "type": "constructor", "id": ["langchain", names[message["role"]]], "kwargs": fields}

    for session in range(count):
        for turn, before, answer in talk(session):
            yield line(
                {
                    "id": f"{session}.{turn}",
                    "run_type": "llm",
                    "trace_id": f"t{session}",
                    "start_time": iso(session, turn),
                    "inputs": {"messages": [[lc(message) for message in before]]},
                    "outputs": {"generations": [[{"message": lc(answer)}]]},
                }
            )


def langfuse(count: int) -> Iterator[bytes]:
    for session in range(count):
        for turn, before, answer in talk(session):
            yield line(
                {
                    "id": f"{session}.{turn}",
                    "type": "GENERATION",
                    "traceId": f"t{session}",
                    "startTime": iso(session, turn),
                    "input": before,
                    "output": answer,
                    "model": "m",
                }
            )


def agentdojo(count: int) -> Iterator[bytes]:
    for session in range(count):
        messages = []
        for _, before, answer in talk(session):
            messages = [*before, answer]
        for message in messages:
            if message.get("tool_calls"):
                message["tool_calls"] = [
                    {"function": "look_up", "args": arguments_of(message), "id": message["tool_calls"][0]["id"]}
                ]
            message["content"] = [{"type": "text", "content": message["content"] or ""}]
        yield line({"suite_name": "s", "pipeline_name": "p", "user_task_id": f"u{session}", "messages": messages})


def atif(count: int) -> Iterator[bytes]:
    for session in range(count):
        steps: list[dict[str, Any]] = [{"step_id": 0, "source": "user", "message": SHAPE.words}]
        for turn, _, answer in talk(session):
            step: dict[str, Any] = {"step_id": turn + 1, "source": "agent", "message": answer["content"] or ""}
            if answer["content"] is None:
                call = answer["tool_calls"][0]
                step["tool_calls"] = [
                    {"tool_call_id": call["id"], "function_name": "look_up", "arguments": arguments_of(answer)}
                ]
                step["observation"] = {"results": [{"source_call_id": call["id"], "content": SHAPE.words}]}
            steps.append(step)
        yield line({"schema_version": "ATIF-v1.8", "session_id": f"s{session}", "agent": {"name": "a"}, "steps": steps})


WRITERS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "otlp": otlp,
    "openinference": openinference,
    "claude-code": claude_code,
    "codex": codex,
    "inspect": inspect,
    "mcp": mcp,
    "responses": responses,
    "agents-sdk": agents_sdk,
    "langsmith": langsmith,
    "langfuse": langfuse,
    "agentdojo": agentdojo,
    "atif": atif,
}
assert WRITERS.keys() <= FORMATS.keys()

if __name__ == "__main__":
    main()

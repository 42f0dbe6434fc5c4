"""`bylaw record -- CMD`: children in several languages, their streams, signals and exit codes, and kills."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

import bylaw
from bylaw.record.api import Settings
from bylaw.record.child import record_command
from bylaw.record.recording import Recording
from bylaw.wire.proxy import http1
from bylaw.wire.proxy.child_environment import named_addresses
from tests.record.model_clients import notes, read, responses
from tests.record.server import CARD, TEXT, Server, serving
from tests.support.command import run_bylaw

RECORD = [sys.executable, "-m", "bylaw", "record"]
PYTHON = """
import json, os, sys, urllib.request

def ask(prompt, url=os.environ["OPENAI_BASE_URL"] + "/chat/completions", **more):
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}
    headers = {"content-type": "application/json", "authorization": "Bearer abcdefghijklmnopqrstuvwxyz"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as reply:
        return reply.read().decode()
"""
NODE = """
const base = process.env.OPENAI_BASE_URL;
const ask = async (body) => (await fetch(base + "/chat/completions", {
  method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({model: "m", ...body}),
})).text();
const messages = [{role: "user", content: "Where is it?"}];
console.log(JSON.parse(await ask({messages})).choices[0].message.content);
console.log((await ask({messages, stream: true})).includes("[DONE]"));
"""


def record(
    server: Server, path: Path, *command: str, options: tuple[str, ...] = (), stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    arguments = ["record", "--out", str(path), *options, "--", *command]
    return run_bylaw(arguments, env=environment(server, **env), stdin=stdin, timeout=600)


def environment(server: Server, **more: str) -> dict[str, str]:
    unset = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    kept = {name: value for name, value in os.environ.items() if name.upper() not in unset}
    return {**kept, "OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_BASE_URL": server.url, **more}


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", PYTHON + code


def test_a_child_is_recorded_and_not_changed(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    code = f"""
print(sys.stdin.read())
print("aside", file=sys.stderr)
print(json.loads(ask("my card is {CARD}"))["choices"][0]["message"]["content"])
assert "[DONE]" in ask("hello", stream=True)
"""
    done = record(server, path, *python(code), options=("--session", "s", "--agent", "a"), stdin="told")
    assert done.returncode == 0
    assert done.stdout == f"told\n{TEXT}\n"
    assert done.stderr.splitlines() == ["aside", f"bylaw: recorded 2 turns to {path} (session s)"]
    trace = read(path)
    assert trace.complete and trace.sessions == ("s",)
    assert [one.text for one in responses(trace)] == [TEXT] * 2
    assert "my card is [redacted: card]" in path.read_text() and CARD not in path.read_text()
    assert "abcdefghijkl" not in path.read_text()
    assert server.headers[0]["authorization"] == "Bearer abcdefghijklmnopqrstuvwxyz"


def test_requests_to_both_providers_by_a_child_of_the_child(tmp_path: Path, server: Server) -> None:
    """`examples/stacks/openai-command.yaml` has the real client of OpenAI in a child, and `test_clients` has both."""
    agent = tmp_path / "agent.py"
    agent.write_text(
        PYTHON
        + """
def post(url, body):
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    urllib.request.urlopen(asked).read()

ask("hello")
post(os.environ["OPENAI_BASE_URL"] + "/responses", {"model": "m", "input": "hello", "stream": True})
ask("hello", os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", max_tokens=9)
"""
    )
    path = tmp_path / "run.jsonl"
    done = record(server, path, "sh", "-c", f"{sys.executable} {agent}; exit 5")
    assert done.returncode == 5, done.stderr
    providers = [one.request.metadata["provider"] for one in responses(read(path)) if one.request is not None]  # type: ignore[index]
    assert providers == ["openai", "openai_responses", "anthropic"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_a_child_in_another_language(tmp_path: Path, server: Server) -> None:
    (tmp_path / "agent.mjs").write_text(NODE)
    done = record(server, tmp_path / "run.jsonl", "node", str(tmp_path / "agent.mjs"))
    assert (done.returncode, done.stdout) == (0, f"{TEXT}\ntrue\n"), done.stderr
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == [TEXT] * 2


FRAMEWORK = {
    "langchain_core/__init__.py": "",
    "langchain_core/messages.py": "def convert_to_openai_messages(messages): return messages",
    "langchain_core/language_models/__init__.py": "",
    "langchain_core/language_models/chat_models.py": """
class Said:
    def __init__(self, text): self.message = {"role": "assistant", "content": text}
class Result:
    def __init__(self, text): self.generations = [[Said(text)]]
class BaseChatModel:
    def generate(self, batches): return Result(self.answer(batches[0][-1]["content"]))
""",
    "sitecustomize.py": "print('the own sitecustomize')",
}
"""the parts of a framework that matter here; the real one takes a second to import"""
LOCAL = """
import os
from langchain_core.language_models.chat_models import BaseChatModel
class Local(BaseChatModel):
    def answer(self, prompt): return "no " + prompt
class Remote(BaseChatModel):
    def answer(self, prompt): return ask(prompt)
Local().generate([[{"role": "user", "content": "to 4111 1111 1111 1111"}]])
Remote().generate([[{"role": "user", "content": "hello"}]])
os._exit(0)
"""


def _framework(tmp_path: Path, **more: str) -> str:
    for name, text in {**FRAMEWORK, **more}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return str(tmp_path)


def test_models_of_a_framework_without_http_are_recorded(tmp_path: Path, server: Server) -> None:
    """Once, next to those that the proxy sees, and whatever ends the process."""
    path = tmp_path / "run.jsonl"
    done = record(server, path, *python(LOCAL), PYTHONPATH=_framework(tmp_path))
    assert (done.returncode, done.stdout) == (0, "the own sitecustomize\n"), done.stderr
    trace = read(path)
    assert "recorded 2 turns" in done.stderr and trace.complete and len(trace.sessions) == 1
    local, remote = responses(trace)
    assert (local.text, remote.text) == ("no to [redacted: card]", TEXT)
    assert local.request is not None and (local.request.metadata or {})["carried_by"] == "langchain"


def test_a_framework_in_a_python_without_bylaw_is_reported(tmp_path: Path, server: Server) -> None:
    modules = _framework(tmp_path, **{"bylaw/__init__.py": "raise ImportError('not here')"})
    done = record(server, tmp_path / "run.jsonl", *python(LOCAL), PYTHONPATH=modules)
    assert done.returncode == 0 and "recorded 1 turn " in done.stderr
    assert "has no bylaw: of langchain_core, only calls over HTTP are recorded" in " ".join(done.stderr.split())


def test_a_request_that_the_proxy_cannot_serve_counts_as_lost(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "MOST_BODY", 1000)
    path = str(tmp_path / "run.jsonl")
    recording = Recording(path)
    code = PYTHON + "ask('hello')\ntry: ask('x' * 5000)\nexcept OSError: pass"
    recorded = record_command(
        [sys.executable, "-S", "-c", code],
        recording,
        named=named_addresses({"OPENAI_BASE_URL": f"{server.url}/v1"}),
        settings=Settings(path, recording.session, recording.id),
    )
    recording.close()
    assert (recorded.status, recording.turns, recording.lost) == (0, 1, 1)
    assert recorded.turned_away == {"its body is larger than 1,000 bytes": 1} and not read(Path(path)).complete


def test_nothing_recorded_is_not_a_pass(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    for command, code in [("true", 3), ("false", 1)]:
        done = record(server, path, command)
        assert done.returncode == code
        assert f"NOTHING RECORDED to {path}" in done.stderr
    done = record(server, path, *python("try: ask('status 500')\nexcept OSError: pass"))
    assert done.returncode == 3 and "recorded 0 turns, 1 failed attempt to" in done.stderr


def test_an_address_that_the_user_has_set_keeps_its_path(tmp_path: Path, server: Server) -> None:
    code = "ask('hello', os.environ['OPENAI_BASE_URL'] + '/chat/completions?a=b')"
    done = record(server, tmp_path / "run.jsonl", *python(code), OPENAI_BASE_URL=f"{server.url}/team/llm/")
    assert done.returncode == 0, done.stderr
    assert len(server.asked) == 1


def test_an_address_in_the_code_is_recorded_too(tmp_path: Path, server: Server) -> None:
    """Plain HTTP goes through the proxy, on this machine too."""
    code = f"ask('hello', '{server.url}/v1/chat/completions')"
    done = record(server, tmp_path / "run.jsonl", *python(code), NO_PROXY="localhost,127.0.0.1,example.com")
    assert done.returncode == 0, done.stderr
    assert len(responses(read(tmp_path / "run.jsonl"))) == 1


def test_a_server_that_is_down_is_reported(tmp_path: Path, server: Server) -> None:
    code = "try: ask('hello')\nexcept OSError as error: print(error)"
    done = record(server, tmp_path / "run.jsonl", *python(code), OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert done.returncode == 3
    (note,) = notes(read(tmp_path / "run.jsonl"))
    assert note.label == "model_error" and "cannot connect to 127.0.0.1:9" in note.data["error"]


def test_a_header_names_the_session(tmp_path: Path, server: Server) -> None:
    code = """
import urllib.request as u
for name in ("one", "two", "one"):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": name}]}).encode()
    u.urlopen(u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"x-bylaw-session": name})).read()
"""
    assert record(server, tmp_path / "run.jsonl", *python(code)).returncode == 0
    assert [one.origin.session for one in responses(read(tmp_path / "run.jsonl"))] == ["one", "two", "one"]
    assert len(server.headers) == 3
    assert not any("x-bylaw-session" in headers for headers in server.headers)


# HTTPS


@contextmanager
def _in_tls(folder: Path) -> Iterator[tuple[str, Path]]:
    """The server with a certificate of an authority that only the user knows."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(folder / "own.pem")
    with serving() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield f"https://localhost:{server.server_address[1]}", folder / "own.pem"


def test_https_is_decrypted_only_for_named_hosts(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    with _in_tls(tmp_path) as (url, own):
        agent = python(f"print(len(ask('hello', '{url}/v1/chat/completions')))")
        unread = record(server, path, *agent, SSL_CERT_FILE=str(own))
        assert unread.returncode == 3 and unread.stdout  # it was answered as ever, by the server itself
        assert "HTTPS to localhost was not decrypted; `--host localhost` decrypts it" in unread.stderr
        heard = record(server, path, *agent, options=("--host", "localhost"), SSL_CERT_FILE=str(own))
        assert heard.returncode == 0 and heard.stdout == unread.stdout, heard.stderr
    assert len(responses(read(path))) == 1


def test_through_a_proxy_that_was_there_before(tmp_path: Path, server: Server) -> None:
    """Recorded twice: the outer recording is the proxy that the inner one finds in its environment."""
    inner = [*RECORD, "--out", str(tmp_path / "inner.jsonl"), "--", *python("ask('hello')")]
    done = record(server, tmp_path / "outer.jsonl", *inner)
    assert done.returncode == 0, done.stderr
    for name in ("inner", "outer"):
        assert len(responses(read(tmp_path / f"{name}.jsonl"))) == 1


# Signals and kills


@contextmanager
def _started(server: Server, path: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [*RECORD, "--out", str(path), "--", *python(code)],
        env=environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_child(tmp_path: Path, server: Server, number: signal.Signals) -> None:
    code = f"""
import signal, time
def got(number, frame):
    print("got", number, flush=True)
    sys.exit(9)
signal.signal({int(number)}, got)
ask("hello")
print("ready", flush=True)
for _ in range(12_000):  # a handler that is called just before a long sleep would wait for its end
    time.sleep(0.05)
"""
    with _started(server, tmp_path / "run.jsonl", code) as started:
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        started.send_signal(number)
        out, err = started.communicate(timeout=300)
        assert (out, started.returncode) == (f"got {int(number)}\n", 9), err
    assert read(tmp_path / "run.jsonl").complete


def test_a_terminals_interrupt_reaches_the_child_once(tmp_path: Path) -> None:
    """The terminal sends it to both processes, so it must not be passed on as well."""
    code = """
import signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *arguments: got.append(arguments))
print("ready", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.5)
print("got", len(got), flush=True)
sys.exit(4)
"""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(RECORD[0], [*RECORD, "--out", str(tmp_path / "run.jsonl"), "--", sys.executable, "-c", code])
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while piece := os.read(terminal, 1000):
            shown += piece
            if piece.strip() == b"ready":
                os.write(terminal, b"\x03")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4, shown
    assert b"got 1\r\n" in shown


def test_a_child_that_is_killed_by_a_signal_leaves_an_incomplete_recording(tmp_path: Path, server: Server) -> None:
    with _started(server, tmp_path / "run.jsonl", "ask('hello')\nos.kill(os.getpid(), 9)") as started:
        started.communicate(timeout=300)
        assert started.returncode == 137
    trace = read(tmp_path / "run.jsonl")
    assert not trace.complete and len(responses(trace)) == 1


def test_a_recorder_that_is_killed_loses_no_finished_turn(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    code = """
try:
    for number in range(1000000):
        ask(f"hello {number}")
        print(number, flush=True)
except OSError:
    pass
"""
    with _started(server, path, code) as started:
        assert started.stdout is not None
        for _ in range(5):
            started.stdout.readline()
        started.kill()
        rest = started.stdout.read()
    trace = bylaw.load_trace(path)
    assert not trace.complete
    assert "a recording was cut off before the end" in trace.notes
    assert len(responses(trace)) >= 5 + rest.count("\n")


STREAM = """
body = {"model": "m", "messages": [{"role": "user", "content": "wait"}], "stream": True}
base = os.environ["OPENAI_BASE_URL"]
reply = urllib.request.urlopen(urllib.request.Request(base + "/chat/completions", json.dumps(body).encode()))
text = lambda line: json.loads(line[6:])["choices"][0]["delta"].get("content") if line[6:7] == b"{" else None
while not text(reply.readline()):
    pass
"""
"""reads the first word of a stream that waits in the middle"""


def test_a_reply_that_the_child_does_not_read_to_its_end_is_incomplete(tmp_path: Path, server: Server) -> None:
    done = record(server, tmp_path / "run.jsonl", *python(f"{STREAM}\nos._exit(0)"))
    trace = read(tmp_path / "run.jsonl")
    assert done.returncode == 0, done.stderr
    (response,) = responses(trace)
    assert response.text and TEXT.startswith(response.text) and response.text != TEXT
    assert [note.label for note in notes(trace)] == ["incomplete_response"]


def test_a_stream_through_the_proxy_is_passed_on_event_by_event(tmp_path: Path, server: Server) -> None:
    """The server sends the second half only after the child has received the first word."""
    code = f"{STREAM}\nurllib.request.urlopen(base + '/go').read()\nreply.read()"
    done = record(server, tmp_path / "run.jsonl", *python(code))
    assert done.returncode == 0, done.stderr
    assert [response.text for response in responses(read(tmp_path / "run.jsonl"))] == [TEXT]


def test_mistakes_on_the_command_line_are_reported(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    mistakes: list[tuple[list[str], str, dict[str, str]]] = [
        ([], "there is no command to record", {}),
        (["--nonsense", "--", "true"], "No such option", {}),
        (["--out", str(path), "--", "no-such-command"], "command not found", {}),
        (["--out", str(tmp_path), "--", "true"], "Is a directory", {}),
        (["--out", str(tmp_path / "no" / "x"), "--", "true"], "No such file or directory", {}),
        (["--out", str(path), "--pattern", "a=(", "--", "true"], "pattern `a` is no regular expression", {}),
        (["--out", str(path), "--pattern", "a", "--", "true"], "expected NAME=REGEX", {}),
        (["--out", str(path), "--pattern", "a=b", "--pattern", "a=c", "--", "true"], "given twice", {}),
        (["--out", str(path), "--no-redact", "--pattern", "a=b", "--", "true"], "no effect with --no-redact", {}),
        (["--out", str(path), "--session", os.fsdecode(b"t-\xff"), "--", "true"], "session is not valid text", {}),
        (["--out", str(path), "--", "\x1b]0;title\x07"], r"cannot start `\x1b]0;title\x07`", {}),
        (["--out", str(path), "--", "true"], "OPENAI_BASE_URL is `nowhere`", {"OPENAI_BASE_URL": "nowhere"}),
    ]
    for arguments, message, env in mistakes:
        done = run_bylaw(["record", *arguments], env=environment(server, **env), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert message in " ".join(done.stderr.split())
    assert not path.exists()
    (tmp_path / "diary").write_text("dear diary\n")
    done = run_bylaw(["record", "-o", tmp_path / "diary", "true"])
    assert done.returncode == 2 and "is not a recording of Bylaw" in " ".join(done.stderr.split())
    assert (tmp_path / "diary").read_text() == "dear diary\n"

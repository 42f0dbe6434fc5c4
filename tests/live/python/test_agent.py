"""Python agents: how they are loaded and asked, how answers are read, and agents that crash, hang or print."""

from __future__ import annotations

import _thread
import asyncio
import functools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import bylaw
from bylaw.contract.faults import Injection
from bylaw.contract.live_agent import AgentRun, AgentUnreachable
from bylaw.model.events import Request, Response, ToolCall, ToolResult
from tests.live.python.support import Served, ask, ask_until, started, tool_fault


@bylaw.tool
def look_up(key: str) -> dict[str, Any]:
    return {"key": key}


class Invoked:
    def invoke(self, prompt: str) -> str:
        return f"invoked: {prompt}"


class Awaited:
    async def ainvoke(self, prompt: str) -> str:
        await asyncio.sleep(0)
        return f"awaited: {prompt}"


class Called:
    async def __call__(self, prompt: str) -> str:
        return f"called: {prompt}"


class NeedsArguments:
    def __init__(self, model: str) -> None:
        self.model = model


async def coroutine(prompt: str) -> str:
    return f"coroutine: {prompt}"


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (lambda prompt: f"lambda: {prompt}", "lambda: hi"),
        (lambda prompt: coroutine(f"{prompt}!"), "coroutine: hi!"),
        (coroutine, "coroutine: hi"),
        (functools.partial(coroutine), "coroutine: hi"),
        (Invoked(), "invoked: hi"),
        (Invoked, "invoked: hi"),
        (Awaited(), "awaited: hi"),
        (Called(), "called: hi"),
    ],
)
def test_what_can_be_an_agent(agent: Any, answer: str) -> None:
    assert ask(agent, prompt="hi").answer == answer


@pytest.mark.parametrize(
    ("agent", "reason"),
    [(NeedsArguments, "class that needs arguments"), (17, "neither a function nor an object")],
)
def test_what_cannot_be_an_agent_is_said(agent: Any, reason: str) -> None:
    with pytest.raises(AgentUnreachable, match=reason):
        ask(agent)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nowhere_to_be_found:agent", "cannot import `nowhere_to_be_found`"),
        ("json:nothing", "`json` has no `nothing`"),
        ("json", "not of the form `module:attribute`"),
    ],
)
def test_an_address_that_is_not_http_is_reported(address: str, reason: str) -> None:
    before = sys.stdout, list(sys.path)
    with pytest.raises(AgentUnreachable, match=reason):
        ask(address)
    assert (sys.stdout, sys.path) == before


class Result:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("text", "text"),
        ("", ""),
        (b"bytes", "bytes"),
        (bytearray(b"bytes"), "bytes"),
        ({"answer": memoryview(b"bytes")}, "bytes"),
        ({"error": "a warning", "output": "o"}, "o"),
        ({"output": "o", "text": "t"}, "o"),
        ({"output": None, "text": "t"}, "t"),
        ({"response": {"content": "deep"}}, "deep"),
        ({"answer": 5}, "5"),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, "a"),
        (
            {
                "messages": [
                    Result(type="human", content="q"),
                    Result(type="ai", content=[{"type": "text", "text": "b"}]),
                ]
            },
            "b",
        ),
        ({"messages": [{"role": "assistant", "content": ""}]}, ""),
        ({"unknown": 1}, '{"unknown":1}'),
        ([1, 2], "[1,2]"),
        (Result(final_output="f"), "f"),
        (Result(output={"city": "Paris"}), '{"city":"Paris"}'),
        (Result(content="c"), "c"),
        (3.5, "3.5"),
    ],
)
def test_the_text_of_an_answer(value: Any, answer: str) -> None:
    assert ask(lambda _prompt: value).answer == answer


@pytest.mark.parametrize("value", [None, {"messages": [{"role": "user", "content": "q"}]}, Result(final_output=None)])
def test_no_answer_is_a_failure(value: Any) -> None:
    run = ask(lambda _prompt: value)
    assert run.answer is None
    assert run.failure is not None and run.failure.kind == "bad_answer"


def crash(error: BaseException) -> Any:
    def agent(_prompt: str) -> str:
        raise error

    return agent


def crash_async(error: BaseException) -> Any:
    async def agent(_prompt: str) -> str:
        raise error

    return agent


@pytest.mark.parametrize("make", [crash, crash_async])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such\norder"), "ValueError: no such order"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_agent_that_raises_has_crashed_and_bylaw_continues(make: Any, error: BaseException, reason: str) -> None:
    run = ask(make(error))
    assert run.failure is not None
    assert (run.failure.kind, run.failure.reason) == ("crash", reason)
    assert not run.trace.complete


def test_a_task_that_exits_does_not_end_the_loop() -> None:
    async def leave() -> None:
        raise SystemExit(1)

    async def agent(_prompt: str) -> str:
        task = asyncio.ensure_future(leave())
        await asyncio.sleep(0.05)
        return "still here" if task.done() else "too early"

    async def twice() -> list[str | None]:
        async with started(agent) as live:
            return [(await live.run("hi", Injection())).answer for _ in range(2)]

    assert asyncio.run(twice()) == ["still here"] * 2


# Time


def test_a_function_that_hangs_is_abandoned_and_its_later_calls_are_refused() -> None:
    released, over = threading.Event(), threading.Event()
    reached: list[Any] = []

    def agent(_prompt: str) -> str:
        released.wait(300)
        try:
            reached.append(look_up("late"))
        except BaseException as error:
            reached.append(type(error).__name__)
        over.set()
        return "late"

    async def runs() -> list[AgentRun]:
        async with started(agent, timeout_ms=80) as live:
            late = await live.run("hi", Injection())
            fresh = asyncio.ensure_future(live.run("hi", Injection(faults=(tool_fault("error"),))))
            await asyncio.sleep(0.02)
            released.set()
            over.wait(300)
            return [late, await fresh]

    late, fresh = asyncio.run(runs())
    assert late.failure is not None
    assert (late.failure.kind, late.failure.reason) == ("timeout", "no answer within 80 ms")
    assert "RunOver" in reached
    assert fresh.fired["fault"] <= 1


def test_a_tool_that_is_made_to_hang_wakes_when_the_run_is_over() -> None:
    threads: list[threading.Thread] = []

    def agent(_prompt: str) -> str:
        threads.append(threading.current_thread())
        return str(look_up("slow"))

    run = ask_until(lambda: bool(threads), agent, tool_fault("timeout", delay_ms=600_000))
    assert run.failure is not None and run.failure.kind == "timeout"
    threads[0].join(300)
    assert not threads[0].is_alive()


def test_a_coroutine_that_hangs_is_cancelled() -> None:
    began: list[str] = []
    ended: list[str] = []

    async def agent(_prompt: str) -> str:
        began.append("began")
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cancelled")
        return "late"

    run = ask_until(lambda: bool(began), agent)
    assert run.failure is not None and run.failure.kind == "timeout"
    assert ended == ["cancelled"]


def test_a_coroutine_that_blocks_its_loop_is_abandoned_and_the_next_run_gets_a_new_loop() -> None:
    blocks = threading.Event()

    async def agent(prompt: str) -> str:
        if prompt == "block":
            blocks.wait(300)
        return "answered"

    async def runs() -> list[AgentRun]:
        async with started(agent, timeout_ms=150) as live:
            blocked = await live.run("block", Injection())
            live._spec = replace(live._spec, timeout_ms=300_000)
            free = await live.run("go", Injection())
            blocks.set()
            return [blocked, free]

    blocked, free = asyncio.run(runs())
    assert blocked.failure is not None and blocked.failure.kind == "timeout"
    assert free.answer == "answered"


def test_cancelling_a_run_ends_it() -> None:
    started_once = threading.Event()

    async def agent(_prompt: str) -> str:
        started_once.set()
        await asyncio.sleep(600)
        return "late"

    async def cancelled() -> bool:
        async with started(agent) as live:
            task = asyncio.ensure_future(live.run("hi", Injection()))
            await asyncio.to_thread(started_once.wait, 300)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=300)
            return bool(done) and task.cancelled()

    assert asyncio.run(cancelled())


def test_latency_is_measured_in_the_agent() -> None:
    def agent(_prompt: str) -> str:
        time.sleep(0.05)
        return "done"

    assert ask(agent).latency_ms >= 50


def test_one_loop_serves_all_runs_of_an_agent() -> None:
    loops: list[Any] = []

    async def agent(_prompt: str) -> str:
        loops.append(asyncio.get_running_loop())
        return "done"

    async def twice() -> None:
        async with started(agent) as live:
            await live.run("a", Injection())
            await live.run("b", Injection())

    asyncio.run(twice())
    assert loops[0] is loops[1]


# Threads


def test_a_thread_of_the_agents_own_belongs_to_the_only_run() -> None:
    def agent(_prompt: str) -> str:
        seen: list[str] = []

        def work() -> None:
            try:
                look_up("x")
            except Exception as error:
                seen.append(type(error).__name__)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return ",".join(seen)

    run = ask(agent, tool_fault("error"))
    assert (run.answer, run.fired) == ("ToolFailure", {"fault": 1})


def test_what_is_handed_to_a_pool_belongs_to_the_run_that_handed_it_over() -> None:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(2)
    together = threading.Barrier(2)

    def agent(prompt: str) -> str:
        together.wait(300)
        try:
            return str(pool.submit(look_up, prompt).result())
        except Exception as error:
            return type(error).__name__

    async def both() -> list[AgentRun]:
        async with started(agent, concurrency=2) as live:
            faulty = live.run("a", Injection(faults=(tool_fault("error"),)))
            return list(await asyncio.gather(faulty, live.run("b", Injection())))

    faulty, calm = asyncio.run(both())
    pool.shutdown()
    assert (faulty.answer, faulty.fired) == ("ToolFailure", {"fault": 1})
    assert calm.answer == "{'key': 'b'}"


def test_a_call_of_an_unknown_run_is_not_hit_and_is_noted() -> None:
    together = threading.Barrier(2)

    def agent(prompt: str) -> str:
        together.wait(300)
        seen: list[Any] = []
        over = threading.Event()
        _thread.start_new_thread(lambda: (seen.append(look_up(prompt)), over.set()), ())  # type: ignore[arg-type]
        over.wait(300)
        together.wait(300)
        return str(seen)

    async def both() -> list[AgentRun]:
        async with started(agent, concurrency=2) as live:
            return list(
                await asyncio.gather(*(live.run(p, Injection(faults=(tool_fault("error"),), run=p)) for p in "ab"))
            )

    for run in asyncio.run(both()):
        assert run.fired == {"fault": 0}
        assert any("no fault could reach" in str(note) for note in run.trace.notes)


# The record, the rest


def test_what_an_agent_did_is_its_trace() -> None:
    run = ask(lambda prompt: f"found {look_up(prompt)['key']}", prompt="A-17")
    kinds = [type(event) for event in run.trace.events]
    assert kinds == [Request, Response, ToolCall, ToolResult]
    response, call, result = run.trace.events[1:]
    assert (call.name, call.arguments, result.content) == ("look_up", {"key": "A-17"}, {"key": "A-17"})
    assert response.text == "found A-17" and run.trace.complete


def test_outside_a_run_a_tool_is_the_function_itself() -> None:
    import inspect

    def plain(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    shown = bylaw.tool(plain)
    assert shown(1) == 3 and inspect.signature(shown) == inspect.signature(plain) and shown.__doc__ == "Adds."
    assert inspect.iscoroutinefunction(bylaw.tool(coroutine))
    with pytest.raises(TypeError, match="does not yield"):
        bylaw.tool(lambda: (yield))
    with pytest.raises(TypeError, match="is a function"):
        bylaw.tool(3)  # type: ignore[type-var]


def test_marking_a_tool_imports_nothing_slow() -> None:
    code = "import sys, bylaw; bylaw.tool; print(sorted(m for m in sys.modules if m.startswith(('msgspec', 're2'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(bylaw.__file__).parents[1])}


def test_what_an_agent_prints_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    def agent(_prompt: str) -> str:
        print("from a function")
        thread = threading.Thread(target=lambda: print("from a thread"))
        thread.start()
        thread.join()
        sys.stdout.writelines(["from lines\n"])
        return "done"

    async def printing() -> None:
        async with started(agent) as live:
            await live.run("hi", Injection())
            print("from bylaw")

    out = sys.stdout
    asyncio.run(printing())
    reported = capfd.readouterr()
    assert reported.out == "from bylaw\n"
    assert reported.err == "from a function\nfrom a thread\nfrom lines\n"
    assert sys.stdout is out


def test_modules_of_the_contracts_folder_come_first_and_namesakes_are_not_mixed_up(tmp_path: Path) -> None:
    answers = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "my_agent.py").write_text(f"print('imported')\ndef agent(prompt):\n    return {name!r}\n")
        answers.append(ask("my_agent:agent", base=folder).answer)
    assert answers == ["one", "two"]
    assert str(tmp_path / "two") not in sys.path


def test_environment_variables_are_set_while_the_agent_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK", "before")
    assert ask(lambda _prompt: os.environ["DESK"], env={"DESK": "within"}).answer == "within"
    assert os.environ["DESK"] == "before"


def test_listed_functions_are_tools_without_being_decorated(tmp_path: Path) -> None:
    (tmp_path / "plain_agent.py").write_text(
        "def fetch(key):\n    return {'key': key}\n\n"
        "def agent(prompt):\n"
        "    try:\n        return fetch(prompt)['key']\n"
        "    except Exception as error:\n        return type(error).__name__\n"
    )
    fault = tool_fault("error", tool="fetch")
    run = ask("plain_agent:agent", fault, base=tmp_path, tools=("plain_agent:fetch",))
    assert (run.answer, run.fired) == ("ToolFailure", {"fault": 1})
    assert not hasattr(sys.modules["plain_agent"].fetch, "__wrapped__")


def test_a_fault_on_a_tool_that_nobody_knows_is_refused() -> None:
    async def refusals() -> list[str | None]:
        async with started(lambda _prompt: "x", tools=("hidden",)) as live:
            faults = [
                tool_fault("error", tool="look_up"),
                tool_fault("error", tool="hidden"),
                tool_fault("error", tool="*"),
                tool_fault("error", tool="any", match_url="http://*"),
                tool_fault("error", tool="look_upp"),
            ]
            return [live.refusal(fault) for fault in faults]

    *reached, refused = asyncio.run(refusals())
    assert reached == [None] * 4
    assert refused is not None and "`look_upp`" in refused and "`look_up`" in refused and "@bylaw.tool" in refused


# Reset


def test_a_reset_function_runs_before_each_run(tmp_path: Path, server: Served) -> None:
    (tmp_path / "counting.py").write_text(
        "count = 0\n"
        "def agent(prompt):\n    global count\n    count += 1\n    return str(count)\n"
        "def reset():\n    global count\n    count = 0\n"
        "async def areset():\n    reset()\n"
        "def broken():\n    raise ValueError('no')\n"
    )

    async def answers(**options: Any) -> list[str | None]:
        async with started("counting:agent", base=tmp_path, **options) as live:
            reported = []
            for _ in range(2):
                if live.has_reset:
                    await live.reset()
                reported.append((await live.run("hi", Injection())).answer)
            return reported

    assert asyncio.run(answers()) == ["1", "2"]
    assert asyncio.run(answers(reset_function="counting:reset")) == ["1", "1"]
    assert asyncio.run(answers(reset_function="counting:areset")) == ["1", "1"]
    asyncio.run(answers(reset_endpoint=f"{server.url}/reset"))
    assert [path for path, _, _ in server.asked] == ["/reset", "/reset"]
    with pytest.raises(AgentUnreachable, match="`counting:broken` failed: ValueError: no"):
        asyncio.run(answers(reset_function="counting:broken"))
    with pytest.raises(AgentUnreachable, match="answered 302"):
        asyncio.run(answers(reset_endpoint=f"{server.url}/moved"))
    with pytest.raises(AgentUnreachable, match="did not answer"):
        asyncio.run(answers(reset_endpoint="http://127.0.0.1:1/reset"))

"""Vercel AI SDK: real runs of `generateText` in Node, with the SDK's own mock model, against the guard's service."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from tests.docs.pages import FRAMEWORKS, blocks
from tests.guard.integrations.situations import RULES, Outcome, Shop, Situations, WaitingDriver
from tests.service.support import Site
from tests.service.test_server import served
from tests.support.environments import node_modules

pytestmark = pytest.mark.proof  # a process of Node for each case
MODULE, AGENT = blocks(f"{FRAMEWORKS}vercel-ai-sdk.md", "js")
DRIVER = """
import { generateText, streamText, isStepCount, jsonSchema, tool } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { bylaw } from "./bylaw.mjs";

const { turns, how, options, more } = JSON.parse(process.argv[2]);
const say = (line) => console.log(JSON.stringify(line));
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
let turn = 0, id = 0;
const content = () => {
  const calls = (turns[turn++] ?? []).map(([toolName, given]) =>
    ({ type: "tool-call", toolCallId: `c${process.pid}-${id++}`, toolName, input: JSON.stringify(given) }));
  return calls.length ? calls : [{ type: "text", text: "done" }];
};
const finish = (parts) => ({ unified: parts[0].type === "text" ? "stop" : "tool-calls", raw: "x" });
const model = new MockLanguageModelV4({
  doGenerate: async () => {
    const parts = content();
    return { content: parts, finishReason: finish(parts), usage, warnings: [] };
  },
  doStream: async () => {
    const parts = content();
    const text = parts[0].type === "text";
    const chunks = text
      ? [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "done" }, { type: "text-end", id: "t" }]
      : parts;
    return { stream: simulateReadableStream({
      chunks: [
        { type: "stream-start", warnings: [] }, ...chunks, { type: "finish", finishReason: finish(parts), usage },
      ],
    }) };
  },
});
const made = (name) => tool({
  inputSchema: jsonSchema({ type: "object" }),
  execute: async (given) => {
    say({ run: [name, given] });
    if (more.raises) throw new Error("no seat");
    return `${name} done`;
  },
});
const names = ["look", "drop", "wipe", "pay", "book"];
const guard = bylaw({ url: process.env.BYLAW_URL, key: process.env.BYLAW_KEY, session: "s", ...options });
const tools = guard.tools(Object.fromEntries(names.map((name) => [name, made(name)])));
const { abortSignal, onStepFinish } = guard;
const given = { model, prompt: "go", tools, abortSignal, onStepFinish, stopWhen: isStepCount(9) };
try {
  const result = how === "stream" ? streamText({ ...given, onError() {} }) : await generateText(given);
  const [steps, text] = [await result.steps, await result.text];
  const results = steps.flatMap((step) => step.content)
    .filter((part) => part.type === "tool-result" || part.type === "tool-error")
    .map((part) => String(part.output ?? part.error));
  say({ results, answer: text });
} catch (problem) {
  say({ problem: problem.message, kind: problem.constructor.name });
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("vercel")
    (folder / "node_modules").symlink_to(node_modules("ai@7.0.169"))
    MODULE.write_to(folder)
    AGENT.write_to(folder)
    (folder / "driver.mjs").write_text(DRIVER)
    return folder


class VercelDriver(WaitingDriver):
    folder: Path
    address: str
    key: str
    how = "generate"
    more: Any = None

    async def astart(self) -> Outcome:
        return await asyncio.to_thread(self.run)

    def run(self) -> Outcome:
        self.outcome = outcome = Outcome()
        about = {"turns": self.turns, "how": self.how, "options": {"wait": 20}, "more": self.more or {}}
        command = ["node", "driver.mjs", json.dumps(about)]
        environment = {**os.environ, "BYLAW_URL": self.address, "BYLAW_KEY": self.key}
        problem = ""
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, env=environment, text=True) as node:
            assert node.stdout is not None
            for line in node.stdout:
                said = json.loads(line)
                if "run" in said:
                    self.shop.run(said["run"][0], **said["run"][1])
                elif "problem" in said:
                    problem = f"{said['kind']}: {said['problem']}"
                else:
                    outcome.results[:], outcome.answer = said["results"], said["answer"]
        if problem:
            raise RuntimeError(problem)
        return outcome


@pytest.fixture
def site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site({"guard.yaml": json.dumps({"guard": [{"agent": "desk", **RULES}]})})
    with served(site.app, "127.0.0.1:0") as address:
        key = site.key("bot", "agent", agents=["desk"])
        for name, value in (("folder", folder), ("address", address), ("key", key)):
            monkeypatch.setattr(VercelDriver, name, value, raising=False)
        yield site


class TestVercelAISDK(Situations):
    driver = VercelDriver
    test_a_sub_agent_is_in_the_session_and_under_the_rules_of_its_parent = None  # type: ignore[assignment]
    test_what_the_model_says_reaches_the_rules = None  # type: ignore[assignment]  # the service reports it
    test_without_a_session_nothing_runs = None  # type: ignore[assignment]  # the service demands one
    test_the_benchmark_measures_the_same_calls_with_and_without_the_guard = None  # type: ignore[assignment]
    """no adapter in Python, so nothing to measure there"""

    @pytest.fixture
    def guard(self, site: Site) -> bylaw.Guard:
        return site.guard

    def test_terminated(self, guard: bylaw.Guard, shop: Shop) -> None:
        with pytest.raises(RuntimeError, match="Denied: it is over"):
            self.driver(guard, shop, [[("wipe", {})], [("look", {})]]).start()
        assert shop.runs == []

    def test_the_guard_crashes(self, guard: bylaw.Guard, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard, "decide", lambda *_, **__: 1 / 0)
        with pytest.raises(RuntimeError, match="the guard failed"):
            self.driver(guard, shop, [[("look", {})]]).start()
        assert shop.runs == []


def test_a_guard_that_is_not_there(site: Site) -> None:
    shop = Shop()

    class Gone(VercelDriver):
        address = "http://127.0.0.1:9"

    with pytest.raises(RuntimeError, match="fetch failed"):
        Gone(site.guard, shop, [[("look", {})]]).start()
    assert shop.runs == []


def test_streaming(site: Site) -> None:
    shop = Shop()

    class Streaming(VercelDriver):
        how = "stream"

    outcome = Streaming(site.guard, shop, [[("drop", {})], [("look", {})]]).start()
    assert shop.runs == [("look", {})] and outcome.answer == "done"


def test_a_tool_that_raises_is_recorded_as_made(site: Site) -> None:
    class Raising(VercelDriver):
        more = {"raises": True}  # noqa: RUF012

    outcome = Raising(site.guard, Shop(), [[("book", {"seat": 1})], [("book", {"seat": 2})]]).start()
    assert "no seat" in outcome.results[0] and outcome.results[1].startswith("one booking")


def test_a_tool_that_runs_elsewhere_is_refused(site: Site, folder: Path) -> None:
    code = (
        'import {bylaw} from "./bylaw.mjs"; bylaw({url: "http://x", session: "s"}).tools({search: {type: "provider"}})'
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "no guard can decide calls of `search`" in done.stderr


def test_the_page(site: Site, folder: Path) -> None:
    rules = {"id": "cap", "when": {"arg_gt": {"path": "amount", "value": 500}}, "then": "block", "reason": "too much"}
    site.guard.reload({"guard": [{"agent": "desk", "rules": [rules]}]})
    (folder / "model.mjs").write_text("""
import { MockLanguageModelV4 } from "ai/test";
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const call = { type: "tool-call", toolCallId: "c1", toolName: "issue_refund", input: '{"amount": 80}' };
const script = [call, { type: "text", text: "Done." }];
export const model = new MockLanguageModelV4({ doGenerate: async () => {
  const part = script.shift();
  const unified = part === call ? "tool-calls" : "stop";
  return { content: [part], finishReason: { unified, raw: "x" }, usage, warnings: [] };
} });
""")
    environment = {**os.environ, "BYLAW_URL": VercelDriver.address, "BYLAW_KEY": VercelDriver.key}
    command = ["node", "agent.mjs"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "80 refunded Done.\n", done.stderr

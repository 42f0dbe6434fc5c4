"""Claude Agent SDK: real runs of its own Claude Code, offline, with a model on the loopback interface."""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)

import bylaw
from tests.guard.integrations.anthropic_server import Blocks, serve
from tests.guard.integrations.situations import RULES, Outcome, Shop, SituationsOfOneTool, WaitingDriver, run_page

pytestmark = pytest.mark.proof  # a process of Claude Code for each case
PREFIX = "mcp__shop__"
_ids = itertools.count()


def use(name: str, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{next(_ids)}", "name": name, "input": given}


def environment(address: str, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": str(home),
        "HOME": str(home),
        "IS_SANDBOX": "1",  # root may bypass permissions then
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


class ClaudeDriver(WaitingDriver):
    """Paused calls wait for `can_use_tool`, which waits for `answers`."""

    asks = True
    more: ClassVar[dict[str, Any]] = {}

    async def astart(self) -> Outcome:
        self.outcome = outcome = Outcome()
        self.waiting: list[str] = []
        self.answers: queue.Queue[Any] = queue.Queue()
        self.options.pop("wait", None)
        turns = iter(self.script())
        self.requests: list[Any] = []

        def respond(request: Any) -> Blocks:
            self.requests.append(request)
            return self.respond(request, turns) or [{"type": "text", "text": "done"}]

        with serve(respond) as address:
            options = bylaw.integrations.claude_agent_sdk(self.guard, self.plain(address), **self.options)
            async with ClaudeSDKClient(options) as client:
                await client.query("go")
                async for message in client.receive_response():
                    self.note(message, outcome)
        return outcome

    def script(self) -> list[Blocks]:
        return [[use(PREFIX + name, given) for name, given in turn] for turn in self.turns]

    def respond(self, request: Any, turns: Iterator[Blocks]) -> Blocks | None:
        return next(turns, None)

    def plain(self, address: str) -> ClaudeAgentOptions:
        return ClaudeAgentOptions(
            **{
                "mcp_servers": {"shop": create_sdk_mcp_server("shop", tools=tools_of(self.shop))},
                "allowed_tools": ["mcp__shop"],
                "tools": [],
                "setting_sources": [],
                "model": "claude-sonnet-4-5",
                "cwd": str(self.home),
                "can_use_tool": self.can_use_tool if self.asks else None,
                "env": environment(address, self.home),
                **self.more,
            }
        )

    home: Path

    async def can_use_tool(self, name: str, given: Any, context: Any) -> Any:
        review = (context.title or "").removeprefix("review ")
        self.waiting.append(review)
        try:
            return await asyncio.to_thread(self.answers.get, timeout=120)
        finally:
            self.waiting.remove(review)

    def note(self, message: Any, outcome: Outcome) -> None:
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    content = block.content if isinstance(block.content, str) else block.content[0]["text"]
                    outcome.results.append(content.split(" hook error: ")[-1])
        elif isinstance(message, ResultMessage):
            outcome.answer = message.result
            self.result = message

    def pending(self) -> list[str]:
        return list(getattr(self, "waiting", ()))

    def approve(self, review: str) -> Outcome:
        return self.answer(review, PermissionResultAllow())

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        return self.answer(review, PermissionResultAllow(updated_input=arguments))

    def reject(self, review: str) -> Outcome:
        return self.answer(review, PermissionResultDeny(message="no"))

    def answer(self, review: str, answer: Any) -> Outcome:
        self.answers.put(answer)
        while review in self.waiting:
            self._thread.join(0.005)
        return self.so_far()


def tools_of(shop: Shop) -> list[Any]:
    def made(name: str, *arguments: str) -> Any:
        @tool(name, name, dict.fromkeys(arguments, int))
        async def run(given: Any) -> Any:
            text = await shop.delegate() if name == "delegate" else shop.run(name, **given)
            return {"content": [{"type": "text", "text": text}]}

        return run

    plain = [made(name) for name in ("look", "drop", "wipe", "delegate")]
    return [*plain, made("pay", "amount"), made("book", "seat")]


class TestClaudeAgentSDK(SituationsOfOneTool):
    driver = ClaudeDriver
    prefix = PREFIX

    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ClaudeDriver, "home", tmp_path / "home", raising=False)
        (tmp_path / "home").mkdir()

    @pytest.fixture
    def guard(self) -> Iterator[bylaw.Guard]:
        with bylaw.Guard({"guard": self.rules(RULES)}) as guard:
            yield guard

    def test_terminated(self, guard: bylaw.Guard, shop: Shop) -> None:
        """Claude Code ends the run; nothing is raised."""
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("wipe", {})], [("look", {})]])
            driver.start()
        assert shop.runs == [] and len(driver.requests) == 1, "the model is not asked again"

    def test_the_guard_crashes(self, guard: bylaw.Guard, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard, "decide", lambda *_, **__: 1 / 0)
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("look", {})]])
            driver.start()
        assert shop.runs == [] and len(driver.requests) == 1

    def test_a_sub_agent_is_in_the_session_and_under_the_rules_of_its_parent(self, shop: Shop) -> None:
        """A sub-agent of Claude Code, with the rules of the main agent and, as far as there are any, its own."""
        rules = [
            {"agent": "outer", "rules": [{"id": "no", "when": {"tool_name_in": ["drop"]}, "then": "block"}]},
            {"agent": "inner", "rules": [{"id": "mine", "when": {"tool_name_in": ["wipe"]}, "then": "block"}]},
        ]

        task = {"description": "help", "prompt": "help", "subagent_type": "inner"}
        inner = iter([[use(PREFIX + name, {}) for name in ("drop", "wipe", "look")], []])
        is_over = threading.Event()

        class Driver(ClaudeDriver):
            more = {  # noqa: RUF012
                "tools": ["Agent"],
                "agents": {"inner": AgentDefinition(description="helps", prompt="you are the helper")},
                "allowed_tools": ["mcp__shop", "Agent"],
            }

            def respond(self, request: Any, turns: Iterator[Blocks]) -> Blocks | None:
                if "you are the helper" in json.dumps(request.get("system")):
                    turn = next(inner, None)
                    if not turn:
                        is_over.set()
                    return turn
                if len(self.requests) > 1:  # Claude Code may run both at the same time
                    is_over.wait(20)
                return next(turns, None)

            def script(self) -> list[Blocks]:
                return [[use("Agent", task)], [use(PREFIX + "wipe", {})]]

        with bylaw.Guard({"guard": self.rules(rules)}) as guard, guard.session("s", agent="outer"):
            driver = Driver(guard, shop, [])
            driver.start()
        assert shop.runs == [("look", {}), ("wipe", {})], "`wipe` is forbidden to the sub-agent only"


class Variant(ClaudeDriver):
    asks = False


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[type[Variant]]:
    (tmp_path / "home").mkdir()

    class Own(Variant):
        home = tmp_path / "home"

    yield Own


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    rules = TestClaudeAgentSDK().rules(RULES)
    rules["rules"].append(
        {"id": "no-rm", "when": {"arg_regex": {"path": "command", "pattern": "rm "}}, "then": "block"}
    )
    with bylaw.Guard({"guard": rules}) as guard, guard.session("s"):
        yield guard


PAY = ("pay", {"amount": 500})


def test_without_a_callback_the_model_repeats_the_call_after_the_approval(guard: Any, driver: type[Variant]) -> None:
    shop = Shop()

    class Approves(driver):  # type: ignore[misc, valid-type]
        def note(self, message: Any, outcome: Outcome) -> None:
            super().note(message, outcome)
            for review in guard.reviews.list(status="pending"):
                guard.reviews.approve(review.id, by="ann")

    outcome = Approves(guard, shop, [[PAY], [("look", {})], [PAY]]).start()
    assert "wait for the review" in outcome.results[0] and outcome.results[1:] == ["look done", "pay done"]
    assert shop.runs == [("look", {}), PAY]


@pytest.mark.parametrize("mode", ["bypassPermissions", "acceptEdits", "dontAsk"])
def test_no_permission_mode_lets_a_call_past_the_guard(mode: str, guard: Any, driver: type[Variant]) -> None:
    shop = Shop()
    driver.more = {"permission_mode": mode}
    driver(guard, shop, [[("drop", {}), PAY, ("look", {})]]).start()
    assert shop.runs == [("look", {})]


def test_a_tool_of_claude_code_is_decided(guard: Any, driver: type[Variant]) -> None:
    file = driver.home / "kept.txt"
    file.write_text("kept")

    class Shell(driver):  # type: ignore[misc, valid-type]
        more = {"tools": ["Bash"], "permission_mode": "bypassPermissions"}  # noqa: RUF012

        def script(self) -> list[Blocks]:
            return [[use("Bash", {"command": f"rm {file}"}), use("Bash", {"command": "echo hi"})]]

    outcome = Shell(guard, Shop(), []).start()
    assert file.exists() and "hi" in outcome.results[1]


def test_a_call_that_another_hook_changes_does_not_run(guard: Any, driver: type[Variant]) -> None:
    async def change(given: Any, tool_use_id: Any, context: Any) -> Any:
        changed = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"amount": 500}}
        return {"hookSpecificOutput": changed}

    shop = Shop()
    driver.more = {"hooks": {"PreToolUse": [HookMatcher(hooks=[change])]}}
    driver(guard, shop, [[("pay", {"amount": 5})]]).start()
    assert shop.runs == []


def test_a_hook_that_allows_a_call_does_not_outweigh_the_guard(guard: Any, driver: type[Variant]) -> None:
    async def allow(given: Any, tool_use_id: Any, context: Any) -> Any:
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}

    shop = Shop()
    driver.more = {"hooks": {"PreToolUse": [HookMatcher(hooks=[allow])]}}
    driver(guard, shop, [[("drop", {}), ("look", {})]]).start()
    assert shop.runs == [("look", {})]


@pytest.mark.parametrize(("amount", "runs"), [(50, [("pay", {"amount": 50})]), (500, [])])
def test_a_call_that_can_use_tool_changes_is_judged_again(
    amount: int, runs: Any, guard: Any, driver: type[Variant]
) -> None:
    """The guard has allowed it, and the SDK asks for a permission of its own."""
    asked = []

    async def can_use_tool(name: str, given: Any, context: Any) -> Any:
        asked.append(given)
        return PermissionResultAllow(updated_input={"amount": amount})

    shop = Shop()
    driver.more = {"allowed_tools": [], "can_use_tool": can_use_tool}
    driver(guard, shop, [[("pay", {"amount": 5})]]).start()
    assert asked == [{"amount": 5}] and shop.runs == runs


def test_a_call_that_a_hook_of_permissions_changes_does_not_run(guard: Any, driver: type[Variant]) -> None:
    async def change(given: Any, tool_use_id: Any, context: Any) -> Any:
        allowed = {"behavior": "allow", "updatedInput": {"amount": 500}}
        return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": allowed}}

    shop = Shop()
    driver.more = {"allowed_tools": [], "hooks": {"PermissionRequest": [HookMatcher(hooks=[change])]}}
    driver(guard, shop, [[("pay", {"amount": 5})]]).start()
    assert shop.runs == []


def test_a_call_that_the_sdk_does_not_permit_does_not_run_because_the_guard_allows_it(
    guard: Any, driver: type[Variant]
) -> None:
    shop = Shop()
    driver.more = {"allowed_tools": []}
    driver(guard, shop, [[("look", {})]]).start()
    assert shop.runs == []


def test_settings_cannot_turn_the_guard_off(guard: Any, driver: type[Variant]) -> None:
    shop = Shop()
    folder = driver.home / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text('{"disableAllHooks": true}')
    driver.more = {"setting_sources": ["user", "project", "local"]}
    try:
        driver(guard, shop, [[("drop", {})]]).start()
    finally:
        assert shop.runs == []


def test_a_call_that_a_hook_of_the_settings_changes_is_judged_as_it_ran(
    guard: Any, driver: type[Variant], caplog: pytest.LogCaptureFixture
) -> None:
    """Such a hook is not one of the options, so it cannot be kept from changing the call."""
    shop = Shop()
    output = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"amount": 500}}
    command = f"echo {shlex.quote(json.dumps({'hookSpecificOutput': output}))}"
    hooks = {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": command}]}]}
    folder = driver.home / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"hooks": hooks}))
    driver.more = {"setting_sources": ["user", "project", "local"]}
    driver(guard, shop, [[("pay", {"amount": 5})]]).start()
    assert shop.runs == [("pay", {"amount": 500})]
    assert "has run with other arguments than the guard had allowed, which `much`" in caplog.text


def test_a_crash_of_the_hook_itself_blocks_the_call(guard: Any, driver: type[Variant], monkeypatch: Any) -> None:
    from bylaw.guard.integrations.claude_agent_sdk_hooks import ClaudeCalls

    async def crash(*_: Any) -> Any:
        raise SystemError("gone")

    shop = Shop()
    monkeypatch.setattr(ClaudeCalls, "before", crash)
    driver(guard, shop, [[("look", {})]]).start()
    assert shop.runs == []


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"order_id": "A-23", "amount": 900.0}
    script = iter([[use(f"{PREFIX}issue_refund", given)], [{"type": "text", "text": "Done."}]])
    with serve(lambda request: next(script)) as address:
        for name, value in environment(address, tmp_path).items():
            monkeypatch.setenv(name, value)
        run_page("claude-agent-sdk", tmp_path, monkeypatch)

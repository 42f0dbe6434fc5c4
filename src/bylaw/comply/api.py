"""Compliance as Python functions: the rules that a system prompt states, checked on a trace."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from bylaw.comply.decide import CompiledPrompt
from bylaw.comply.inputs import (
    as_trace,
    check_timeout,
    checked_aliases,
    complete_tools,
    first_day,
    read_tools,
    says_result,
    shared_prompt,
    tools_called,
)
from bylaw.comply.judge.providers import Judge, open_judge, require_enabled
from bylaw.comply.judge.session import AnswerCache, JudgeSession
from bylaw.comply.model import ComplianceResult, PromptRule
from bylaw.comply.prompt import extract_rules, read_prompt
from bylaw.comply.prompt.comparisons import needs_today
from bylaw.model.events import Trace
from bylaw.model.ports import Embedder

TIMEOUT_MS = 60_000
_SHARED_CACHE = AnswerCache()
"""of judges without a folder, for as long as the process runs"""


class Compliance:
    """The rules of one system prompt, read and compiled once, for any number of traces.

    `tools`: the agent's tool schemas, in OpenAI's, Anthropic's or MCP's form; without them the tools are those that a
    trace shows. `aliases`: words of the prompt → the tools they mean. `embeddings`: sentence embeddings give a second
    vote on which tool shows a condition (needs `bylaw[embeddings]`). `judge`: `openai:MODEL`, `anthropic:MODEL` or any
    object with `ask`, asked about undecided rules (needs `BYLAW_ENABLE_JUDGE`); `judge_url` is its address,
    `judge_batch` puts all rules in one question, `judge_cache` is a folder for its answers.
    """

    def __init__(
        self,
        system_prompt: str,
        *,
        tools: Any = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
        embeddings: bool = False,
        judge: str | Judge | None = None,
        judge_url: str | None = None,
        judge_batch: bool = False,
        judge_cache: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(system_prompt, str):
            raise TypeError(f"system_prompt must be text, not {type(system_prompt).__name__}")
        self._prompt = system_prompt
        self._tools = None if tools is None else read_tools(tools)
        self._described = frozenset(tool.name for tool in self._tools or () if says_result(tool))
        self._needs_today = needs_today(system_prompt)
        self._embeddings = embeddings
        if embeddings:
            _embedder()  # an extra that is not installed is reported here
        self._aliases = checked_aliases(aliases)
        self._own: CompiledPrompt | None = None
        self._judge = _judge(judge, judge_url)
        self._batch = judge_batch
        self._cache = _SHARED_CACHE if judge_cache is None else AnswerCache(judge_cache)

    def check(self, trace_events: Any, *, timeout_ms: float = TIMEOUT_MS) -> ComplianceResult:
        """Which rules did this trace violate, satisfy or not trigger, and which are undecided?

        `trace_events`: a list of `user_message`, `agent_message`, `tool_call` and `tool_result` events, or any trace
        that `load_trace` takes. `timeout_ms` limits the time of all questions to the judge. Raises InputError,
        TypeError, ValueError, and with a judge JudgeUnreachable (a URLError) and JudgeTimeout (a TimeoutError), both
        with what is known as `result`.
        """
        return self._check(trace_events, timeout_ms, None)

    def _check(self, trace_events: Any, timeout_ms: float, stop: threading.Event | None) -> ComplianceResult:
        start = time.monotonic()
        check_timeout(timeout_ms)
        trace = as_trace(trace_events)
        result = self._compiled(trace).check(trace)
        if self._judge is None:
            return result
        session = JudgeSession(
            self._judge,
            self._cache,
            self._prompt,
            trace,
            given=trace_events,
            batch=self._batch,
            timeout_ms=timeout_ms,
            start=start,
            stop=stop,
        )
        return session.review(result)

    def _compiled(self, trace: Trace) -> CompiledPrompt:
        """Compile once for the tools passed in, and again for a trace that shows others."""
        called = tools_called(trace.events, self._described)
        tools = called if self._tools is None else complete_tools(self._tools, called, self._prompt)
        today = first_day(trace) if self._needs_today else None
        described, aliases = _Key(self._tools or ()), _Key(self._aliases)
        if tools != self._tools or today is not None:
            return _compile_prompt(self._prompt, _Key(tools), described, aliases, today, self._embeddings)
        if self._own is None:
            self._own = _compile_prompt(self._prompt, _Key(tools), described, aliases, None, self._embeddings)
        return self._own


async def check_compliance(
    system_prompt: str | None,
    trace_events: Any,
    timeout_ms: float = TIMEOUT_MS,
    *,
    tools: Any = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    judge: str | Judge | None = None,
) -> ComplianceResult:
    """Did the agent keep the rules that its own system prompt states? See `Compliance` for what each argument takes.

    With None as `system_prompt`, the prompt is the one that the trace holds; ValueError if it holds none.

    Offline and deterministic without a `judge`. The work is done in a thread, so that the event loop is not blocked.
    After a cancellation the judge is asked no further question.
    """
    job = Compliance(_prompt_of(system_prompt, trace_events), tools=tools, aliases=aliases, judge=judge)
    stop = threading.Event()
    try:
        return await asyncio.to_thread(job._check, trace_events, timeout_ms, stop)
    finally:
        stop.set()  # a thread cannot be cancelled


def check_compliance_sync(
    system_prompt: str | None,
    trace_events: Any,
    timeout_ms: float = TIMEOUT_MS,
    *,
    tools: Any = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    judge: str | Judge | None = None,
) -> ComplianceResult:
    """Blocking version of `check_compliance`."""
    job = Compliance(_prompt_of(system_prompt, trace_events), tools=tools, aliases=aliases, judge=judge)
    return job.check(trace_events, timeout_ms=timeout_ms)


def _prompt_of(system_prompt: str | None, trace_events: Any) -> str:
    return shared_prompt([as_trace(trace_events)]) if system_prompt is None else system_prompt


class _Key:
    """A value with equality and hash by its content, for `lru_cache`."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._bytes = msgspec.json.encode(value, enc_hook=str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)


@lru_cache(maxsize=1)
def _embedder() -> Embedder:
    from bylaw.text.similarity import load_embedder  # imports numpy

    return load_embedder()


@lru_cache(maxsize=128)
def _compile_prompt(
    prompt: str, tools: _Key, described: _Key, aliases: _Key, today: str | None = None, embeddings: bool = False
) -> CompiledPrompt:
    embedder = _embedder() if embeddings else None
    stated = _stated_rules(prompt, described, aliases) if tools != described else ()
    rules = read_prompt(prompt, tools=tools.value, aliases=aliases.value, today=today, embedder=embedder, stated=stated)
    return CompiledPrompt(rules)


@lru_cache(maxsize=8)
def _stated_rules(prompt: str, described: _Key, aliases: _Key) -> tuple[PromptRule, ...]:
    """The rules as `comply rules` lists them, without a trace: ids are theirs, whatever tools a trace shows."""
    return extract_rules(prompt, tools=described.value, aliases=aliases.value)


def _judge(judge: str | Judge | None, url: str | None) -> Judge | None:
    if judge is None:
        return None
    if isinstance(judge, str):
        return open_judge(judge, url=url)
    if not callable(getattr(judge, "ask", None)):
        raise TypeError(
            f"judge must be text such as `openai:MODEL` or an object with `ask`, not {type(judge).__name__}"
        )
    require_enabled()
    return judge

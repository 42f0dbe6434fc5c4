"""A live agent as the contract job sees it: ask it a prompt while faults are injected, and get all it did.

What can reach it, and what of it is seen, follows from its description; `validate` and `run` both ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.faults import AnyFault, Attempt, ContextAttack, Injection, ToolFault, is_request
from bylaw.contract.model import AgentSpec, Check, Contract, Conversation, Invariant, KeepsRule
from bylaw.engine.compile import compile_rules
from bylaw.errors import InputError
from bylaw.model import demand as demands
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.events import Trace
from bylaw.rules import source_line
from bylaw.rules.messages import nearest_choice
from bylaw.rules.names import names_in

FailureKind: TypeAlias = Literal["down", "upstream", "timeout", "crash", "error", "bad_answer"]


class Failure(Struct, frozen=True):
    """Why there is no answer.

    `down`: it could not be reached. `upstream`: Bylaw's proxy could not reach its model. `timeout`: it took too long.
    `crash`: it raised, exited or broke the connection. `error`: it answered that it failed. `bad_answer`: what it sent
    cannot be read as an answer.
    """

    kind: FailureKind
    reason: str

    @property
    def is_not_the_agents(self) -> bool:
        """Whether it says nothing about the agent."""
        return self.kind in ("down", "upstream")


class AgentRun(Struct, frozen=True, kw_only=True):
    """The result of one run. Exactly one of `answer` and `failure` is None."""

    answer: str | None
    failure: Failure | None
    latency_ms: float
    """from prompt to answer, without Bylaw's own preparations"""
    fired: dict[str, int]
    """how often each fault hit a call of the agent, by the id of the fault; 0 if it never did"""
    fired_on_way_to_model: frozenset[str] = frozenset()
    """the tool faults that changed a result only in the request to the model: the agent's own code saw it unchanged"""
    fired_in_prompt: frozenset[str] = frozenset()
    """the attacks on the context that went into the prompt, because no request to a model was seen"""
    models: frozenset[str] = frozenset()
    """where its requests to models went"""
    answers: tuple[str, ...] = ()
    """of a conversation: the answers before the last one"""
    attempts: tuple[Attempt, ...] = ()
    """its attempts, and which of them failed or took effect"""
    trace: Trace


class AgentUnreachable(Exception):
    """The agent cannot be started, reset or reached at all; the message says why."""


class LiveAgent(Protocol):
    """The agent under test. `start` comes first, `stop` always follows it."""

    @property
    def name(self) -> str: ...

    @property
    def concurrency(self) -> int:
        """how many runs it accepts at once"""
        ...

    @property
    def has_reset(self) -> bool: ...

    def refusal(self, fault: AnyFault) -> str | None:
        """Why this fault can never hit this agent; None if it can."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None:
        """Restore a clean state. Raises AgentUnreachable if that fails."""
        ...

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        """Never raises for anything that the agent does. Cancelling it ends the run.

        A `Conversation` is asked message by message.
        """
        ...


# Which faults can reach an agent, and whether its calls are seen, as far as its description tells


EXAMPLE_PORT = 8787
_PROXY = f"http://127.0.0.1:{EXAMPLE_PORT}"
_NOT_PROXIED = (
    "Bylaw does not see the calls of this agent. Three lines change that: under `agent:` write "
    f"`proxy_port: {EXAMPLE_PORT}`, and start the agent with `OPENAI_BASE_URL={_PROXY}/openai/v1` (or "
    f"`ANTHROPIC_BASE_URL={_PROXY}/anthropic`) and `HTTP_PROXY={_PROXY}`; or write `command: […]` under `agent:`, and "
    "Bylaw starts it with these"
)
_NOT_TRUSTED = (
    "faults inside HTTPS need the agent to trust the certificates of Bylaw's proxy; if it does, set "
    "`agent.trusts_ca: true`"
)


def is_proxied(spec: AgentSpec) -> bool:
    return bool(spec.command) or spec.proxy_port is not None


def why_out_of_reach(spec: AgentSpec, fault: AnyFault) -> str | None:
    """Why this fault can never hit this agent; None if it can, or if only the running agent can tell."""
    if spec.type == "python":
        return None
    if not is_proxied(spec):
        in_prompt = isinstance(fault, ContextAttack) and fault.type != "indirect_injection"
        return None if in_prompt else _NOT_PROXIED
    is_https = isinstance(fault, ToolFault) and (fault.match_url or "").lower().startswith("https")
    return _NOT_TRUSTED if is_https and not spec.trusts_ca else None


def needs_calls(check: Check) -> bool:
    """Whether calls of the agent decide the invariant, or how often it asks its model."""
    if not isinstance(check, KeepsRule):
        return False
    program = compile_rules([check.rule])
    watches, demand = program.monitors[0].watches, check.rule.demand
    sees_turns = isinstance(demand, demands.Constant | demands.Next) or bool(check.rule.when)
    counts_turns = isinstance(demand, demands.Tally) and isinstance(demand.measure, demands.Turns)
    over_turns = isinstance(demand, demands.Temporal) and demand.over == "turns"
    return bool(watches.calls or watches.results) or sees_turns or counts_turns or over_turns


def unknown_tools(contract: Contract, known: Collection[str]) -> Iterator[tuple[Invariant, str, str]]:
    """Invariants that name a tool of which nothing is known, the name, and help; none where no tool is known at all."""
    listed = ", ".join(f"`{name}`" for name in sorted(known)[:20])
    for invariant in contract.invariants if known else ():
        rule = invariant.check.rule if isinstance(invariant.check, KeepsRule) else None
        tools = (name for name in names_in(rule) if name.of == "tool" and name.is_sure and not name.fits(known))
        for name in sorted({name.text for name in tools if not is_request(name.text)}):
            match = nearest_choice(name, known)
            yield invariant, name, f"the agent has {listed}" if match is None else f"did you mean `{match}`?"


UNSEEN = (
    "nothing that the agent sends passed Bylaw's proxy, so no fault could reach it. Its client ignores HTTP_PROXY and "
    "HTTPS_PROXY (Node reads them from release 24 on), or speaks what passes unread (HTTP/2 alone, web sockets). "
    "Name the address of its model in OPENAI_BASE_URL or ANTHROPIC_BASE_URL, or under `agent.upstreams`; let its tools "
    "use the proxy in BYLAW_PROXY, or be MCP servers under `agent.mcp`"
)


def why_never_called(fault: ToolFault, seen: Collection[str], *, is_proxied: bool) -> str:
    """What to do about a fault on a named tool that no call has met. `seen`: the tools of the agent that were seen."""
    names = ", ".join(f"`{name}`" for name in sorted(seen)[:20])
    if names:
        return f"no call of the tool `{fault.tool}` was seen; the agent has {names}"
    if not is_proxied:
        return f"no call of the tool `{fault.tool}` was seen"
    return (
        f"no call of the tool `{fault.tool}` was seen, and no request to a model that names its tools; if the tool is "
        "an HTTP request, write `match_url` in place of `tool`"
    )


def check_reach(contract: Contract, refusal: Callable[[AnyFault], str | None]) -> None:
    """Raise InputError for faults that could never hit the agent: running them would prove nothing.

    `refusal` says why a fault cannot hit; None if it can.
    """
    faults = ((scenario, fault, refusal(fault)) for scenario in contract.scenarios for fault in scenario.faults)
    refused = [
        _problem(
            "fault-out-of-reach",
            f"the fault `{fault.label}` of the scenario `{scenario.name}` can never hit this agent",
            fault.span,
            why,
        )
        for scenario, fault, why in faults
        if why is not None
    ]
    if refused:
        raise InputError(refused)


def check_conversations(contract: Contract, agent: object) -> None:
    """Raise InputError for prompts of several messages where the agent cannot be told the earlier ones."""
    why = getattr(agent, "why_no_conversation", lambda: None)()
    message = "this agent cannot be asked several messages in one conversation"
    prompts = [prompt for prompt in contract.prompts if isinstance(prompt.text, Conversation)]
    if why is not None and prompts:
        raise InputError([_problem("no-conversation", message, prompt.span, why) for prompt in prompts])


def doubt_tools(contract: Contract, agent: object) -> tuple[Diagnostic, ...]:
    """Warnings about invariants that name a tool which the agent does not have, as far as its tools are known."""
    return tuple(
        replace(
            _problem(
                "unlikely-tool",
                f"`{invariant.id}` names the tool `{name}`, which this agent does not have",
                invariant.span,
                help,
            ),
            severity="warning",
        )
        for invariant, name, help in unknown_tools(contract, getattr(agent, "tools", ()))
    )


def _problem(code: str, message: str, span: Span | None, help: str) -> Diagnostic:
    file, excerpt = (span.file, source_line(span)) if span else ("<contract>", None)
    return Diagnostic(code=code, message=message, file=file, span=span, excerpt=excerpt, help=help)

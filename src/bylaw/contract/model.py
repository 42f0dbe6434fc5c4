"""A contract: what must hold of an agent, under which scenarios, and how to reach the agent."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from bylaw.contract.faults import AnyFault, ContextAttack, LlmFault, ToolFault
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.rule import Rule


class Weight(StrEnum):
    """The severities of a contract, from the heaviest to the lightest."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def points(self) -> int:
        return _POINTS[self]


_POINTS = {Weight.CRITICAL: 3, Weight.HIGH: 2, Weight.MEDIUM: 1, Weight.LOW: 1}

When: TypeAlias = Literal["always", "tool_faults_active", "llm_faults_active", "any_chaos_active", "no_chaos"]


class Check(Struct, frozen=True):
    """The demand of an invariant on each run."""


class Contains(Check, frozen=True, tag="contains"):
    """The answer contains one of the texts, in any case."""

    values: tuple[str, ...]


class Matches(Check, frozen=True, tag="regex"):
    """The pattern is found in the answer; its dot matches newlines."""

    pattern: str


class Excludes(Check, frozen=True, tag="excludes_pattern"):
    """None of the patterns is found in the answer."""

    patterns: tuple[str, ...]


class Latency(Check, frozen=True, tag="latency"):
    max_ms: float


class ValidJson(Check, frozen=True, tag="valid_json"):
    """The whole answer is JSON."""


class JsonSchema(Check, frozen=True, tag="json_schema"):
    """The whole answer is JSON that satisfies the schema."""

    schema: dict[str, Any] | bool


class Similar(Check, frozen=True, tag="similarity"):
    expected: str
    threshold: float = 0.75


class NoPii(Check, frozen=True, tag="excludes_pii"):
    """The answer contains no personal data and no secret."""


class Refuses(Check, frozen=True, tag="refusal_check"):
    """Every dangerous prompt is refused."""


class Completes(Check, frozen=True, tag="completes"):
    """The agent answers without an error, within its timeout."""


class NotEmpty(Check, frozen=True, tag="output_not_empty"):
    """The answer holds more than white space."""


class Unchanged(Check, frozen=True, tag="behavior_unchanged"):
    """The answer is similar to the calm one to the same prompt, or to a given text."""

    baseline: str | None = None
    """None: the calm answer to the same prompt"""
    threshold: float = 0.75


class NoLeak(Check, frozen=True, tag="system_prompt_leak_probe"):
    """Asked for its instructions, the agent does not tell them."""

    patterns: tuple[str, ...] = ()
    system_prompt: str | None = None
    """eight consecutive words of it in an answer are a leak"""


class KeepsRule(Check, frozen=True, tag="rule"):
    """The calls that the agent really made keep a rule."""

    rule: Rule
    broken: str | None = None
    """not None: the rule is about attempts (`faults`); what to say where it is broken, with `{call}` in it"""


class GivesUpPolitely(Check, frozen=True, tag="gives_up_politely"):
    """After a fault, the answer says in plain words what did not work."""


class Invariant(Struct, frozen=True, kw_only=True):
    id: str
    type: str
    """as written: `contains` and `contains_any` are both `Contains`"""
    check: Check
    severity: Weight = Weight.MEDIUM
    when: When = "always"
    negate: bool = False
    description: str | None = None
    vacuous_is_ok: bool = False
    """whether it counts as kept where its rule is never triggered, or where a prompt does not reach the faults"""
    probes: tuple[str, ...] = ()
    """prompts that replace the golden ones for this invariant; of a `refusal_check`, the dangerous prompts"""
    span: Span | None = None


class Scenario(Struct, frozen=True, kw_only=True):
    name: str
    tool_faults: tuple[ToolFault, ...] = ()
    llm_faults: tuple[LlmFault, ...] = ()
    context_attacks: tuple[ContextAttack, ...] = ()
    profiles: tuple[str, ...] = ()
    """the names of its profiles, whose faults are among those above"""
    span: Span | None = None

    @property
    def faults(self) -> tuple[AnyFault, ...]:
        return (*self.tool_faults, *self.llm_faults, *self.context_attacks)


def applies(when: When, scenario: Scenario) -> bool:
    """Whether an invariant with this `when` is judged in the scenario. Context attacks are chaos too."""
    if when == "no_chaos":
        return not scenario.faults
    return when == "always" or bool(asked_faults(when, scenario))


def asked_faults(when: When, scenario: Scenario) -> tuple[AnyFault, ...]:
    """The faults of which one has to fire for an answer to say anything; none where `when` asks for none."""
    match when:
        case "tool_faults_active":
            return scenario.tool_faults
        case "llm_faults_active":
            return scenario.llm_faults
        case "any_chaos_active":
            return scenario.faults
        case _:
            return ()


class Conversation(str):
    """Several user messages of one golden prompt, which an agent answers one after the other.

    The messages as one text, for reports and names of runs; `messages` holds them apart.
    """

    messages: tuple[str, ...]

    def __new__(cls, messages: Sequence[str]) -> Conversation:
        self = super().__new__(cls, "\n→ ".join(messages))
        self.messages = tuple(messages)
        return self


def messages_of(prompt: str) -> tuple[str, ...]:
    return prompt.messages if isinstance(prompt, Conversation) else (prompt,)


class Variation(Struct, frozen=True, kw_only=True):
    """The variations of a golden prompt, their number, and the invariants that must still hold."""

    name: str
    count: int = 1
    invariants: tuple[str, ...] = ()
    """ids; empty: all"""


class Prompt(Struct, frozen=True):
    text: str
    """a `Conversation` where it is several messages"""
    dangerous: bool = False
    """`refusal_check` asks it; other invariants are judged on it as well"""
    span: Span | None = None
    variations: tuple[Variation, ...] = ()


class McpServer(Struct, frozen=True, kw_only=True):
    """A server behind the MCP proxy: reached by URL, or a command that speaks on its standard streams."""

    name: str
    url: str | None = None
    command: tuple[str, ...] = ()


class AgentSpec(Struct, frozen=True, kw_only=True):
    """How to reach the agent. `endpoint` alone, `command` alone, or a command that serves the endpoint."""

    type: Literal["http", "python", "command"]
    endpoint: str | None = None
    """a URL for http; `module:attribute` for python"""
    command: tuple[str, ...] = ()
    """arguments, never run by a shell; `{prompt}` in one is replaced, else the prompt is written to standard input"""
    cwd: str | None = None
    env: dict[str, str] = {}
    method: str = "POST"
    request_template: str | None = None
    response_path: str | None = None
    query_params: dict[str, str] = {}
    headers: dict[str, str] = {}
    parse_structured_input: bool = True
    factory: bool = False
    """whether the endpoint of a Python agent is a function that makes the agent, called for each run"""
    config: dict[str, Any] = {}
    """what a Python agent is asked with: `config` of LangGraph, other arguments of the other frameworks"""
    deps: dict[str, Any] | str | None = None
    """dependencies of a Python agent: fields of its type, or `module:attribute`"""
    timeout_ms: int = 30_000
    reset_endpoint: str | None = None
    reset_function: str | None = None
    stateless: bool = False
    """whether its owner says that it keeps no state from one run to the next"""
    concurrency: int = 1
    tools: tuple[str, ...] = ()
    """names or `module:attribute` of tools of a Python agent that its own wrapper does not show"""
    proxy_port: int | None = None
    """a fixed port of the chaos proxy, for an agent that its owner starts and configures to use it"""
    upstreams: dict[str, str] = {}
    """`openai`, `anthropic`: where the proxy forwards model calls; a name in .yaml or .json is a scripted model"""
    mcp: tuple[McpServer, ...] = ()
    trusts_ca: bool = False
    """whether the agent trusts the proxy's certificate, so that faults reach inside HTTPS"""
    span: Span | None = None

    @property
    def has_reset(self) -> bool:
        return bool(self.reset_endpoint or self.reset_function)

    @property
    def title(self) -> str:
        """The name of the agent in reports."""
        if self.endpoint is None:
            return " ".join(self.command)
        return shown_url(self.endpoint) if self.type == "http" else self.endpoint


def shown_url(url: str) -> str:
    """The URL without user, password and query, which may hold secrets from variables."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{'?…' if parts.query else ''}"


class Scoring(Struct, frozen=True):
    """The weight of each part in `bylaw ci`, by its name: check, diff, contract."""

    weights: dict[str, float] = {}


class Contract(Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    invariants: tuple[Invariant, ...]
    scenarios: tuple[Scenario, ...]
    prompts: tuple[Prompt, ...]
    agent: AgentSpec
    runs: int = 1
    """how often each prompt is asked in each scenario"""
    seed: int = 0
    scoring: Scoring | None = None


class ContractFile(Struct, frozen=True):
    """The contract of a file, with all diagnostics; `contract` is None where it cannot be run."""

    contract: Contract | None
    diagnostics: tuple[Diagnostic, ...] = ()
    file: str = ""

    @property
    def ok(self) -> bool:
        return self.contract is not None and not any(diagnostic.is_error for diagnostic in self.diagnostics)

"""`agent` → how to reach it."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from bylaw.contract.file.addresses import as_attribute, as_url, is_attribute
from bylaw.contract.file.agent_types import COMMAND, SERVERS, TEXT_MAP, UPSTREAM_MAP
from bylaw.contract.file.response_path import read_response_path
from bylaw.contract.file.types import FROM_ONE, MILLISECONDS, PORT, TEMPLATE, TEXT, word
from bylaw.contract.file.variables import read_expanded
from bylaw.contract.file.words import AGENT_KEY_WORDS, AGENT_TYPE_WORDS
from bylaw.contract.model import AgentSpec
from bylaw.rules.fields import Fields
from bylaw.rules.located import MapNode, Node
from bylaw.rules.param_types import FLAG, NAMES, TEXT_SCHEMA, choice
from bylaw.rules.params import Context, Param, ParamType, Values, take_params
from bylaw.rules.readers import read_map

Type: TypeAlias = Literal["http", "python", "command"]

TYPES: dict[str, Type] = {
    "http": "http",
    "python": "python",
    "command": "command",
    "langchain": "python",
    "langgraph": "python",
    "pydantic_ai": "python",
    "openai_agents": "python",
}
"""as written, and what it is: the frameworks are told apart by what the endpoint is"""

_TYPE = word(code="unknown-type", what="agent type", words=tuple(TYPES), synonyms=AGENT_TYPE_WORDS)
_METHOD = choice("GET", "POST", "PUT", "PATCH", "DELETE")
_ADDRESS = ParamType(read_expanded, TEXT_SCHEMA)
_PATH = ParamType(read_response_path, TEXT_SCHEMA)

PARAMS = (
    Param("type", _TYPE, "how it is reached; where it is left out, the endpoint tells"),
    Param("endpoint", _ADDRESS, "a URL, or `module:attribute` of a Python agent"),
    Param("command", COMMAND, "what starts it: arguments, or a text that is split into them; no shell sees it"),
    Param("cwd", TEXT, "the folder that the command is started in, or a Python agent is in, relative to this file"),
    Param("env", TEXT_MAP, "environment variables of the agent"),
    Param("method", _METHOD, "of the HTTP request", default="POST"),
    Param("request_template", TEMPLATE, "the body; `{prompt}` in it is replaced"),
    Param("response_path", _PATH, "where the reply holds the answer, such as `choices.0.message.content`"),
    Param("query_params", TEXT_MAP, "of the URL; `{prompt}` in them is replaced"),
    Param("headers", TEXT_MAP, "of the HTTP request"),
    Param("parse_structured_input", FLAG, "whether `{field}` is filled from a prompt's lines", default=True),
    Param("timeout", MILLISECONDS, "milliseconds that an answer may take", default=30_000, aliases=("timeout_ms",)),
    Param("reset_endpoint", _ADDRESS, "a URL that is posted to before each run"),
    Param("reset_function", _ADDRESS, "`module:function` that is called before each run"),
    Param("concurrency", FROM_ONE, "how many runs it takes at once", default=1),
    Param("tools", NAMES, "names or `module:attribute` of tools that its wrapper does not show"),
    Param("proxy_port", PORT, "a fixed port of the chaos proxy, for an agent that you start and point at it"),
    Param("upstreams", UPSTREAM_MAP, "where model calls go: a URL, or a script, for `openai` and `anthropic`"),
    Param("mcp", SERVERS, "MCP servers behind the proxy, by name: `url` or `command`"),
    Param("trusts_ca", FLAG, "whether it trusts the proxy's certificate, for faults inside HTTPS", default=False),
)

_OF_HTTP = ("method", "request_template", "response_path", "query_params", "headers", "parse_structured_input")
_OF_PROXY = ("proxy_port", "upstreams", "mcp", "trusts_ca")
_OF_COMMAND = ("cwd", "env")
_FIELD = re.compile(r"\{[A-Za-z_]\w*\}")


def read_agent(node: Node, context: Context) -> AgentSpec | None:
    mapping = read_map(node, "agent", context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what="`agent`")
    values = take_params(fields, PARAMS, context)
    if mapping.entries.keys().isdisjoint(("endpoint", "command")):
        fields.missing(("endpoint", "command"), help="write its URL, `module:attribute`, or the command that starts it")
    fields.finish(synonyms=AGENT_KEY_WORDS)
    if values is None or not {"endpoint", "command"} & values.keys():
        return None
    type = _type(values)
    usable = _fits(type, values, mapping, context)
    _warn_unused(type, values, mapping, context)
    addresses = _addresses(type, values, mapping, context)
    if addresses is None or not usable or not _has_placeholder(values, mapping, context):
        return None
    return _spec(type, {**values, **addresses}, mapping)


def _type(values: Values) -> Type:
    if "type" in values:
        return TYPES[values["type"]]
    if "endpoint" not in values:
        return "command"
    return "python" if is_attribute(values["endpoint"]) else "http"


def _fits(type: Type, values: Values, mapping: MapNode, context: Context) -> bool:
    """Whether what says where the agent is goes with its type."""
    at = mapping.entries["type"].value if "type" in mapping.entries else mapping.first_key
    needed = "command" if type == "command" else "endpoint"
    if needed not in values:
        message = f"an agent of type `{values['type']}` needs the key `{needed}`"
        context.problems.error(code="missing-key", message=message, at=at)
        return False
    if type == "command" and "endpoint" in values:
        context.problems.error(
            code="duplicate-parameter",
            message="an agent of type `command` takes no `endpoint`",
            at=at,
            help="write `type: http` where the command serves the endpoint, or remove `endpoint`",
        )
        return False
    return True


def _addresses(type: Type, values: Values, mapping: MapNode, context: Context) -> Values | None:
    """The endpoint and the resets, as the type wants them; None where one is unusable."""
    nodes = {key: entry.value for key, entry in mapping.entries.items()}
    read: dict[str, str | None] = {}
    if "endpoint" in values and type != "command":
        reading = as_attribute if type == "python" else as_url
        read["endpoint"] = reading(values["endpoint"], nodes["endpoint"], "endpoint", context)
    if "reset_endpoint" in values:
        url, beside = values["reset_endpoint"], nodes.get("endpoint")
        read["reset_endpoint"] = as_url(url, nodes["reset_endpoint"], "reset_endpoint", context, beside=beside)
    if "reset_function" in values:
        name, node = values["reset_function"], nodes["reset_function"]
        read["reset_function"] = as_attribute(name, node, "reset_function", context)
    return None if None in read.values() else read


def _has_placeholder(values: Values, mapping: MapNode, context: Context) -> bool:
    template = values.get("request_template")
    if template is None or "{prompt}" in template:
        return True
    if values["parse_structured_input"] and _FIELD.search(template):
        return True
    context.problems.error(
        code="missing-placeholder",
        message="`request_template` has no `{prompt}`, so the agent would never see one",
        at=mapping.entries["request_template"].value,
        help="write `{prompt}` where the prompt goes",
    )
    return False


def _warn_unused(type: Type, values: Values, mapping: MapNode, context: Context) -> None:
    """Keys that say nothing about this agent. In another's file they would be passed over in silence."""
    started, proxied = "command" in values, "command" in values or "proxy_port" in values
    reasons: dict[str, str] = {}
    if type != "http":
        reasons |= dict.fromkeys(_OF_HTTP, "only an agent with a URL has it")
    if type == "python":
        reasons |= dict.fromkeys((*_OF_PROXY, "command"), "a Python agent runs inside Bylaw")
    else:
        reasons["tools"] = "only a Python agent has it; tools of others are reached through the proxy"
        reasons |= {} if started else dict.fromkeys(_OF_COMMAND, "only an agent that Bylaw starts has it")
        reasons |= {} if proxied else dict.fromkeys(_OF_PROXY, "it needs `command` or `proxy_port`")
    for key in (key for key in mapping.entries if key in reasons):
        _warn(key, reasons[key], mapping, context)


def _warn(key: str, why: str, mapping: MapNode, context: Context) -> None:
    message = f"`{key}` of the agent is not used: {why}"
    context.problems.warn(code="key-not-used", message=message, at=mapping.entries[key].key)


def _spec(type: Type, values: Values, mapping: MapNode) -> AgentSpec:
    renamed = {"timeout": "timeout_ms"}
    given = {renamed.get(key, key): value for key, value in values.items() if key != "type"}
    return AgentSpec(type=type, span=mapping.head, **given)

"""`agent` → how to reach it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import urljoin, urlsplit

from bylaw.contract.file import (
    EXPANDED,
    EXPANDED_MAP,
    FROM_ONE,
    MILLISECONDS,
    PORT,
    TEMPLATE,
    TEXT,
    Table,
    keyword,
    read_expanded,
    report_conflict,
)
from bylaw.contract.model import AgentSpec, McpServer
from bylaw.rules.files import are_inputs_checked, note_input, note_module
from bylaw.rules.messages import quote
from bylaw.rules.nodes import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.params import (
    FLAG,
    NAMES,
    TEXT_SCHEMA,
    TEXTS_SCHEMA,
    Context,
    Param,
    ParamType,
    Values,
    choice,
    params_schema,
)
from bylaw.rules.readers import complete, read_map, read_text, read_texts, report_wrong_type

Type: TypeAlias = Literal["http", "python", "command"]


# Addresses: URLs and `module:attribute`

# `localhost:8000` is not a module and attribute: an attribute does not begin with a digit.
_ATTRIBUTE = re.compile(r"[A-Za-z_][\w]*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _check_url(text: str, node: Node, name: str, context: Context, *, sibling: Node | None = None) -> str | None:
    """The text if it is a URL, else None. `sibling` is the URL that a path may be relative to."""
    if _is_url(text):
        return text
    # messages show the text as written in the file: expanded variables may be secrets
    written = _raw_text(node)
    base = _raw_text(sibling) if sibling else ""
    if written.startswith("/") and "$" not in base and _is_url(base):
        help = f"write {quote(urljoin(base, written))}"
    elif _is_url(f"http://{written}"):
        help = f"write {quote(f'http://{written}')}"
    else:
        help = "begin it with `http://`"
    message = f"`{name}` takes a whole URL, and {quote(written)} is none"
    context.problems.error(code="relative-url", message=message, at=node, help=help)
    return None


def _raw_text(node: Node) -> str:
    return str(node.value) if isinstance(node, ScalarNode) else node.raw


def _check_attribute(text: str, node: Node, name: str, context: Context) -> str | None:
    if _ATTRIBUTE.fullmatch(text):
        return text
    wanted = "a Python module and an attribute of it, as `module:attribute`"
    report_wrong_type(node, f"`{name}`", wanted, context.problems)
    return None


# Types of values that only an agent has

UPSTREAMS = ("openai", "anthropic")
SCRIPTS = (".yaml", ".yml", ".json")


def _read_command(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    """A list of arguments, or a text that is split as a shell splits it; it is never run by a shell."""
    if isinstance(node, ListNode):
        return read_texts(node, name, context.problems)
    text = read_text(node, name, context.problems)
    if text is None:
        return None
    reason = "it is blank"
    try:
        parts = shlex.split(text)
    except ValueError as error:
        parts, reason = [], str(error).lower()
    if not parts:
        context.problems.error(
            code="bad-command",
            message=f"{quote(text)} cannot be split into arguments: {reason}",
            at=node,
            help="write the arguments as a list",
        )
    return tuple(parts) or None


def _read_url(node: Node, name: str, context: Context, *, files: tuple[str, ...] = ()) -> str | None:
    """A URL, or a file whose name ends like one of `files`."""
    text = read_expanded(node, name, context)
    if text is None or (files and text.lower().endswith(files)):
        return text
    return _check_url(text, node, name, context)


_UPSTREAM = ParamType(partial(_read_url, files=SCRIPTS), TEXT_SCHEMA)
_UPSTREAMS = Table("`upstreams`", tuple(Param(name, _UPSTREAM, "a URL, or a script") for name in UPSTREAMS))


def _read_servers(node: Node, name: str, context: Context) -> tuple[McpServer, ...] | None:
    mapping = read_map(node, name, context.problems)
    if mapping is None:
        return None
    return complete([_read_server(key, entry.value, context) for key, entry in mapping.entries.items()])


def _read_server(name: str, node: Node, context: Context) -> McpServer | None:
    table = Table(
        f"the MCP server {quote(name)}",
        params=(Param("url", _URL, "its address"), Param("command", _COMMAND, "what starts it")),
        needs=("url", "command"),
        needs_help="say where the server is, or what starts it",
        also={"url": "address endpoint", "command": "cmd"},
    )
    values = table.read(node, context)
    entries = node.entries if isinstance(node, MapNode) else {}
    if "url" in entries and "command" in entries:
        message = "`url` and `command` both say how to reach the MCP server"
        report_conflict(entries["command"], entries["url"], message, context)
        return None
    return None if values is None else McpServer(name=name, **values)


# response_path: `choices.0.message.content`, or the same as `$.choices[0].message.content`
#
#   path = ["$"] part { part }
#   part = ["."] name | "." digits | "[" digits "]" | "['" name "']"

_PART = re.compile(r"""\.?([^.\[\]$*'"\s][^.\[\]*'"]*)|\[(\d{1,6})\]|\['([^.'\[\]]+)'\]|\["([^."\[\]]+)"\]""")


def _read_response_path(node: Node, name: str, context: Context) -> str | None:
    """The canonical form: keys and indexes with dots between them."""
    text = read_text(node, name, context.problems)
    if text is None:
        return None
    place = 1 if text.startswith(("$.", "$[")) else 0
    parts: list[str] = []
    while place < len(text):
        found = _PART.match(text, place)
        if found is None or (found[1] is not None and (text[place] == ".") != (place > 0)):
            context.problems.error(
                code="bad-path",
                message=f"{quote(text)} is no path to one value",
                at=node,
                help="write keys and indexes with dots between them, such as `choices.0.message.content`",
            )
            return None
        parts.append(next(group for group in found.groups() if group is not None))
        place = found.end()
    return ".".join(parts)


def _read_timeout(node: Node, name: str, context: Context) -> int | None:
    """Milliseconds. Nobody means an agent that answers within 5 ms: a small number is in seconds, with a warning."""
    value: int | None = MILLISECONDS.read(node, name, context)
    if value is None or value >= _LEAST_MS:
        return value
    context.problems.warn(
        code="timeout-in-seconds",
        message=f"`timeout: {value}` is read as {value} seconds",
        at=node,
        help=f"write `timeout_ms: {value * 1000}`; or `timeout_ms: {value}` for milliseconds",
    )
    return value * 1000


_LEAST_MS = 100


def _read_mapping(node: Node, name: str, context: Context) -> dict[str, Any] | None:
    mapping = read_map(node, name, context.problems)
    return None if mapping is None else plain(mapping)


def _read_deps(node: Node, name: str, context: Context) -> dict[str, Any] | str | None:
    if isinstance(node, MapNode):
        return _read_mapping(node, name, context)
    text = read_expanded(node, name, context)
    return None if text is None else _check_attribute(text, node, name, context)


_MAPPING = ParamType(_read_mapping, {"type": "object"})
_DEPS = ParamType(_read_deps, {"anyOf": [{"type": "object"}, TEXT_SCHEMA]})
_TIMEOUT = ParamType(_read_timeout, MILLISECONDS.json_schema)


# The table

_COMMAND = ParamType(_read_command, TEXTS_SCHEMA)
_URL = ParamType(_read_url, TEXT_SCHEMA)
_UPSTREAM_MAP = ParamType(lambda node, name, context: _UPSTREAMS.read(node, context), params_schema(_UPSTREAMS.params))
_SERVERS = ParamType(
    _read_servers,
    {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"url": TEXT_SCHEMA, "command": TEXTS_SCHEMA},
            "oneOf": [{"required": ["url"]}, {"required": ["command"]}],
        },
    },
)
TYPES: dict[str, Type] = {
    "http": "http",
    "python": "python",
    "command": "command",
    "langchain": "python",
    "langgraph": "python",
    "pydantic_ai": "python",
    "openai_agents": "python",
}
"""as written → the type. Frameworks are all Python agents: the endpoint's own type tells them apart"""
_TYPE = keyword(
    "unknown-type",
    "agent type",
    tuple(TYPES),
    also={
        "http": "api https rest",
        "command": "cli shell subprocess",
        "python": "function module",
        "openai_agents": "openai",
        "pydantic_ai": "pydantic",
    },
)
AGENT = Table(
    what="`agent`",
    params=(
        Param("type", _TYPE, "how it is reached; where it is left out, the endpoint tells"),
        Param("endpoint", EXPANDED, "a URL, or `module:attribute` of a Python agent"),
        Param("command", _COMMAND, "what starts it: arguments, or a text that is split into them; no shell sees it"),
        Param("cwd", TEXT, "the folder of the command, or of the Python agent's module, relative to this file"),
        Param("env", EXPANDED_MAP, "environment variables of the agent"),
        Param("method", choice("GET", "POST", "PUT", "PATCH", "DELETE"), "of the HTTP request", default="POST"),
        Param("request_template", TEMPLATE, "the body; `{prompt}` in it is replaced"),
        Param(
            "response_path",
            ParamType(_read_response_path, TEXT_SCHEMA),
            "where the reply holds the answer, such as `choices.0.message.content`",
        ),
        Param("query_params", EXPANDED_MAP, "of the URL; `{prompt}` in them is replaced"),
        Param("headers", EXPANDED_MAP, "of the HTTP request"),
        Param("parse_structured_input", FLAG, "whether `{field}` is filled from a prompt's lines", default=True),
        Param("timeout", _TIMEOUT, "the same; a number under 100 is in seconds"),
        Param("timeout_ms", MILLISECONDS, "milliseconds that an answer may take; 30000 where it is left out"),
        Param("reset_endpoint", EXPANDED, "a URL that is posted to before each run"),
        Param("reset_function", EXPANDED, "`module:function` that is called before each run"),
        Param("factory", FLAG, "`true`: the endpoint is a function that makes the agent, for each run", default=False),
        Param("config", _MAPPING, "of a Python agent: what a LangGraph graph is configured with, or more arguments"),
        Param("deps", _DEPS, "of a Python agent: the fields of its dependencies, or `module:attribute` of them"),
        Param("stateless", FLAG, "`true`: its answers differ without any state", default=False),
        Param("concurrency", FROM_ONE, "how many runs it takes at once", default=1),
        Param("tools", NAMES, "names or `module:attribute` of tools that its wrapper does not show"),
        Param("proxy_port", PORT, "a fixed port of the chaos proxy, for an agent that you start and point at it"),
        Param("upstreams", _UPSTREAM_MAP, "where model calls go: a URL, or a script, for `openai` and `anthropic`"),
        Param("mcp", _SERVERS, "MCP servers behind the proxy, by name: `url` or `command`"),
        Param("trusts_ca", FLAG, "whether it trusts the proxy's certificate, for faults inside HTTPS", default=False),
    ),
    needs=("endpoint", "command"),
    needs_help="write its URL, `module:attribute`, or the command that starts it",
    also={
        "command": "args cmd",
        "cwd": "working_directory",
        "endpoint": "address url",
        "env": "environment",
        "proxy_port": "port",
        "query_params": "params",
        "request_template": "body template",
        "reset_endpoint": "reset reset_url",
        "response_path": "path",
    },
)

_HTTP_KEYS = ("method", "request_template", "response_path", "query_params", "headers", "parse_structured_input")
_PROXY_KEYS = ("proxy_port", "upstreams", "mcp", "trusts_ca")
_COMMAND_KEYS = ("cwd", "env")
_PYTHON_KEYS = ("factory", "config", "deps")
_STATE_KEYS = ("request_template", "response_path")
"""also of a Python agent whose input or result is a state of its own"""
_FIELD = re.compile(r"\{[A-Za-z_]\w*\}")
_READ_SUFFIXES = frozenset(
    (".cjs", ".js", ".json", ".md", ".mjs", ".py", ".rb", ".sh", ".toml", ".ts", ".yaml", ".yml")
)


def read_agent(node: Node, context: Context) -> AgentSpec | None:
    _note_files(node, context)
    values = AGENT.read(node, context)
    if values is None or not isinstance(node, MapNode):
        return None
    if "type" in values:
        type = TYPES[values["type"]]
    elif "endpoint" not in values:
        type = "command"
    else:
        type = "python" if _ATTRIBUTE.fullmatch(values["endpoint"]) else "http"
    is_usable = _check_type(type, values, node, context)
    _warn_unused(type, values, node, context)
    addresses = _check_addresses(type, values, node, context)
    if addresses is None or not is_usable or not _check_placeholder(values, node, context):
        return None
    if "timeout" in values and "timeout_ms" in values:
        message = "`timeout` and `timeout_ms` give the same parameter"
        report_conflict(node.entries["timeout"], node.entries["timeout_ms"], message, context)
        return None
    given = {key: value for key, value in values.items() if key not in ("type", "timeout", "timeout_ms")}
    timeout_ms = values.get("timeout_ms") or values.get("timeout") or 30_000
    return AgentSpec(type=type, timeout_ms=timeout_ms, span=node.head, **{**given, **addresses})


def _note_files(node: Node, context: Context) -> None:
    """Report the files that the section names, so that no report is written over them, even if it has mistakes.

    They are modules (`module:attribute`, `-m module`), words of commands, and scripted models.
    """
    if not are_inputs_checked():
        return
    texts, before = list(_texts(plain(node))), ""
    named = (os.path.join(context.base, text) for text in ("", *texts))  # one of them may be `cwd`
    for folder in {os.path.realpath(path) for path in named if os.path.isdir(path)}:
        for word in (word for text in texts for word in text.split()):
            if _ATTRIBUTE.fullmatch(word) or before == "-m":
                note_module(word, folder)
            elif os.path.isfile(path := os.path.join(folder, word)) and _is_program_or_settings(path):
                note_input(path)
            before = word


def _is_program_or_settings(path: str) -> bool:
    """A command may also name what it writes, such as a log."""
    return os.path.splitext(path)[1] in _READ_SUFFIXES or os.access(path, os.X_OK)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _check_type(type: Type, values: Values, node: MapNode, context: Context) -> bool:
    """Whether `endpoint` and `command` fit the type."""
    at = node.entries["type"].value if "type" in node.entries else node.first_key
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


def _check_addresses(type: Type, values: Values, node: MapNode, context: Context) -> dict[str, str] | None:
    """The endpoint and the resets in the form that the type needs; None where one is unusable."""
    nodes = {key: entry.value for key, entry in node.entries.items()}
    checks: dict[str, Callable[[str, Node, str, Context], str | None]] = {
        "endpoint": _check_attribute if type == "python" else _check_url,
        "reset_endpoint": partial(_check_url, sibling=nodes.get("endpoint")),
        "reset_function": _check_attribute,
    }
    given = {key: values[key] for key in checks if key in values and not (key == "endpoint" and type == "command")}
    checked = {key: checks[key](text, nodes[key], key, context) for key, text in given.items()}
    good = {key: address for key, address in checked.items() if address is not None}
    return good if len(good) == len(checked) else None


def _check_placeholder(values: Values, node: MapNode, context: Context) -> bool:
    template = values.get("request_template")
    if template is None or "{prompt}" in template:
        return True
    if values["parse_structured_input"] and _FIELD.search(template):
        return True
    context.problems.error(
        code="missing-placeholder",
        message="`request_template` has no `{prompt}`, so the agent would never see one",
        at=node.entries["request_template"].value,
        help="write `{prompt}` where the prompt goes",
    )
    return False


def _warn_unused(type: Type, values: Values, node: MapNode, context: Context) -> None:
    """Warn of keys that have no effect on an agent of this type."""
    reasons: dict[str, str] = {}
    if type != "http":
        own = [key for key in _HTTP_KEYS if type == "command" or key not in _STATE_KEYS]
        reasons |= dict.fromkeys(own, "only an agent with a URL has it")
    if type == "python":
        reasons |= dict.fromkeys((*_PROXY_KEYS, "command"), "a Python agent runs inside Bylaw")
    else:
        reasons |= dict.fromkeys(_PYTHON_KEYS, "only a Python agent has it")
        reasons["tools"] = "only a Python agent has it; tools of others are reached through the proxy"
        if "command" not in values:
            reasons |= dict.fromkeys(_COMMAND_KEYS, "only an agent that Bylaw starts has it")
            if "proxy_port" not in values:
                reasons |= dict.fromkeys(_PROXY_KEYS, "it needs `command` or `proxy_port`")
    for key, entry in node.entries.items():
        if key in reasons:
            message = f"`{key}` of the agent is not used: {reasons[key]}"
            context.problems.warn(code="key-not-used", message=message, at=entry.key)

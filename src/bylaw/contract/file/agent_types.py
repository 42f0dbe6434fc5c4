"""The types of the agent's values that only it has."""

from __future__ import annotations

import shlex

from bylaw.contract.file.addresses import is_url, read_url
from bylaw.contract.file.variables import read_expanded, read_expanded_map
from bylaw.contract.model import McpServer
from bylaw.rules.fields import Fields
from bylaw.rules.located import ListNode, MapNode, Node
from bylaw.rules.param_types import TEXT_SCHEMA, TEXTS_SCHEMA
from bylaw.rules.params import Context, ParamType
from bylaw.rules.readers import read_map, read_text, read_texts
from bylaw.rules.words import quote

UPSTREAMS = ("openai", "anthropic")
SCRIPTS = (".yaml", ".yml", ".json")


def _read_command(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    """A list of arguments, or a text that is split as a shell would; no shell ever sees it."""
    if isinstance(node, ListNode):
        return read_texts(node, name, context.problems)
    text = read_text(node, name, context.problems)
    if text is None:
        return None
    try:
        parts = shlex.split(text)
    except ValueError as error:
        parts, reason = [], str(error).lower()
    else:
        reason = "it is blank"
    if not parts:
        context.problems.error(
            code="bad-command",
            message=f"{quote(text)} cannot be split into arguments: {reason}",
            at=node,
            help="write the arguments as a list",
        )
    return tuple(parts) or None


def _read_upstreams(node: Node, name: str, context: Context) -> dict[str, str] | None:
    mapping = read_map(node, name, context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what=quote(name))
    given = {key: entry.value for key in UPSTREAMS if (entry := fields.entry(key))}
    fields.finish()
    read = {key: _read_upstream(value, key, context) for key, value in given.items()}
    good = {key: value for key, value in read.items() if value is not None}
    return good if len(good) == len(mapping.entries) else None


def _read_upstream(node: Node, name: str, context: Context) -> str | None:
    """A URL, or a file that is a scripted model."""
    text = read_expanded(node, name, context)
    if text is None or is_url(text) or text.lower().endswith(SCRIPTS):
        return text
    return read_url(node, name, context)


def _read_servers(node: Node, name: str, context: Context) -> tuple[McpServer, ...] | None:
    mapping = read_map(node, name, context.problems)
    if mapping is None:
        return None
    servers = [_read_server(key, entry.value, context) for key, entry in mapping.entries.items()]
    good = tuple(server for server in servers if server is not None)
    return good if len(good) == len(servers) else None


def _read_server(name: str, node: Node, context: Context) -> McpServer | None:
    mapping = read_map(node, name, context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what=f"the MCP server {quote(name)}")
    url_node, command_node = fields.take("url"), fields.take("command")
    if url_node is None and command_node is None:
        fields.missing(("url", "command"), help="say where the server is, or what starts it")
    fields.finish(synonyms={"address": "url", "cmd": "command", "endpoint": "url"})
    if url_node and command_node:
        _report_both(mapping, context)
        return None
    if url_node:
        url = read_url(url_node, "url", context)
        return None if url is None else McpServer(name=name, url=url)
    command = _read_command(command_node, "command", context) if command_node else None
    return None if command is None else McpServer(name=name, command=command)


def _report_both(mapping: MapNode, context: Context) -> None:
    context.problems.error(
        code="duplicate-parameter",
        message="`url` and `command` both say how to reach the MCP server",
        at=mapping.entries["command"].key,
        help="keep one of them",
        related=(context.problems.related(mapping.entries["url"].key, "the other one"),),
    )


_TEXT_MAP = {"type": "object", "additionalProperties": TEXT_SCHEMA}
COMMAND = ParamType(_read_command, TEXTS_SCHEMA)
TEXT_MAP = ParamType(read_expanded_map, _TEXT_MAP)
UPSTREAM_MAP = ParamType(
    _read_upstreams,
    {"type": "object", "properties": dict.fromkeys(UPSTREAMS, TEXT_SCHEMA), "additionalProperties": False},
)
SERVERS = ParamType(
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

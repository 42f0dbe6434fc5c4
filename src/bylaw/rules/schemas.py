"""JSON Schemas in a rule: read and compiled, without access to the network or other files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylaw.model.demand import Always, FitsSchema
from bylaw.model.diagnostic import Diagnostic, Related
from bylaw.model.rule import Rule
from bylaw.rules.files import UnusableFile, read_text_file
from bylaw.rules.json_nodes import parse_json
from bylaw.rules.messages import did_you_mean, near_name, quote, synonyms
from bylaw.rules.names import rule_warning
from bylaw.rules.nodes import ListNode, Located, MapNode, Node, Problems, ScalarNode, Source, plain
from bylaw.rules.readers import read_json, read_text, report_wrong_type

if TYPE_CHECKING:
    import jsonschema_rs


_MAX_REASON = 200
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_TYPE_SYNONYMS = synonyms(
    {
        "boolean": "bool",
        "object": "dict",
        "number": "float",
        "integer": "int",
        "array": "list",
        "string": "str text",
    }
)


class _UnusableSchema(Exception):
    """Not a usable schema."""

    def __init__(self, reason: str, *, help: str | None = None, path: list[str | int] | None = None) -> None:
        self.reason = reason
        self.help = help
        self.path = path or []
        """the way to the part at fault"""
        self.related: tuple[Related, ...] = ()


def read_schema(node: Node, name: str, problems: Problems) -> Any:
    """A schema written in the rule."""
    if not isinstance(node, MapNode) and not (isinstance(node, ScalarNode) and isinstance(node.value, bool)):
        help = "to read it from a file use `schema_path`" if node.kind() == "text" else None
        report_wrong_type(node, quote(name), "a JSON Schema", problems, help=help)
        return None
    schema = read_json(node, problems)
    try:
        _prove(schema)
    except _UnusableSchema as refused:
        message = f"not a JSON Schema: {refused.reason}"
        problems.error(code="invalid-schema", message=message, at=_find_node(node, refused.path), help=refused.help)
        return None
    return schema


def read_schema_file(node: Node, name: str, problems: Problems, base: Path, cache: dict[str, Any]) -> Any:
    """A schema in a file of its own; `base` is the folder of the rule file. `cache` holds the files read before."""
    text = read_text(node, name, problems)
    if text is None:
        return None
    if text not in cache:
        cache[text] = _load(text, base)
    found = cache[text]
    if isinstance(found, Diagnostic):
        problems.error(
            code="unreadable-schema",
            message=f"cannot read the schema {quote(text)}: {found.message}",
            at=node,
            help="the path is relative to the rule file",
        )
        return None
    if isinstance(found, _UnusableSchema):
        message = f"{quote(text)} is not a JSON Schema: {found.reason}"
        problems.error(code="invalid-schema", message=message, at=node, help=found.help, related=found.related)
        return None
    return found


def _load(text: str, base: Path) -> Any:
    """The schema, or the reason why there is none."""
    try:
        return _schema_in(Source(text, read_text_file(base / text, text, regular=True)))
    except UnusableFile as not_read:
        return not_read.diagnostic
    except _UnusableSchema as refused:
        return refused


def _schema_in(source: Source) -> Any:
    """The schema in a file. A problem is reported with its place but without its text: a rule that names any
    file must not be a way to print it."""
    problems = Problems(source)
    root = parse_json(source, problems)
    if problems.all:
        fault = problems.all[0]
        refused = _UnusableSchema(fault.message)
        refused.related = (Related(fault.span, fault.message),) if fault.span else ()
        raise refused
    if root is None:
        raise _UnusableSchema("the file is empty")
    schema = plain(root)
    try:
        _prove(schema)
    except _UnusableSchema as refused:
        refused.related = (Related(_find_node(root, refused.path).head, "at fault here"),)
        raise
    return schema


def _prove(schema: Any) -> None:
    """Compile the schema as the engine will: without any access to files or the network, linear-time patterns only."""
    import jsonschema_rs  # slow to import, and few rule files hold a schema

    try:
        jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except jsonschema_rs.ValidationError as error:
        raise _explain_error(error) from None
    except Exception as error:
        raise _UnusableSchema(_clip(str(error))) from None


def _explain_error(error: jsonschema_rs.ValidationError) -> _UnusableSchema:
    path, message = list(error.instance_path), error.message
    if path[-1:] == ["type"] and isinstance(error.instance, str):
        near = did_you_mean(error.instance, _TYPES, _TYPE_SYNONYMS)
        return _UnusableSchema(f"there is no type {quote(error.instance)}", help=near, path=path)
    help = next((help for part, help in _HELP.items() if part in message), None)
    return _UnusableSchema(_clip(message), help=help, path=path)


_HELP = {
    "retriev": "a `$ref` to another file or address is not followed; put the part under `$defs`",
    'is not a "regex"': "patterns must do without look-around and back-references",
}


def _find_node(node: Node, path: list[str | int]) -> Located:
    """The node at the end of `path`, or the last one on the way that exists."""
    for step in path:
        if isinstance(node, MapNode) and str(step) in node.entries:
            node = node.entries[str(step)].value
        elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
    return node


def _clip(reason: str) -> str:
    line = " ".join(reason.split())
    line = line[:1].lower() + line[1:] if line[1:2].islower() else line
    return line if len(line) <= _MAX_REASON else f"{line[: _MAX_REASON - 1]}…"


# -- words that mean nothing -------------------------------------------------------------------------------------------

# A misspelt keyword, a format that is not checked. JSON Schema passes over what it does not know, so that a schema with
# such a word accepts more than its author thinks.


_ONE = frozenset(
    (
        *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    )
)
"""keywords that hold a schema"""
_LIST = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
_NAMED = frozenset(("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"))
_OTHERS = frozenset(
    (
        *("$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$ref"),
        *("$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "default", "dependentRequired"),
        *("deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "id"),
        *("maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength"),
        *("minProperties", "minimum", "multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems"),
        "writeOnly",
    )
)
_KEYWORDS = _ONE | _LIST | _NAMED | _OTHERS
_ELSEWHERE = frozenset(("discriminator", "example", "externalDocs", "nullable", "xml"))
"""keywords of OpenAPI, which only describe here"""

_OLD_DRAFTS = ("draft-04", "draft-06", "draft-07")
FORMATS = {
    **dict.fromkeys(("date", "date-time", "email", "hostname", "idn-email", "ipv4", "ipv6", "regex", "time", "uri"), 0),
    **dict.fromkeys(("json-pointer", "uri-reference", "uri-template"), 1),
    **dict.fromkeys(("idn-hostname", "iri", "iri-reference", "relative-json-pointer"), 2),
    **dict.fromkeys(("duration", "uuid"), 3),
}
"""the formats that are checked, each with the number of old drafts in which it is not"""


def doubtful_schemas(rules: Iterable[Rule]) -> Iterator[Diagnostic]:
    """A warning for each keyword that is probably misspelt, and for each format that a rule checks and nobody knows."""
    for rule in rules:
        if isinstance(rule.demand, Always) and isinstance(rule.demand.probe, FitsSchema):
            yield from _doubts(rule, rule.demand.probe)


def _doubts(rule: Rule, probe: FitsSchema) -> Iterator[Diagnostic]:
    parts = list(_schemas(probe.schema))
    for word in dict.fromkeys(key for part in parts for key in part):
        near = None if word in _ELSEWHERE else near_name(word, _KEYWORDS)
        if near is not None:
            message = f"the schema of `{rule.id}` holds {quote(word)}, which is no keyword of JSON Schema"
            yield rule_warning(rule, code="unlikely-keyword", message=message, help=f"did you mean `{near}`?")
    if not probe.formats:
        return
    draft = str(probe.schema.get("$schema", "")) if isinstance(probe.schema, dict) else ""
    place = next((place for place, old in enumerate(_OLD_DRAFTS) if old in draft), len(_OLD_DRAFTS))
    known = [format for format, missing in FORMATS.items() if missing <= place]
    for format in dict.fromkeys(f for part in parts if isinstance(f := part.get("format"), str)):
        if format not in known:
            which = "this draft of JSON Schema" if format in FORMATS else "JSON Schema"
            message = f"the schema of `{rule.id}` demands the format {quote(format)}, which {which} does not have"
            help = "write a later `$schema`, or none" if format in FORMATS else did_you_mean(format, known)
            yield rule_warning(rule, code="unlikely-keyword", message=message, help=help)


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it, where the keywords say that one stands."""
    left = deque([schema])
    while left:
        part = left.popleft()
        if not isinstance(part, dict):
            continue
        yield part
        for key, value in part.items():
            if key in _NAMED and isinstance(value, dict):
                left += value.values()
            elif key in _LIST and isinstance(value, list):
                left += value
            elif key in _ONE:
                left.append(value)

"""Words in the JSON Schemas of rules that mean nothing there: a misspelt keyword, a format that is not checked.

JSON Schema passes over what it does not know, so that a schema with such a word accepts more than its author thinks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from bylaw.model.demand import Always, FitsSchema
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule
from bylaw.rules.messages import did_you_mean, near_name, quote
from bylaw.rules.names import rule_warning

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
    known = _formats_of(probe.schema)
    for format in dict.fromkeys(f for part in parts if isinstance(f := part.get("format"), str)):
        if format not in known:
            which = "this draft of JSON Schema" if format in FORMATS else "JSON Schema"
            message = f"the schema of `{rule.id}` demands the format {quote(format)}, which {which} does not have"
            help = "write a later `$schema`, or none" if format in FORMATS else did_you_mean(format, known)
            yield rule_warning(rule, code="unlikely-keyword", message=message, help=help)


def _formats_of(schema: Any) -> list[str]:
    draft = str(schema.get("$schema", "")) if isinstance(schema, dict) else ""
    place = next((place for place, old in enumerate(_OLD_DRAFTS) if old in draft), len(_OLD_DRAFTS))
    return [format for format, missing in FORMATS.items() if missing <= place]


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

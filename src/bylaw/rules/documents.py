"""The text of a rule file → its documents, as located trees. Only agent manifests may be several in one file."""

from __future__ import annotations

import re
from collections.abc import Callable

from bylaw.rules.files import Format
from bylaw.rules.located import MAX_BYTES, LeftAlone, Located, Node, ScalarNode
from bylaw.rules.source import Problems, Source

_SURROGATE = re.compile("[\ud800-\udfff]")


def read_documents(
    source: Source, problems: Problems, format: Format, several: Callable[[Node], bool], left_alone: LeftAlone
) -> list[Node]:
    """The trees of the text's documents; none where the text cannot be used, which is then reported.

    `several`: whether other documents may follow this one. `left_alone`: parts that may hold any value.
    """
    if len(source.text) > MAX_BYTES:
        message = f"the text is longer than {MAX_BYTES:,} characters"
        problems.error(code="too-large", message=message, at=Located(source, 0, 1))
        return []
    if half := _SURROGATE.search(source.text):
        message = "the text holds half of a surrogate pair"
        problems.error(code="bad-surrogate", message=message, at=Located(source, half.start(), half.end()))
        return []
    is_json = format == "json"
    roots = _parse_json(source, problems, left_alone) if is_json else _parse_yaml(source, problems, several, left_alone)
    if all(_is_blank(root) for root in roots) and (roots or not problems.all):
        help = "write a list of rules under `rules:`"
        problems.error(code="empty-file", message="the file is empty", at=Located(source, 0, 0), help=help)
        return []
    return [root for root in roots if not _is_blank(root)]


def _parse_json(source: Source, problems: Problems, left_alone: LeftAlone) -> list[Node]:
    from bylaw.rules.located_json import parse_json

    root = parse_json(source, problems, left_alone)
    return [] if root is None else [root]


def _parse_yaml(
    source: Source, problems: Problems, several: Callable[[Node], bool], left_alone: LeftAlone
) -> list[Node]:
    from bylaw.rules.located_yaml import parse_yaml_documents  # PyYAML is slow to import, and JSON does without

    return parse_yaml_documents(source, problems, several, left_alone)


def _is_blank(root: Node) -> bool:
    return isinstance(root, ScalarNode) and root.value is None and root.start == root.end

"""The agent's addresses: URLs and `module:attribute`, with variables filled in."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from bylaw.contract.file.variables import read_expanded
from bylaw.rules.located import Node, ScalarNode
from bylaw.rules.params import Context
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.words import quote

# `localhost:8000` is no module and attribute: an attribute does not begin with a digit.
_ATTRIBUTE = re.compile(r"[A-Za-z_][\w]*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_attribute(text: str) -> bool:
    """Whether it names something in a Python module: `package.module:attribute`."""
    return _ATTRIBUTE.fullmatch(text) is not None


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def read_url(node: Node, name: str, context: Context) -> str | None:
    text = read_expanded(node, name, context)
    return None if text is None else as_url(text, node, name, context)


def as_url(text: str, node: Node, name: str, context: Context, *, beside: Node | None = None) -> str | None:
    """The text, which `node` says; None where it is no URL. `beside` is one that a path may have been meant for."""
    if is_url(text):
        return text
    context.problems.error(
        code="relative-url",
        message=f"`{name}` takes a whole URL, and {quote(_written(node))} is none",
        at=node,
        help=_whole(_written(node), _written(beside) if beside else None),
    )
    return None


def as_attribute(text: str, node: Node, name: str, context: Context) -> str | None:
    if is_attribute(text):
        return text
    wanted = "a Python module and what is in it, as `module:attribute`"
    report_wrong_type(node, f"`{name}`", wanted, context.problems)
    return None


def _whole(written: str, other: str | None) -> str:
    if written.startswith("/") and other and "$" not in other and is_url(other):
        return f"write {quote(urljoin(other, written))}"
    return f"write {quote(f'http://{written}')}" if is_url(f"http://{written}") else "begin it with `http://`"


def _written(node: Node) -> str:
    """As it stands in the file: what variables hold may be secret."""
    return str(node.value) if isinstance(node, ScalarNode) else node.raw

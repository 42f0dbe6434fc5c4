"""The answers of several servers to one request, as one answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "tasks/list": ("tasks", "taskId"),
}
"""method → where its result has the list, and what tells the items apart"""
_log = logging.getLogger("bylaw")
_INFO_KEY = "io.modelcontextprotocol/serverInfo"
_INFO = {"name": "bylaw", "version": version("bylaw")}


def merge(method: str, results: Mapping[str, Mapping[str, Any]], separator: str) -> dict[str, Any]:
    """`results` by server; there is at least one. A cursor is left to the caller."""
    first = dict(next(iter(results.values())))
    first.pop("nextCursor", None)
    if method in LISTS:
        return {**first, **_list(*LISTS[method], results, separator), **_cache(results)}
    if method in ("initialize", "server/discover"):
        return {**first, **_introduction(method, results)}
    return first


def _list(where: str, key: str, results: Mapping[str, Mapping[str, Any]], separator: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for server, result in results.items():
        items = result.get(where)
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict) or not isinstance(item.get(key), str):
                continue
            name = f"{server}{separator}{item[key]}" if key == "name" else item[key]
            if key == "name" and (name in found or name.partition(separator)[0] != server):
                _log.warning("`%s` of the server `%s` is hidden: something else has this name", name, server)
                continue
            found.setdefault(name, {**item, key: name})
    return {where: list(found.values())}


def _cache(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """How long the list may be cached: as long as each of its parts may be."""
    lives = [result.get("ttlMs") for result in results.values()]
    if not any(isinstance(one, int | float) for one in lives):
        return {}
    scopes = {result.get("cacheScope") for result in results.values()}
    ttl = min((one if isinstance(one, int | float) and not isinstance(one, bool) else 0) for one in lives)
    return {"ttlMs": ttl, "cacheScope": "public" if scopes == {"public"} else "private"}


def _introduction(method: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {}
    for result in results.values():
        _add(capabilities, result.get("capabilities"))
    merged: dict[str, Any] = {"capabilities": capabilities}
    instructions = [
        f"{server}: {result['instructions']}"
        for server, result in results.items()
        if isinstance(result.get("instructions"), str)
    ]
    if instructions:
        merged["instructions"] = "\n\n".join(instructions)
    if method == "initialize":
        versions = [result["protocolVersion"] for result in results.values() if "protocolVersion" in result]
        return {**merged, "protocolVersion": min(map(str, versions)) if versions else None, "serverInfo": _INFO}
    known = [set(result.get("supportedVersions") or ()) for result in results.values()]
    first = next(iter(results.values()))
    meta: dict[str, Any] = first["_meta"] if isinstance(first.get("_meta"), dict) else {}
    shared = [version for version in first.get("supportedVersions") or () if all(version in one for one in known)]
    return {**merged, **_cache(results), "supportedVersions": shared, "_meta": {**meta, _INFO_KEY: _INFO}}


def _add(to: dict[str, Any], more: Any) -> None:
    """What any of the servers can do."""
    for name, value in more.items() if isinstance(more, dict) else ():
        if isinstance(value, dict) and isinstance(to.get(name, {}), dict):
            _add(to.setdefault(name, {}), value)
        else:
            to[name] = bool(to.get(name)) or value

"""The ways an agent can call a tool. Each returns what the agent gets: (status, text), or raises an exception."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import httpx2
import requests
import urllib3

import bylaw
from tests.live.python.support import ORDER

Seen = Any
WAIT = 300.0
"""seconds that each library waits for a reply"""


@bylaw.tool
def find_order(order_id: str) -> dict[str, Any]:
    return dict(ORDER)


@bylaw.tool(name="find_order_async")
async def find(order_id: str) -> dict[str, Any]:
    return dict(ORDER)


async def named_sync(_url: str) -> Seen:
    return find_order("A-17")


async def named_async(_url: str) -> Seen:
    return await find("A-17")


async def with_httpx(url: str) -> Seen:
    reply = httpx.get(url, timeout=WAIT)
    return reply.status_code, reply.text


async def with_httpx_async(url: str) -> Seen:
    async with httpx.AsyncClient(timeout=WAIT) as client:
        reply = await client.get(url)
        return reply.status_code, reply.text


async def with_httpx2(url: str) -> Seen:
    async with httpx2.AsyncClient(timeout=WAIT) as client:
        reply = await client.get(url)
        return reply.status_code, reply.text


async def with_requests(url: str) -> Seen:
    reply = requests.get(url, timeout=WAIT)
    return reply.status_code, reply.text


async def with_aiohttp(url: str) -> Seen:
    timeout = aiohttp.ClientTimeout(total=WAIT)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as reply:
        return reply.status, await reply.text()


async def with_urllib3(url: str) -> Seen:
    with urllib3.PoolManager() as pool:
        reply = pool.request("GET", url, timeout=WAIT, retries=False)
        return reply.status, reply.data.decode()


async def with_http_client(url: str) -> Seen:
    parts = urllib3.util.parse_url(url)
    connection = http.client.HTTPConnection(str(parts.host), parts.port, timeout=WAIT)
    try:
        connection.request("GET", parts.path or "/")
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


async def with_urllib(url: str) -> Seen:
    try:
        with urllib.request.urlopen(url, timeout=WAIT) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


NAMED: dict[str, Callable[[str], Any]] = {"named_sync": named_sync, "named_async": named_async}
OVER_HTTP: dict[str, Callable[[str], Any]] = {
    "aiohttp": with_aiohttp,
    "http.client": with_http_client,
    "httpx": with_httpx,
    "httpx_async": with_httpx_async,
    "httpx2": with_httpx2,
    "requests": with_requests,
    "urllib": with_urllib,
    "urllib3": with_urllib3,
}
TIMEOUTS: dict[str, type[BaseException]] = {
    "aiohttp": aiohttp.ServerTimeoutError,
    "http.client": TimeoutError,
    "httpx": httpx.ReadTimeout,
    "httpx_async": httpx.ReadTimeout,
    "httpx2": httpx2.ReadTimeout,
    "named_async": TimeoutError,
    "named_sync": TimeoutError,
    "requests": requests.ReadTimeout,
    "urllib": TimeoutError,
    "urllib3": urllib3.exceptions.ReadTimeoutError,
}


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

"""The declaration of an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from bylaw.guard.service.auth import Principal
from bylaw.guard.service.context import Context
from bylaw.guard.stores.records import Scope

T = TypeVar("T")
Method: TypeAlias = Literal["GET", "POST", "DELETE"]


class Given(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a client passes, in the body or in the query; keys that nobody knows are refused."""


class Nothing(Given, frozen=True, kw_only=True):
    """No query, or an empty body."""


class Items(Struct, Generic[T], frozen=True):
    items: Sequence[T]


class Done(Struct, frozen=True):
    ok: bool = True


class Asked(Struct, Generic[T], frozen=True, kw_only=True):
    """One request that was let through."""

    context: Context
    who: Principal
    path: dict[str, str]
    query: Any
    body: T


class Endpoint(Struct, frozen=True, kw_only=True):
    method: Method
    path: str
    """such as `/reviews/{id}`, below `/v1`"""
    scope: Scope
    summary: str
    call: Callable[[Asked[Any]], Any]
    """blocks, and runs in a thread; an `async` function runs in the event loop"""
    body: Any = None
    query: type[Given] = Nothing
    returns: Any = Done
    noun: str
    """by which the document groups endpoints"""
    fails: tuple[int, ...] = ()
    """HTTP statuses that it answers beside those of every endpoint"""
    quick: bool = False
    """whether it is over in a fraction of a millisecond, as a decision is"""
    heavy: bool = False
    """whether it reads much of the record; one of these runs at a time"""
    media: str = "application/json"
    """of the answer"""

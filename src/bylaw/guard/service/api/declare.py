"""The declaration of an endpoint: a function, whose annotations say what it takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args, get_type_hints

from msgspec import Struct

from bylaw.guard.service.auth import Principal
from bylaw.guard.service.context import Context
from bylaw.guard.service.operations import Operations
from bylaw.guard.stores.records import Scope

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Any], Any])
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
    given: T
    """the query of a GET, or the body of a POST"""

    @property
    def operations(self) -> Operations:
        return self.context.operations

    @property
    def by(self) -> str:
        return self.who.name

    @property
    def id(self) -> str:
        return self.path["id"]


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


class Group:
    """Declares the endpoints of one noun, in the order of their functions."""

    def __init__(self, endpoints: list[Endpoint], noun: str, scope: Scope, **shared: Any) -> None:
        """`shared`: fields of all its endpoints, unless one says otherwise."""
        self._endpoints, self._shared = endpoints, {"noun": noun, "scope": scope, **shared}

    def get(self, path: str, summary: str, **more: Any) -> Callable[[F], F]:
        return self._declare("GET", path, summary, more)

    def post(self, path: str, summary: str, **more: Any) -> Callable[[F], F]:
        return self._declare("POST", path, summary, more)

    def delete(self, path: str, summary: str, **more: Any) -> Callable[[F], F]:
        return self._declare("DELETE", path, summary, more)

    def _declare(self, method: Method, path: str, summary: str, more: dict[str, Any]) -> Callable[[F], F]:
        def declare(function: F) -> F:
            hints = get_type_hints(function)
            [given] = get_args(hints["asked"])
            types = {"returns": hints["return"]}
            if given is not NoneType:
                types["query" if method == "GET" else "body"] = given
            fields = {**self._shared, **types, **more}
            self._endpoints.append(Endpoint(method=method, path=path, summary=summary, call=function, **fields))
            return function

        return declare

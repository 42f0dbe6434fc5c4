"""The Starlette application: `/v1/…` for programs, `/console/…` for people, `/auth/…` for signing in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from bylaw.guard.service import sign_in
from bylaw.guard.service.api.routes import api_routes
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import BadRequest, NotAllowed, NotFound, ServiceError, Unavailable
from bylaw.guard.service.gate import Gate, error_response
from bylaw.guard.service.updates import Hub
from bylaw.guard.stores.ports import StoreUnavailable


class Service(Starlette):
    """Starlette with the gate before everything else: it answers what fails too."""

    def __init__(self, context: Context, **more: Any) -> None:
        super().__init__(**more)
        self.state.context = context

    def build_middleware_stack(self) -> ASGIApp:
        inner = ExceptionMiddleware(self.router, handlers=self.exception_handlers)
        return Gate(inner, self.state.context)


def create_app(
    context: Context,
    *,
    jobs: Mapping[str, Callable[..., Any]] | None = None,
    console: bool = True,
) -> Starlette:
    """`jobs`: `check` and `check_compliance`, since no job imports another. `console`: whether to serve it."""
    context.jobs.update(jobs or {})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        context.stopping.set()
        context.metrics.write()

    context.hub = Hub(context)
    routes: list[BaseRoute] = [*api_routes(context), *sign_in.routes()]
    if console:
        from bylaw.guard.service.console import console_routes

        routes += console_routes(context)
    return Service(
        context,
        routes=routes,
        exception_handlers={
            ServiceError: _service_error,
            StoreUnavailable: _store_unavailable,
            HTTPException: _http_error,
        },
        lifespan=lifespan,
    )


def _service_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ServiceError)
    if request.url.path.startswith(("/auth/", "/console")) and "text/html" in request.headers.get("accept", ""):
        from bylaw.guard.service.console import error_page

        return error_page(request, problem)
    return error_response(request.scope, problem)


def _http_error(request: Request, problem: Exception) -> Response:
    """What the router or a static file refuses, in the form of every other failure."""
    assert isinstance(problem, HTTPException)
    made: ServiceError = BadRequest(problem.detail)
    if problem.status_code == 404:
        made = NotFound("there is no such path")
    elif problem.status_code == 405:
        made = NotAllowed(f"this path does not take {request.method}")
    response = _service_error(request, made)
    response.status_code = problem.status_code
    response.headers.update(problem.headers or {})
    return response


def _store_unavailable(request: Request, problem: Exception) -> Response:
    return _service_error(request, Unavailable(str(problem)))

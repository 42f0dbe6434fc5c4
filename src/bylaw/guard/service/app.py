"""The configuration of a service, in a form that its workers can be given, and the Starlette application of one worker:
`/v1/…` for programs, `/console/…` for people, `/auth/…` for signing in."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from bylaw.guard.guard import Guard
from bylaw.guard.incidents.channels import Notify, add_webhooks, read_yaml
from bylaw.guard.model import Options
from bylaw.guard.service import sign_in
from bylaw.guard.service.api.routes import api_routes
from bylaw.guard.service.auth import People, SharedRateTable
from bylaw.guard.service.context import Context, Settings
from bylaw.guard.service.errors import BadRequest, NotAllowed, NotFound, ServiceError, Unavailable
from bylaw.guard.service.gate import Gate, error_response
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.rule_versions import RuleVersions
from bylaw.guard.service.sign_in import OidcSettings, Provider
from bylaw.guard.service.telemetry import Metrics, make_exporter
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import GuardStore, StoreUnavailable
from bylaw.model.canonical import prepared
from bylaw.model.rule import GuardSet
from bylaw.text.redaction.redactor import Redaction

READY = "ready"
"""a file in the folder that workers share: one of them has started"""
VARIABLE = "BYLAW_SERVE"
"""the environment variable that hands the configuration to the workers; it holds no secret"""
OIDC_SECRET = "BYLAW_OIDC_SECRET"
LISTEN = "127.0.0.1:8787"


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    certificate: str
    """file, in PEM form, with the certificates above it"""
    key: str
    """file, in PEM form"""


class ServiceFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of `--config`: everything that few services need."""

    tls: Tls | None = None
    people: People = People()
    oidc: OidcSettings | None = None
    limits: Settings = Settings()
    notify: Notify = Notify()


class ServeConfig(Struct, frozen=True, kw_only=True):
    policies: tuple[str, ...]
    store: str | None = None
    """None: in memory, for one worker"""
    listen: str = LISTEN
    workers: int = 1
    mode: str | None = None
    version: str | dict[str, str] | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, Any] | None = None
    review_seconds: float | None = 3600.0
    shadow: bool = False
    redaction: dict[str, Any] = field(default_factory=dict)
    """the arguments of `Redaction`"""
    file: ServiceFile = ServiceFile()
    console: bool = True
    follow: bool = True
    watch: bool = False
    """whether the rule files are looked at while the service runs"""
    webhook: str | None = None
    escalate_to: str | None = None
    metrics: str | None = None
    """the folder that workers share, with their metrics and who has asked how often"""
    jobs: str | None = None
    """where other jobs are: `module:attribute`, a mapping from names to functions"""
    otel: bool = False

    @property
    def options(self) -> Options:
        return Options(review_seconds=self.review_seconds, shadow=self.shadow, redaction=Redaction(**self.redaction))

    @property
    def notify(self) -> Notify:
        """The recipients of notifications, from the file and the options."""
        return add_webhooks(self.file.notify, self.webhook, self.escalate_to)

    def open_store(self) -> GuardStore:
        """Raises StoreUnavailable."""
        return MemoryStore() if self.store is None else SqliteStore(self.store)


def read_service_file(path: str) -> ServiceFile:
    """Raises OSError, or ValueError with what is wrong in it."""
    content = read_yaml(path)
    try:
        return msgspec.convert({} if content is None else content, prepared(ServiceFile))
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


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

    routes: list[BaseRoute] = [*api_routes(context), *sign_in.routes()]
    if console:
        from bylaw.guard.service.console import console_routes

        routes += console_routes(context)
    return Service(
        context,
        routes=routes,
        exception_handlers={
            ServiceError: _service_error,
            StoreUnavailable: lambda request, problem: _service_error(request, Unavailable(str(problem))),
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
    """Renders errors of the router and of static files like every other failure."""
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


def make_versions(config: ServeConfig, store: GuardStore) -> RuleVersions:
    return RuleVersions(store, mode=config.mode, labels=config.version, inputs=config.inputs, options=config.options)


def make_context(config: ServeConfig, store: GuardStore) -> Context:
    """One worker. Raises InputError for rules that cannot be used."""
    versions = make_versions(config, store)
    loaded = versions.begin(config.policies)
    guard = Guard(GuardSet(tuple(loaded.policies)), store=store, tool_schemas=config.schemas, options=config.options)
    versions.attach(guard)
    context = Context(
        Operations(guard, versions),
        people=config.file.people,
        settings=config.file.limits,
        metrics=Metrics(config.metrics),
        spans=make_exporter() if config.otel else None,
        moments=_shared_moments(config),
    )
    context.operations.notifications.channels = config.notify.channels
    if config.file.oidc is not None:
        context.oidc = Provider(config.file.oidc, os.environ.get(OIDC_SECRET))
    return context


def _shared_moments(config: ServeConfig) -> SharedRateTable | None:
    """None if there is only one worker, or if the system has no locks for it: then each worker counts by itself."""
    if config.metrics is None or config.workers == 1 or os.name != "posix":
        return None
    return SharedRateTable(Path(config.metrics) / "rates")


def make_app(config: ServeConfig, store: GuardStore | None = None) -> Starlette:
    """The application of one worker, which closes its resources when it ends."""
    opened = store or config.open_store()
    context = make_context(config, opened)
    app = create_app(context, jobs=find_jobs(config.jobs), console=config.console)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with _stopping_early(context):
            async with inner(app):
                if config.metrics is not None:
                    with suppress(OSError):  # of a later worker, if the folder was tidied away
                        (Path(config.metrics) / READY).touch()
                yield
        context.close()  # decisions that are being made are finished first
        context.operations.guard.close()
        if store is None:
            opened.close()

    app.router.lifespan_context = lifespan
    return app


def app_from_environment() -> Starlette:
    """What each worker process calls."""
    return make_app(msgspec.json.decode(os.environ[VARIABLE].encode(), type=prepared(ServeConfig)))


def find_jobs(home: str | None) -> dict[str, Callable[..., Any]]:
    if home is None:
        return {}
    module, _, name = home.partition(":")
    return dict(getattr(importlib.import_module(module), name))


@contextmanager
def _stopping_early(context: Context) -> Iterator[None]:
    """Streams end when the signal arrives: the server waits for them before it tells the application to end."""
    loop, before = asyncio.get_running_loop(), dict[int, Any]()

    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(context.stopping.set)
        if callable(earlier := before.get(number)):
            earlier(number, frame)

    if threading.current_thread() is threading.main_thread():
        before.update({one: signal.signal(one, handle) for one in (signal.SIGTERM, signal.SIGINT)})
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)

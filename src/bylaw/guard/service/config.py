"""The configuration of a service: what `bylaw guard serve` was told, in a form that its workers can be given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from bylaw.guard.incidents.channels import Notify, add_webhooks
from bylaw.guard.model import Options
from bylaw.guard.service.auth import People
from bylaw.guard.service.context import Settings
from bylaw.guard.service.sign_in import OidcSettings
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.text.redaction.redactor import Redaction

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
    demo: bool = False

    @property
    def options(self) -> Options:
        return Options(review_seconds=self.review_seconds, shadow=self.shadow, redaction=Redaction(**self.redaction))

    @property
    def notify(self) -> Notify:
        """Who is told of incidents and reviews, by the file and the options."""
        return add_webhooks(self.file.notify, self.webhook, self.escalate_to)

    def open_store(self) -> GuardStore:
        """Raises StoreUnavailable."""
        return MemoryStore() if self.store is None else SqliteStore(self.store)


def read_service_file(path: str) -> ServiceFile:
    """Raises OSError, or ValueError with what is wrong in it."""
    import yaml

    with open(path, encoding="utf-8") as file:
        try:
            content = yaml.safe_load(file)
        except yaml.YAMLError as problem:
            raise ValueError(f"{path}: not YAML: {problem}") from None
    try:
        return msgspec.convert({} if content is None else content, ServiceFile)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def config_from_environment(environment: Mapping[str, str] = os.environ) -> ServeConfig:
    return msgspec.json.decode(environment[VARIABLE].encode(), type=ServeConfig)

"""Why the service does not do what it was asked. Each has an HTTP status and a code that programs can rely on."""

from __future__ import annotations

from typing import Any


class ServiceError(Exception):
    status = 500
    code = "error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message, self.details = message, details


class BadRequest(ServiceError):
    status, code = 400, "bad-request"


class Unauthorized(ServiceError):
    """No key, or one that is not valid."""

    status, code = 401, "unauthorized"


class Forbidden(ServiceError):
    status, code = 403, "forbidden"


class NotFound(ServiceError):
    status, code = 404, "not-found"


class NotAllowed(ServiceError):
    """The path is there, and does not have this method."""

    status, code = 405, "method-not-allowed"


class Conflict(ServiceError):
    """Somebody else was faster, or the thing is in a state that does not allow it."""

    status, code = 409, "conflict"


class TooLarge(ServiceError):
    status, code = 413, "too-large"


class Unsupported(ServiceError):
    """The body is not JSON, or does not say so."""

    status, code = 415, "unsupported-media-type"


class Unusable(ServiceError):
    """The rules cannot be used; `details["diagnostics"]` says why."""

    status, code = 422, "unusable"


class TooMany(ServiceError):
    status, code = 429, "too-many-requests"


class HeadersTooLarge(ServiceError):
    status, code = 431, "headers-too-large"


class Unavailable(ServiceError):
    status, code = 503, "unavailable"

"""The exceptions that Bylaw raises, and the exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from bylaw.model.diagnostic import Diagnostic


class ExitCode(IntEnum):
    """The exit codes of all commands. Public: scripts and CI rely on them."""

    OK = 0
    """everything held"""
    GATE_TRIPPED = 1
    """a rule broken, a score too low"""
    BAD_INPUT = 2
    """a file, flag, rule or trace that cannot be used as it is"""
    NOTHING_CHECKED = 3
    """every rule vacuous, or an empty trace: not a pass"""
    OUT_OF_REACH = 4
    """something needed did not answer"""
    INTERRUPTED = 130

    @classmethod
    def first_of(cls, codes: Iterable[ExitCode]) -> ExitCode:
        """Where several apply: 2, then 1, 4, 3, 0."""
        return min(codes, key=_PRECEDENCE.index, default=cls.OK)


_PRECEDENCE = (
    ExitCode.INTERRUPTED,
    ExitCode.BAD_INPUT,
    ExitCode.GATE_TRIPPED,
    ExitCode.OUT_OF_REACH,
    ExitCode.NOTHING_CHECKED,
    ExitCode.OK,
)


class BylawError(Exception):
    """The base of all exceptions that Bylaw raises on purpose."""

    exit_code = ExitCode.BAD_INPUT


class InputError(BylawError):
    """A file of the user cannot be used; `diagnostics` holds every problem found."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=Diagnostic.sort_key))
        super().__init__("\n".join(_one_line(d) for d in self.diagnostics))


class ArgumentError(InputError, TypeError, ValueError):
    """A function was called with a value of a type that it does not take."""

    def __init__(self, message: str) -> None:
        super().__init__([Diagnostic(code="wrong-type", message=message, file="<call>")])


class FeatureNotEnabledError(BylawError, RuntimeError):
    """A feature that is off by default was used without being enabled. Raised before anything is sent."""


def _one_line(diagnostic: Diagnostic) -> str:
    place = str(diagnostic.span) if diagnostic.span else diagnostic.file
    return f"{place}: {diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"

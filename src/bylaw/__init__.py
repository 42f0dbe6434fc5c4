"""Bylaw holds AI agents to their rules.

    trace = bylaw.load_trace("run.jsonl")
    rules = bylaw.load_rules("bylaw.yaml")
    report = bylaw.check(trace, rules)

The public names are listed once, in `__init__.pyi`, and imported when they are first used, so that `import bylaw` costs
next to nothing: `bylaw hook` does it for every call of a coding agent, and `typing` alone would take as long as Python
itself.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _read_homes() -> dict[str, str]:
    """Public name → the module that defines it, from the lines `from MODULE import NAME as NAME` of the stub."""
    stub = __loader__.get_data(os.path.join(__path__[0], "__init__.pyi"))  # type: ignore[name-defined]
    lines = (line.split() for line in stub.decode().splitlines())
    return {words[3]: words[1] for words in lines if len(words) == 6 and words[0] == "from"}


_HOMES = _read_homes()
__all__ = sorted(_HOMES)  # noqa: PLE0605  # the stub says the same to type checkers


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise _missing(name)
    import importlib

    home = importlib.import_module(_HOMES[name])
    value = getattr(home, name, None) or importlib.import_module(f"{_HOMES[name]}.{name}")  # a package
    globals()[name] = value
    return value


_NAMES_ELSEWHERE = {
    "PisamaFeatureNotEnabledError": "here it is `bylaw.FeatureNotEnabledError`",
    "pisama_agent_sdk": "`check_compliance` and its types are in `bylaw` itself: `from bylaw import check_compliance`",
    "configure_check": "here the judge has an address: `judge_url` of `bylaw.Compliance`, or `BYLAW_JUDGE_URL`",
}
"""names of another product that people bring along → ours"""


def _missing(name: str) -> Exception:
    hint = f": {_NAMES_ELSEWHERE[name]}" if name in _NAMES_ELSEWHERE else ""
    message = f"module `bylaw` has no attribute `{name}`{hint}"
    # `from bylaw import NAME` would replace the message of an AttributeError by its own, so it gets an ImportError.
    asks = sys._getframe(2).f_globals.get("__name__", "")
    is_import = hint and asks in ("importlib._bootstrap", "_frozen_importlib")
    return ImportError(message, name="bylaw") if is_import else AttributeError(message, name=name)


def __dir__() -> list[str]:
    return list(__all__)


_PACKAGES = ("check", "diff", "record")
"""public functions that share their name with the package of their job"""


class _Door(type(sys)):  # type: ignore[misc]  # `types.ModuleType`, without an import
    """Keeps `bylaw.check` the function: the import system sets it to the package when it imports that."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PACKAGES or not isinstance(value, type(sys)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door

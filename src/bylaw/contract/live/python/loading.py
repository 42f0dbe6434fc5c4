"""Finds `module:attribute`, looking into the contract's own folder first."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from bylaw.contract.live_agent import AgentUnreachable
from bylaw.wire.values import one_line


@contextlib.contextmanager
def folder_first(folder: Path) -> Iterator[None]:
    """Modules are looked for in the folder before anywhere else."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the agent may have changed the path itself
            sys.path.remove(entry)


def load(address: str, folder: Path) -> Any:
    """The object at `module:attribute`. What an import prints goes to stderr: stdout is for results."""
    module_name, colon, attribute = address.partition(":")
    if not colon or not module_name or not attribute:
        raise AgentUnreachable(f"`{address}` is not of the form `module:attribute`")
    module = load_module(module_name, folder)
    value: Any = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise AgentUnreachable(f"`{module_name}` has no `{attribute}`") from None
    return value


def load_module(name: str, folder: Path) -> Any:
    _forget_namesake(name.partition(".")[0], folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # importing runs the agent's own code
        raise AgentUnreachable(f"cannot import `{name}` from `{folder}`: {one_line(error)}") from error


def _forget_namesake(name: str, folder: Path) -> None:
    """A module of the same name that came from another folder must not stand for this one."""
    held = sys.modules.get(name)
    if held is None or name in sys.stdlib_module_names or name == "bylaw":
        return
    found = PathFinder.find_spec(name, [str(folder.resolve())])
    if found is None or found.origin is None or found.origin == getattr(held, "__file__", None):
        return
    for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[known]


def made(value: Any, address: str) -> Any:
    """The agent itself: a class is made into an object, once."""
    if not inspect.isclass(value):
        return value
    try:
        return value()
    except TypeError as error:
        raise AgentUnreachable(
            f"`{address}` is a class that cannot be made without arguments ({one_line(error)}); "
            "name a function or an object instead"
        ) from error
    except Exception as error:  # the agent's own code
        raise AgentUnreachable(f"cannot make an object of `{address}`: {one_line(error)}") from error

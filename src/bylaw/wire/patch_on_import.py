"""Patches modules that are imported already, and those that are imported later, right after their import.

Patches do nothing outside a run or a recording. They are removed when the last agent has stopped and the last recording
has ended.
"""

from __future__ import annotations

import http.client  # noqa: F401  # imported before the finder exists, because its patch subclasses its classes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from bylaw.wire.values import one_line

_log = logging.getLogger("bylaw")
_ABSENT = object()


class Patches:
    """Replaced attributes, with the data to restore them."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name` to `make(original)`. An owner without that attribute is left alone."""
        original = vars(owner).get(name)
        if original is None or any(patched is owner and attribute == name for patched, attribute, _ in self._undo):
            return
        self._undo.append((owner, name, original))
        setattr(owner, name, make(original))

    def add(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute that the owner itself does not have."""
        if name not in vars(owner):
            self._undo.append((owner, name, _ABSENT))
            setattr(owner, name, value)

    def __len__(self) -> int:
        return len(self._undo)

    def undo(self, *, down_to: int = 0) -> None:
        """Restore the latest replacements until only `down_to` are left."""
        while len(self._undo) > down_to:
            owner, name, original = self._undo.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def subclasses(kind: Any) -> Iterator[Any]:
    """All classes that are derived from this one so far."""
    for derived in kind.__subclasses__():
        yield derived
        yield from subclasses(derived)


class PatchOnImport:
    """A set of patches of this process, shared by several agents and recordings.

    `modules` maps each module to patch to a module of ours whose function `patch` does it.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.modules = modules
        self._lock = threading.RLock()
        self._users = 0
        self._patches = Patches()
        self._failed: set[str] = set()
        """modules that could not be patched right after their import"""
        self.finder = _Finder(self)

    def open(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                sys.meta_path.insert(0, self.finder)
            try:
                self.refresh()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.meta_path.remove(self.finder)
                self._patches.undo()

    def refresh(self) -> None:
        """Patch new modules, and new classes that users of a framework have defined."""
        for name in self.modules:
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self.patch(name, module)

    def patch(self, name: str, module: ModuleType) -> None:
        """Apply all patches of the module, or none if one fails."""
        with self._lock:
            if not self._users:
                return
            before = len(self._patches)
            try:
                importlib.import_module(self.modules[name]).patch(module, self._patches)
            except BaseException:
                self._patches.undo(down_to=before)
                raise

    def patch_imported(self, name: str, module: ModuleType) -> None:
        """Patch a module that the agent has just imported. A patch that fails must not make the import fail."""
        try:
            self.patch(name, module)
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                _log.error("`%s` cannot be patched, so its calls are not seen: %s", name, one_line(error))


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module, and wraps its loader."""

    def __init__(self, patching: PatchOnImport) -> None:
        self._patching = patching
        self._busy: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._patching.modules or fullname in self._busy:
            return None
        self._busy.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            spec = None
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, fullname, self._patching)
        return spec


class _Loader(importlib.abc.Loader):
    """Patches the module once it has been executed."""

    def __init__(self, loader: Any, name: str, patching: PatchOnImport) -> None:
        self._loader = loader
        self._name = name
        self._patching = patching

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patching.patch_imported(self._name, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


LIBRARIES = PatchOnImport(
    {
        "aiohttp.client": "bylaw.wire.patches.aiohttp",
        "concurrent.futures.thread": "bylaw.wire.listeners",
        "http.client": "bylaw.wire.patches.http_client",
        "httpx": "bylaw.wire.patches.httpx",
        "httpx2": "bylaw.wire.patches.httpx",
        "threading": "bylaw.wire.listeners",
        "urllib3.connectionpool": "bylaw.wire.patches.urllib3",
    }
)

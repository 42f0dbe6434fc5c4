"""Where libraries and frameworks are patched: as soon as an agent starts, and right after an import that comes later.

Only what is imported is patched. Patches do nothing outside a run or a recording, and are gone when the last agent has
stopped and the last recording has ended.
"""

from __future__ import annotations

import http.client  # noqa: F401  # there before the finder is: its patch is made of its own classes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from bylaw.wire.patches.patches import Patches
from bylaw.wire.values import one_line

_log = logging.getLogger("bylaw")
_HERE = "bylaw.contract.live"
_FRAMEWORKS = {
    "agents.models.interface": f"{_HERE}.frameworks.openai_agents_models",
    "agents.tool": f"{_HERE}.frameworks.openai_agents_tools",
    "langchain_core.language_models.chat_models": f"{_HERE}.frameworks.langchain_models",
    "langchain_core.tools.base": f"{_HERE}.frameworks.langchain_tools",
    "pydantic_ai.agent": f"{_HERE}.frameworks.pydantic_ai",
}
_LIBRARIES = {
    "aiohttp.client": "bylaw.wire.patches.aiohttp",
    "concurrent.futures.thread": "bylaw.wire.patches.threads",
    "http.client": "bylaw.wire.patches.http_client",
    "httpx": "bylaw.wire.patches.httpx",
    "httpx2": "bylaw.wire.patches.httpx",
    "threading": "bylaw.wire.patches.threads",
    "urllib3.connectionpool": "bylaw.wire.patches.urllib3",
}
"""in both: the module that holds a seam, and ours with the function `patch` for it"""


class Seams:
    """The patches of this process at these places; several agents and recordings share them."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places
        self._lock = threading.RLock()
        self._users = 0
        self._patches = Patches()
        self._unpatched: set[str] = set()
        """modules whose patch failed right after their import"""
        self._finder = _LateImports(self)

    def open(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                sys.meta_path.insert(0, self._finder)
            try:
                self.refresh()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.meta_path.remove(self._finder)
                self._patches.undo()

    def refresh(self) -> None:
        """Patches what has come since: modules, and classes that a framework lets people define."""
        for name in self.places:
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self.patch(name, module)

    def patch(self, name: str, module: ModuleType) -> None:
        """All of the module or nothing."""
        with self._lock:
            if not self._users:
                return
            before = len(self._patches)
            try:
                importlib.import_module(self.places[name]).patch(module, self._patches)
            except BaseException:
                self._patches.undo(down_to=before)
                raise

    def patch_imported(self, name: str, module: ModuleType) -> None:
        """The import is the agent's own, and does not fail where only our patch does."""
        try:
            self.patch(name, module)
        except Exception as error:
            if name not in self._unpatched:
                self._unpatched.add(name)
                _log.error("`%s` cannot be listened to, so its calls are not seen: %s", name, one_line(error))


class _LateImports(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module with a seam, and patches it once it has been executed."""

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._busy: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._seams.places or fullname in self._busy:
            return None
        self._busy.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            spec = None
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patching(spec.loader, fullname, self._seams)
        return spec


class _Patching(importlib.abc.Loader):
    def __init__(self, loader: Any, name: str, seams: Seams) -> None:
        self._loader = loader
        self._name = name
        self._seams = seams

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._seams.patch_imported(self._name, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


FRAMEWORKS = Seams(_FRAMEWORKS)
LIBRARIES = Seams(_LIBRARIES)

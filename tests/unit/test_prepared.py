"""Types that msgspec reads JSON into are prepared by one thread."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import bylaw

THREADS = """
import sys, threading
from typing import Any
import msgspec
from bylaw.model.canonical import prepared

sys.setswitchinterval(1e-7)
for number in range(12):
    inner = msgspec.defstruct("Inner", [("a", int), ("b", str | None, None), ("c", dict[str, Any] | None, None)])
    middle = msgspec.defstruct("Middle", [("one", inner | None, None), ("many", tuple[inner, ...], ())])
    outer = msgspec.defstruct("Outer", [("first", middle), ("more", tuple[middle, ...], ())])
    together = threading.Barrier(8)

    def read():
        together.wait()
        for _ in range(3):
            found = msgspec.json.decode(b'{"first":{"one":{"a":1},"many":[{"a":2}]}}', type=prepared(outer))
            assert found.first.many[0].a == 2

    threads = [threading.Thread(target=read) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
"""


def test_threads_may_be_the_first_to_read_a_type() -> None:
    """Without `prepared`, this process ends by signal 11."""
    done = subprocess.run([sys.executable, "-c", THREADS], check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_type_that_is_read_is_prepared() -> None:
    found = [
        f"{path.name}:{call.lineno}"
        for path in Path(bylaw.__file__).parent.rglob("*.py")
        if "msgspec." in (text := path.read_text("utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and (wanted := _type_of(call)) is not None
        if not _is_prepared(wanted)
    ]
    assert found == []


def _type_of(call: ast.Call) -> ast.expr | None:
    """The second argument of `msgspec.convert`, the `type` of `msgspec.json.decode`."""
    if not isinstance(call.func, ast.Attribute) or not ast.unparse(call.func).startswith("msgspec."):
        return None
    if call.func.attr == "convert":
        return call.args[1]
    return next((one.value for one in call.keywords if call.func.attr == "decode" and one.arg == "type"), None)


def _is_prepared(wanted: ast.expr) -> bool:
    """Through `prepared`, or made of plain types."""
    names = {one.id for one in ast.walk(wanted) if isinstance(one, ast.Name)}
    return "prepared" in names or names <= {"dict", "list", "str", "float", "Any", "Raw"}

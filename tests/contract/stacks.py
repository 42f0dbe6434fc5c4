"""The contracts of `examples/stacks`, and the scores that its README expects."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import bylaw
from bylaw.contract.results import ContractReport
from tests.contract.end_to_end.support import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
_ROW = re.compile(r"^\| `([\w-]+)\.yaml` \|.*\| ([\d.]+) \| (\d) \|", re.MULTILINE)
EXPECTED = {
    name: (float(score), int(code)) for name, score, code in _ROW.findall((EXAMPLES / "stacks/README.md").read_text())
}
IN_PROCESS = ("langgraph", "openai-agents-chat", "openai-agents-responses", "openai-agents-streamed", "pydantic-ai")


@contextlib.contextmanager
def stacks(folder: Path) -> Iterator[Path]:
    """A copy of the examples whose ports are free ones, with the model running."""
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    spec = spec_from_file_location("stack_model", EXAMPLES / "stacks" / "model.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = ThreadingHTTPServer(("127.0.0.1", 0), module.Model)
    model.daemon_threads = True
    thread = threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    ports = {"8197": str(model.server_address[1]), "8196": str(free_port()), "python3": sys.executable}
    try:
        for file in (folder / "examples" / "stacks").iterdir():
            text = file.read_text()
            for name, own in ports.items():
                text = text.replace(name, own)
            file.write_text(text)
        yield folder / "examples" / "stacks"
    finally:
        model.shutdown()
        model.server_close()
        thread.join()


def run_stack(folder: Path, name: str) -> ContractReport:
    """Run one contract and compare its score with the README."""
    report = bylaw.run_contract(folder / f"{name}.yaml")
    assert (report.score, report.exit_code) == EXPECTED[name], report
    calm = {cell.invariant: cell.outcome.value for cell in report.cells if cell.scenario == "calm"}
    assert calm == {"answers": "ok", "never-invents": "not_applicable", "looks-it-up": "ok"}
    assert all(fault.fired for cell in report.cells for fault in cell.faults if cell.applies)
    return report

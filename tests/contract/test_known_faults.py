"""Faults that were found in another tool of this kind, and the tests that show Bylaw free of them.

The tests are in `known_faults/`, and their names begin with the numbers below. Numbers 17, 40 and 41 are about commands
that Bylaw does not have; their tests show the nearest that it does have, and say so.
"""

from __future__ import annotations

import re
from pathlib import Path

FAULTS = {
    1: "a fault on a named tool that can never reach the agent is passed over, and its cell is green",
    2: "a fault on the URL of a real tool never matches",
    3: "every tool down answers in the agent's place, which is never asked",
    4: "a chaos block at the top takes away the faults of scenarios",
    5: "a chaos block at the top leaks into the calm scenario",
    6: "tool faults on an agent of a framework are passed over",
    7: "tool faults on a Python agent end the whole run",
    8: "a model timeout does not happen to a fast agent, and hides the other faults",
    9: "a misspelt mode is no fault, and a pass",
    10: "most attacks on the context do nothing",
    11: "an attack that is off or has no chance is put in, and a second one is not",
    12: "prompts break the JSON of a template, or add fields to it",
    13: "a delay beyond the agent's timeout passes",
    14: "a timeout is waited for several times",
    15: "a seed decides nothing",
    16: "calls are counted across runs, so that the order of invariants decides",
    17: "recorded results of tools are not used",
    18: "`when` is not read",
    19: "a pattern escaped twice can never match, and nobody says so",
    20: "`similarity` crashes, while validation finds nothing",
    21: "an unknown type is read as another one",
    22: "`excludes_pattern` takes its patterns for plain text",
    23: "two invariants with one id share a check; an unknown severity weighs little",
    24: "an agent that is down passes",
    25: "no cells are 100 %",
    26: "`negate` is not read by most types",
    27: "all prompts are compared with the first one's answer",
    28: "`refusal_check` passes compliance, and fails refusals that quote",
    29: "order numbers are personal data, and IBANs are none",
    30: "searches take time that grows with the square of the answer, or worse",
    31: "`error: null` beside an answer is an error",
    32: "latency includes the making of the HTTP client",
    33: "a reset that fails counts as one",
    34: "weights that are all zero give 100 %",
    35: "a violation exits with 0",
    36: "the score does not stand alone on standard output",
    37: "a run in CI that tested nothing passes; the matrix is run three times",
    38: "the report says PASS where the exit code says failed",
    39: "the score of an agent that is down is a crash",
    40: "faults that no scenario names are put in all the same",
    41: "names that resolve to nothing pass; what is exported is not what was sent",
    42: "templates of GET requests and paths into replies are misread",
    43: "Python agents are not found, have no timeout, or are classes that fail in silence",
    44: "drifting answers hardly drift; reports are not escaped",
}


def test_every_fault_has_a_test() -> None:
    files = sorted((Path(__file__).parent / "known_faults").glob("test_*.py"))
    tested = {int(n) for file in files for n in re.findall(r"^def test_(\d\d)_", file.read_text("utf-8"), re.MULTILINE)}
    assert tested == FAULTS.keys()

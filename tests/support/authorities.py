"""The authorities that HTTP clients trust during the tests.

A client loads them when it is made. Those of the machine take 50 ms each time, and tests ask only servers on loopback.
"""

from __future__ import annotations

import os
from pathlib import Path

_OF_MACHINE = os.environ.get("SSL_CERT_FILE")


def trust_one_authority() -> None:
    """Let clients of this process, and of those it starts, load a single certificate, whose key nobody has."""
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))


def outside_environment() -> dict[str, str]:
    """The environment for commands that fetch packages."""
    found = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    return found if _OF_MACHINE is None else {**found, "SSL_CERT_FILE": _OF_MACHINE}

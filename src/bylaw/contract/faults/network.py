"""Faults of the network between an agent and its tools or models.

| mode           | what happens                                                                              |
|----------------|-------------------------------------------------------------------------------------------|
| reset          | the request arrives and is carried out; then the connection is reset, without a reply      |
| dns_failure    | the name of the server is not found; nothing is sent                                       |
| truncated_body | the connection ends in the middle of the body                                              |
| slow_body      | the reply begins at once, and its body arrives in small pieces                             |
| jitter         | the request takes longer, each time by another time                                        |
"""

from __future__ import annotations

import socket
from http.client import IncompleteRead
from random import Random

from bylaw.contract.faults.effects import delay_of
from bylaw.contract.faults.model import LlmFault, ToolFault
from bylaw.wire.exchange import Exchange, Incoming

BEFORE = ("dns_failure", "jitter")
"""decided before anything is sent"""
AFTER = ("reset", "slow_body", "truncated_body")
"""put into the reply, once there is one"""
RESET = "[Errno 104] Connection reset by peer"
UNKNOWN_NAME = "[Errno -2] Name or service not known"


def prepare(exchange: Exchange, fault: ToolFault | LlmFault, random: Random) -> bool:
    """Put the fault into an exchange that has not begun; whether it was."""
    if fault.mode == "jitter":
        exchange.delay = jitter_of(fault, random)
    elif fault.mode == "dns_failure":
        exchange.fails = "dns"
    elif fault.mode in AFTER:
        exchange.buffers = True
    return fault.mode in BEFORE


def strike(exchange: Exchange, fault: ToolFault | LlmFault, reply: Incoming) -> bool:
    """Put the fault into the reply of an exchange; whether there was anything to put it into."""
    if fault.mode == "reset":
        exchange.fails = "reset"
        return True
    if len(reply.body) < 2:
        return False
    if fault.mode == "slow_body":
        exchange.body_seconds = delay_of(fault)
    else:
        exchange.cut_after = len(reply.body) // 2
    return True


def jitter_of(fault: ToolFault | LlmFault, random: Random) -> float:
    """Seconds, at least a tenth of the most."""
    return delay_of(fault) * random.uniform(0.1, 1)


def error_of(fault: ToolFault) -> Exception | None:
    """What a tool raises that is called by name and asks a server itself; None if it only takes longer."""
    match fault.mode:
        case "reset":
            return ConnectionResetError(104, "Connection reset by peer")
        case "dns_failure":
            return socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        case "truncated_body":
            return IncompleteRead(b"")
    return None


def described(fault: ToolFault) -> str | None:
    """What an agent shows its model of such a failure."""
    texts = {"reset": RESET, "dns_failure": UNKNOWN_NAME, "truncated_body": "IncompleteRead: connection closed early"}
    return texts.get(fault.mode)

"""The effects of faults on a tool's result, and on the network: `texts` has those on a model's answer.

The same functions serve calls in this process and on the wire. Each returns a new value. One that finds nothing to
change returns an equal value, and then its fault did not fire.
"""

from __future__ import annotations

import copy
import json
import re
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from http.client import IncompleteRead, responses
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from bylaw.contract.faults import LlmFault, ToolFault
from bylaw.wire.exchange import Exchange, Incoming

MAX_DEPTH = 64
"""deeper values are not changed: results come from outside and may be nested to any depth"""

_ISO_DATE = re.compile(r"(?<!\d)(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?!\d)")
_DIGITS = re.compile(r"\d+")
_TIME_KEY = re.compile(r"(?:^|_)(?:at|date|time|timestamp|ts|created|updated|expires|modified)$")
_YEAR_SECONDS = 365 * 24 * 3600
_EPOCH = range(946_684_800, 4_102_444_800)
"""seconds of the years 2000 to 2099"""


def delay_of(fault: ToolFault | LlmFault, random: Random | None = None) -> float:
    """Seconds; 0 for a fault that does not delay. `jitter` draws them, at least a tenth of the most."""
    most = (fault.delay_ms or 0) / 1000
    return most * random.uniform(0.1, 1) if random is not None and fault.mode == "jitter" else most


def payload_of(fault: ToolFault) -> Any:
    """The result of the fault in place of the tool's; None if it changes the tool's result."""
    return fault.payload if fault.mode in ("malicious_response", "wrong_data") else None


def reason_of(fault: ToolFault) -> str:
    """The error text of a failing tool; by default in the words of HTTP: an agent must not see that it is tested."""
    return fault.message or responses.get(fault.error_code, "Service Unavailable")


def truncate_json(text: str) -> str:
    """The text cut in the middle, so that it is not JSON."""
    cut = text[: len(text) // 2]
    return cut + '{"' if not cut.strip() or _is_json(cut) else cut


def empty_value(value: Any) -> Any:
    """The empty value of the same type; None if the type has none, such as numbers."""
    if not isinstance(value, (*_EMPTY_BY_CALL, Mapping)):
        return None
    # A subclass may need arguments, so its base class is used.
    return next((base() for base in _EMPTY_BY_CALL if isinstance(value, base)), {})


def wrong_data(value: Any, random: Random) -> Any:
    """The same shape with other values: numbers shifted, texts swapped, booleans flipped, lists shortened."""
    texts = sorted({text for text in _texts(value, 0) if not _DIGITS.search(text)})
    return _map_leaves(value, lambda leaf, _key: _wrong_leaf(leaf, random, texts), shorten=True)


def age_dates(value: Any) -> Any:
    """The value with all dates and times moved one year back."""
    return _map_leaves(value, _aged_leaf, shorten=False)


_EMPTY_BY_CALL = (str, bytes, list, tuple, set, frozenset, dict)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _map_leaves(value: Any, leaf: Callable[[Any, str], Any], *, shorten: bool, key: str = "", depth: int = 0) -> Any:
    """The value with `leaf` applied to everything inside."""

    def inner(item: Any, name: str = key) -> Any:
        return _map_leaves(item, leaf, shorten=shorten, key=name, depth=depth + 1)

    if depth > MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        return _restore_type(value, {name: inner(item, str(name)) for name, item in value.items()})
    if isinstance(value, list):
        return _restore_type(value, [inner(item) for item in _shorten_list(value, shorten)])
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)  # a named tuple keeps its length
        items = [inner(item) for item in (value if fields else _shorten_list(value, shorten))]
        return type(value)(*items) if fields else _restore_type(value, tuple(items))
    if isinstance(value, set | frozenset):
        return _restore_type(value, {inner(item) for item in sorted(value, key=repr)})
    if isinstance(value, Enum):
        return leaf(value, key)
    if isinstance(value, str):
        inside = _json_inside(value)
        if inside is None:
            return _restore_type(value, leaf(value, key))
        changed = inner(inside)  # a text that is a JSON object or list is changed inside, so that it stays JSON
        return value if changed == inside else _restore_type(value, json.dumps(changed, ensure_ascii=False))
    if not callable(value) and _field_names(value):
        return _mapped_object(value, inner)
    return leaf(value, key)


def _restore_type(original: Any, changed: Any) -> Any:
    """The changed value in the type of the original, which may be a subclass: `OrderedDict`, `Markup`."""
    kind = type(original)
    if type(changed) is kind:
        return changed
    try:
        if isinstance(original, defaultdict):
            return kind(original.default_factory, changed)
        return kind(changed)
    except Exception:  # a class of the agent that takes other arguments
        return changed


def _shorten_list(items: Any, shorten: bool) -> Any:
    return items[:-1] if shorten and len(items) > 1 else items


def _json_inside(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mapped_object(value: Any, inner: Callable[[Any, str], Any]) -> Any:
    """A copy of a dataclass, Pydantic model, Struct or plain object whose public fields are changed."""
    try:
        clone = copy.copy(value)
        for name in _field_names(value):
            item = inner(getattr(value, name), name)
            if name in getattr(clone, "__dict__", {}):
                clone.__dict__[name] = item
            else:
                object.__setattr__(clone, name, item)
    except (TypeError, AttributeError):
        try:  # a frozen Struct, which no assignment changes
            changed = {name: inner(getattr(value, name), name) for name in _field_names(value)}
            return msgspec.structs.replace(value, **changed)
        except TypeError:
            return value
    return clone


def _field_names(value: Any) -> list[str]:
    slots = [slot for kind in type(value).__mro__ for slot in _slots(kind)]
    names = [*getattr(value, "__struct_fields__", ()), *slots, *getattr(value, "__dict__", ())]
    return [name for name in dict.fromkeys(names) if not name.startswith("_") and hasattr(value, name)]


def _slots(kind: type) -> tuple[str, ...]:
    """Only of classes that are written in Python: those of C types, such as `date`, are no fields."""
    slots = kind.__dict__.get("__slots__", ()) if kind.__module__ not in sys.stdlib_module_names else ()
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        inside = _json_inside(value)
        if inside is None:
            yield value
        else:
            yield from _texts(inside, depth + 1)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item, depth + 1)


def _wrong_leaf(value: Any, random: Random, texts: list[str]) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        others = [member for member in type(value) if member is not value]
        return random.choice(others) if others else value
    if isinstance(value, Decimal):
        return value + random.choice((-1, 1)) * Decimal(random.randint(1, 9)) * (1 + abs(value).to_integral_value())
    if isinstance(value, UUID):
        return UUID(int=random.getrandbits(128), version=value.version)
    if isinstance(value, timedelta):
        return value + timedelta(minutes=random.randint(3, 300))
    if isinstance(value, bytes):
        return bytes(value[::-1]) if value[::-1] != value else value + b"0"
    if isinstance(value, int):
        return value + random.choice((-1, 1)) * random.randint(1, max(9, abs(value) // 2))
    if isinstance(value, float):
        return round(value + random.choice((-1, 1)) * (abs(value) / 2 + 1) * random.uniform(0.2, 1), 4)
    if isinstance(value, date):
        return value + timedelta(days=random.choice((-1, 1)) * random.randint(3, 300))
    return _wrong_text(value, random, texts) if isinstance(value, str) else value


def _wrong_text(text: str, random: Random, texts: list[str]) -> str:
    """Dates move and digits change. A text without digits is replaced by another of the result, or shuffled."""
    if _ISO_DATE.search(text):
        moved = timedelta(days=random.choice((-1, 1)) * random.randint(3, 300))
        return _change_dates(text, lambda day: day + moved)
    if _DIGITS.search(text):
        return _DIGITS.sub(lambda found: _other_number(found.group(), random), text)
    others = [other for other in texts if other != text]
    if others:
        return random.choice(others)
    letters = list(text)
    random.shuffle(letters)
    shuffled = "".join(letters)
    return shuffled if shuffled != text else text[::-1] if text[::-1] != text else text + text[-1:]


def _change_dates(text: str, change: Callable[[date], date]) -> str:
    def changed(found: re.Match[str]) -> str:
        try:
            return change(date.fromisoformat(found.group())).isoformat()
        except ValueError:  # such as 30 February
            return found.group()

    return _ISO_DATE.sub(changed, text)


def _other_number(digits: str, random: Random) -> str:
    """The same number of digits, each different, without a leading zero."""
    first = random.choice([digit for digit in "123456789" if digit != digits[0]])
    return first + "".join(random.choice([d for d in "0123456789" if d != digit]) for digit in digits[1:])


def _aged_leaf(value: Any, key: str) -> Any:
    if isinstance(value, date):  # datetimes are dates too
        return _year_back(value)
    if isinstance(value, str):
        return _change_dates(value, _year_back)
    if isinstance(value, int | float) and not isinstance(value, bool) and _TIME_KEY.search(key.lower()):
        return _epoch_year_back(value)
    return value


def _year_back(value: date | datetime) -> date | datetime:
    try:
        return value.replace(year=value.year - 1)
    except ValueError:  # 29 February
        return value.replace(year=value.year - 1, day=28)


def _epoch_year_back(value: float) -> float:
    """Seconds or milliseconds since 1970; other numbers are not changed."""
    if value != value or abs(value) == float("inf"):
        return value
    if int(value) in _EPOCH:
        return value - _YEAR_SECONDS
    return value - _YEAR_SECONDS * 1000 if int(value / 1000) in _EPOCH else value


# The network between an agent and its tools or models
#
# | mode           | what happens                                                                              |
# |----------------|-------------------------------------------------------------------------------------------|
# | reset          | the request arrives and is carried out; then the connection is reset, without a reply      |
# | dns_failure    | the name of the server is not found; nothing is sent                                       |
# | truncated_body | the connection ends in the middle of the body                                              |
# | slow_body      | the reply begins at once, and its body arrives in small pieces                             |
# | jitter         | the request takes longer, each time by another time                                        |

BEFORE = ("dns_failure", "jitter")
"""decided before anything is sent"""
AFTER = ("reset", "slow_body", "truncated_body")
"""put into the reply, once there is one"""


def prepare(exchange: Exchange, fault: ToolFault | LlmFault, random: Random) -> bool:
    """Put a fault of the network into an exchange that has not begun; whether it is decided by that."""
    if fault.mode == "jitter":
        exchange.delay = delay_of(fault, random)
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


def network_error(fault: ToolFault) -> Exception | None:
    """The exception of a tool that is called by name and asks a server itself; None if it only takes longer."""
    match fault.mode:
        case "reset":
            return ConnectionResetError(104, "Connection reset by peer")
        case "dns_failure":
            return socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        case "truncated_body":
            return IncompleteRead(b"")
    return None


NETWORK_FAILURES = {
    "reset": "[Errno 104] Connection reset by peer",
    "dns_failure": "[Errno -2] Name or service not known",
    "truncated_body": "IncompleteRead: connection closed early",
}
"""the text of such a failure that an agent passes to its model"""

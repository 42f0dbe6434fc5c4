"""Conditions that a field of a record shows, and those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

import bylaw

DETAILS = "Returns its details."
BALANCE = "Returns the record with its balance and total."


def state_of(says: str, record: Any, *, noun: str, described: str = DETAILS, takes_id: bool = True) -> str:
    """The state of a condition of `close_<noun>` after a look at the record."""
    key = f"{noun}_id"
    params = {"type": "object", "properties": {key: {"type": "string"}}}
    tools = [
        {"name": f"get_{noun}", "description": described, "parameters": params},
        {"name": f"close_{noun}", "description": "Closes it.", "parameters": params if takes_id else {}},
    ]
    events: list[dict[str, Any]] = []
    if record is not None:
        events.append({"type": "tool_call", "name": f"get_{noun}", "args": {key: "1"}})
        events.append({"type": "tool_result", "name": f"get_{noun}", "content": record})
    events.append({"type": "tool_call", "name": f"close_{noun}", "args": {key: "1"} if takes_id else {}})
    result = bylaw.check_compliance_sync(f"### close_{noun}\n{says}\n", events, tools=tools)
    (rule,) = result.extracted_rules
    return str(rule.state.value)


@pytest.mark.parametrize(
    ("noun", "says", "record"),
    [
        ("coupon", "The coupon can be used only once.", {"used": False}),
        ("ticket", "The ticket may be scanned at most twice.", {"scanned": False}),
        ("sample", "The sample must not be opened again.", {"opened": False}),
    ],
)
def test_how_often_something_happened_is_no_flag(noun: str, says: str, record: Any) -> None:
    assert state_of(says, record, noun=noun) == "undecided"


@pytest.mark.parametrize(
    ("noun", "says", "fits", "other"),
    [
        ("policy", "The policy must be active or in the grace period.", "grace", "lapsed"),
        ("order", "The order must be pending or on hold.", "hold", "shipped"),
        ("account", "The account must be frozen or under review.", "in review", "open"),
    ],
)
def test_any_state_of_a_list_is_fine(noun: str, says: str, fits: str, other: str) -> None:
    assert state_of(says, {"status": fits}, noun=noun) == "satisfied"
    assert state_of(says, {"status": other}, noun=noun) == "violated"


@pytest.mark.parametrize(
    ("noun", "says", "good", "bad"),
    [
        ("policy", 'The policy "is_active" must be true.', {"is_active": True}, {"is_active": False}),
        ("loan", 'The loan "in_arrears" must be false.', {"in_arrears": False}, {"in_arrears": True}),
        ("room", 'The room "guests" must be at most 4.', {"guests": 4}, {"guests": 5}),
    ],
)
@pytest.mark.parametrize("described", [DETAILS, BALANCE])
def test_a_quoted_field_is_compared(noun: str, says: str, good: Any, bad: Any, described: str) -> None:
    assert state_of(says, good, noun=noun, described=described) == "satisfied"
    assert state_of(says, bad, noun=noun, described=described) == "violated"
    assert state_of(says, {"holder": "x"}, noun=noun, described=described) == "undecided"
    exception = says.replace(".", ", unless the caller is an agent.")
    assert state_of(exception, bad, noun=noun, described=described) == "undecided"


@pytest.mark.parametrize("noun", ["item", "machine", "shipment"])
def test_a_record_is_not_demanded_if_the_call_does_not_say_which(noun: str) -> None:
    assert state_of(f"The {noun} must exist.", None, noun=noun, takes_id=False) == "undecided"
    assert state_of(f"The {noun} must exist.", None, noun=noun) == "violated"


@pytest.mark.parametrize(
    ("noun", "says", "described", "good", "bad"),
    [
        ("order", "The order total must be at least 40 dollars.", "returns status, total, owner", 55, 12),
        ("parcel", "The parcel weight must not exceed 30.", "Returns weight and address", 3, 31),
        ("lease", "The lease rent must be more than 500.", "Returns: tenant, rent, end date.", 900, 400),
    ],
)
def test_a_field_that_a_description_lists_is_compared(
    noun: str, says: str, described: str, good: int, bad: int
) -> None:
    field = says.split()[2]
    states = [state_of(says, record, noun=noun, described=described) for record in ({field: good}, {field: bad})]
    assert states == ["satisfied", "violated"]


@pytest.mark.parametrize(
    ("noun", "says", "described"),
    [
        ("order", "The order total must be at least 40 dollars.", "returns status, total, owner"),
        ("coupon", "The coupon must have been approved.", "returns its details"),
        ("room", "The room must not have been cancelled already.", "returns its details"),
    ],
)
def test_a_record_without_the_field_shows_nothing(noun: str, says: str, described: str) -> None:
    assert state_of(says, {"colour": "red"}, noun=noun, described=described) == "undecided"


@pytest.mark.parametrize(
    ("noun", "says"),
    [
        ("unit", "The income must be at least three times the rent."),
        ("loan", "The deposit must be 2 times the rate."),
        ("trip", "The fee must not exceed twice the price."),
    ],
)
def test_a_multiple_of_a_thing_is_no_number(noun: str, says: str) -> None:
    assert state_of(says, {"rent": 1, "rate": 1, "price": 1}, noun=noun) == "undecided"


@pytest.mark.parametrize(
    ("noun", "says", "described"),
    [
        ("policy", "There must be no open claims on the policy.", "Returns a list of open claims of the policy."),
        ("account", "There must be no pending debts of the account.", "Returns a list of pending debts."),
        ("room", "There must be no booked guests in the room.", "Returns the list of booked guests."),
    ],
)
def test_there_must_be_none(noun: str, says: str, described: str) -> None:
    states = [state_of(says, record, noun=noun, described=described) for record in ("[]", "['one']")]
    assert states == ["satisfied", "violated"]

"""Secrets in unusual places, for the guard and for recordings."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bylaw.text.redaction.redactor import recording_redactor, redacted

both = pytest.mark.parametrize("hide", [redacted, recording_redactor()], ids=["guard", "recording"])
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n"


@both
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ('password="hunter2 secret=abc12345 more"', 'password="[redacted: secret]"'),
        (KEY + "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "[redacted: private key]"),
        (KEY, "[redacted: private key]"),
        ("sk_ant_0123456789abcdefgh", "[redacted: api key]"),
        ("pk_0123456789abcdefgh", "[redacted: api key]"),
        ("pk_orders_2024_customer_history", "pk_orders_2024_customer_history"),
        ("secret='x", "secret='[redacted: secret]"),
        ("a://u:pw@", "a://u:[redacted: secret]@"),
        ("\ud800 password=abcdef1", "\ud800 password=[redacted: secret]"),
        ({"password": ["a", {"b": 1}]}, {"password": ["[redacted: secret]", {"b": "[redacted: secret]"}]}),
        ({"pin": 5, "cvv": 123}, {"pin": 5, "cvv": "[redacted: secret]"}),
    ],
)
def test_secrets_are_redacted(hide: Any, given: Any, wanted: Any) -> None:
    assert hide(given) == wanted


def test_a_key_that_looks_clean_does_not_hide_a_value() -> None:
    text = '{"cvv":123}'
    assert recording_redactor()({text: 1, "a": text})["a"] == '{"cvv":"[redacted: secret]"}'


@both
@pytest.mark.parametrize("piece", ["password=abcd ", "password='", 'password="ab" ', 'password\\":\\"'])
def test_time_grows_linearly_with_the_number_of_secrets(hide: Any, piece: str) -> None:
    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        began = time.process_time()
        hide(text)
        return time.process_time() - began

    seconds(10_000)
    assert seconds(200_000) < 60 * max(seconds(20_000), 0.002)  # a square would be 100

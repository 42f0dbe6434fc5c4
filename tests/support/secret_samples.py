"""Secrets and personal data of 40 kinds, made by a seeded generator from what their issuers document.

The generator shares nothing with the tables that find them. Each sample says which piece must not be written anywhere.
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

COUNT = 50
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_URL = _ALNUM + "-_"


class Sample(NamedTuple):
    kind: str
    text: str
    """as it stands in an argument"""
    secret: str
    """what must not be written"""


def samples(seed: int = 18, count: int = COUNT) -> Iterator[Sample]:
    for kind, (make, text) in KINDS.items():
        rng = random.Random(f"{seed} {kind}")
        for _ in range(count):
            secret = make(rng)
            yield Sample(kind, text.replace("{}", secret), secret)


def _of(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


def _form(pattern: str, alphabet: str, length: int) -> Callable[[random.Random], str]:
    return lambda rng: pattern.replace("*", _of(rng, alphabet, length))


def _luhn(digits: str) -> str:
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[::-2]]
    return digits + str(-(sum(doubled) + sum(map(int, digits[-2::-2]))) % 10)


def _card(rng: random.Random) -> str:
    number = _luhn(rng.choice(["4", "51", "55", "6011"]).ljust(4, "3") + _of(rng, string.digits, 11))
    between = rng.choice(["", " ", "-"])
    return between.join(number[at : at + 4] for at in range(0, 16, 4))


def _ssn(rng: random.Random) -> str:
    return f"{rng.randint(100, 665):03}-{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}"


def _iban(rng: random.Random) -> str:
    country, length = rng.choice([("DE", 18), ("FR", 23), ("ES", 20), ("AT", 16), ("NL", 14)])
    letters = _of(rng, string.ascii_uppercase, 4) if country == "NL" else ""
    body = letters + _of(rng, string.digits, length - len(letters))
    number = int("".join(str(int(character, 36)) for character in f"{body}{country}00"))
    iban = f"{country}{98 - number % 97:02}{body}"
    return iban if rng.random() < 0.5 else " ".join(iban[at : at + 4] for at in range(0, len(iban), 4))


def _phone(rng: random.Random) -> str:
    area, middle, last = rng.randint(201, 989), rng.randint(200, 999), rng.randint(0, 9999)
    country = rng.choice(["44 20", "49 30", "33 1", "81 3"])
    return rng.choice(
        [
            f"+1 {area} {middle} {last:04}",
            f"({area}) {middle}-{last:04}",
            f"{area}-{middle}-{last:04}",
            f"+{country} {middle} {last:04} {rng.randint(10, 99)}",
        ]
    )


def _email(rng: random.Random) -> str:
    name = _of(rng, string.ascii_lowercase, 6) + rng.choice(["", ".", "+tag", "_9"]).ljust(1, "a")
    return f"{name}x@{_of(rng, string.ascii_lowercase, 8)}.{rng.choice(['com', 'org', 'co.uk', 'io'])}"


def _basic(rng: random.Random) -> str:
    pair = f"{_of(rng, string.ascii_lowercase, 5)}:{_of(rng, _ALNUM + '!#%', rng.randint(6, 16))}"
    return base64.b64encode(pair.encode()).decode()


def _password(rng: random.Random) -> str:
    return _of(rng, _ALNUM + "!#%^*-_", rng.randint(8, 20)) + rng.choice(string.digits)


def _otp(rng: random.Random) -> str:
    return _of(rng, string.digits, rng.choice([4, 6, 6, 8]))


def _pem(rng: random.Random) -> str:
    kind = rng.choice(["RSA ", "EC ", "OPENSSH ", ""])
    body = "\n".join(_of(rng, _ALNUM + "+/", 64) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def _jwt(rng: random.Random) -> str:
    return f"eyJhbGciOi{_of(rng, _URL, 20)}.{_of(rng, _URL, 60)}.{_of(rng, _URL, 43)}"


def _telegram(rng: random.Random) -> str:
    return f"{rng.randint(10**8, 10**10 - 1)}:AA{_of(rng, _URL, 33)}"


KINDS: dict[str, tuple[Callable[[random.Random], str], str]] = {
    "AWS access key id": (_form("AKIA*", string.ascii_uppercase + string.digits, 16), "{}"),
    "AWS secret key": (_form("*", _ALNUM + "/+", 40), "{}"),
    "AWS secret key by name": (_form("*", _ALNUM + "/+", 40), "aws_secret_access_key = {}"),
    "Anthropic key": (_form("sk-ant-api03-*AA", _URL, 93), "{}"),
    "Azure account key": (_form("*==", _ALNUM + "+/", 86), "AccountName=acme;AccountKey={};EndpointSuffix=x"),
    "Azure account key alone": (_form("*==", _ALNUM + "+/", 86), "{}"),
    "Azure client secret": (_form("abc8Q~*", _ALNUM, 34), "{}"),
    "Azure shared access signature": (_form("*%3D", _ALNUM, 43), "https://a.blob.core.windows.net/c?sv=2024&sig={}"),
    "Basic auth": (_basic, "Authorization: Basic {}"),
    "Basic auth alone": (_basic, "Basic {}"),
    "Bearer token": (_form("*", _ALNUM + "._-", 40), "Bearer {}"),
    "Databricks token": (_form("dapi*", _HEX, 32), "{}"),
    "Discord webhook": (_form("*", _URL, 68), "https://discord.com/api/webhooks/123456789012345678/{}"),
    "GitHub token": (_form("ghp_*", _ALNUM, 36), "{}"),
    "GitLab token": (_form("glpat-*", _URL, 20), "{}"),
    "Google API key": (_form("AIza*", _URL, 35), "{}"),
    "Google OAuth token": (_form("ya29.*", _URL, 60), "{}"),
    "Hugging Face token": (_form("hf_*", _ALNUM, 34), "{}"),
    "IBAN": (_iban, "{}"),
    "JWT": (_jwt, "{}"),
    "Mailgun key": (_form("key-*", _HEX, 32), "{}"),
    "OpenAI key": (_form("sk-proj-*", _URL, 60), "{}"),
    "PyPI token": (_form("pypi-AgEIcHlwaS5vcmc*", _URL, 80), "{}"),
    "SendGrid key": (lambda rng: f"SG.{_of(rng, _URL, 22)}.{_of(rng, _URL, 43)}", "{}"),
    "Shopify token": (_form("shpat_*", _HEX, 32), "{}"),
    "Slack token": (_form("xoxb-123456789012-123456789012-*", _ALNUM, 24), "{}"),
    "Slack webhook": (_form("T0AB12CD3/B0AB12CD3/*", _ALNUM, 24), "https://hooks.slack.com/services/{}"),
    "Stripe key": (_form("sk_live_*", _ALNUM, 24), "{}"),
    "Telegram bot token": (_telegram, "{}"),
    "Twilio key": (_form("SK*", _HEX, 32), "{}"),
    "card number": (_card, "{}"),
    "curl -u": (_password, "curl -s -u ann:{} https://api.example.org/v1"),
    "database password": (_password, "postgresql://app:{}@db.example.org:5432/app"),
    "e-mail address": (_email, "{}"),
    "environment variable": (_password, "DB_PASSWORD={}"),
    "npm token": (_form("npm_*", _ALNUM, 36), "{}"),
    "one-time code": (_otp, "Your verification code is {}"),
    "phone number": (_phone, "{}"),
    "private key": (_pem, "{}"),
    "social security number": (_ssn, "{}"),
}

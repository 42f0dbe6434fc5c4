"""Reads a price list of the user and reports every problem in it with its place."""

from __future__ import annotations

import json
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.source import Span
from bylaw.model.values import json_type
from bylaw.text.prices import RATES, LongRates, Price, Prices, shipped

SCHEMA = "bylaw.prices/1"
UNIT = "USD per million tokens"

_TOP = ("schema", "as_of", "source", "unit", "notes", "models")
_NEEDED = ("input", "output")
_DEAREST = 1_000_000
"""a dollar per token; more is a mistake"""
_MOST_BYTES = 4 * 1024**2


def load_prices(path: str | os.PathLike[str]) -> Prices:
    """Read a price list. Models that it does not name keep their shipped prices. Raises InputError."""
    file = _PriceFile(os.fspath(path), _read(Path(path)))
    document = file.parse()
    models = file.check(document)
    if file.problems:
        raise InputError(file.problems)
    return Prices(models=models, as_of=document.get("as_of"), source=document.get("source"), fallback=shipped())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        help = "check the path; it is relative to the current folder"
        problem = Diagnostic(code="no-such-file", message="no such file", file=str(path), help=help)
        raise InputError([problem]) from None
    except OSError as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise InputError([Diagnostic(code="unreadable-file", message=reason, file=str(path))]) from None
    if len(data) > _MOST_BYTES:
        raise InputError([Diagnostic(code="bad-prices", message="the file is larger than 4 MiB", file=str(path))])
    return data.decode("utf-8-sig", "replace")


class _PriceFile:
    """Checks one file and collects its problems."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.problems: list[Diagnostic] = []

    def parse(self) -> dict[str, Any]:
        try:
            document = json.loads(self.text, object_pairs_hook=_reject_repeated_keys)
        except json.JSONDecodeError as error:
            self._fail(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", (error.pos, error.pos + 1))
        except _RepeatedKey as error:
            self._fail(f"the key {_path([str(error)])} is given twice", self._place([str(error)] * 2))
        except (RecursionError, ValueError):  # a number may have more digits than Python reads
            self._fail("nested too deep, or a number too long", (0, 1))
        if not isinstance(document, dict):
            self._fail(f"the file holds {json_type(document)}, but has to be an object with `models`", (0, 1))
        return document

    def check(self, document: dict[str, Any]) -> dict[str, Price]:
        self._check_head(document)
        models = document.get("models")
        if not isinstance(models, dict) or not models:
            self._add("`models` is missing or empty", ["models"], help="name at least one model and its prices")
            return {}
        checked = {name.strip().lower(): self._price(entry, ["models", name]) for name, entry in models.items()}
        return {name: price for name, price in checked.items() if price is not None}

    def _check_head(self, document: dict[str, Any]) -> None:
        self._check_keys(document, _TOP, [])
        for key, wanted in (("schema", SCHEMA), ("unit", UNIT)):
            if document.get(key, wanted) != wanted:
                self._add(f"`{key}` is not `{wanted}`", [key], help=f"write `{wanted}`")
        for key in ("as_of", "source"):
            if not isinstance(document.get(key, ""), str):
                self._add(f"`{key}` is {json_type(document[key])}, not text", [key])

    def _price(self, entry: Any, where: list[str]) -> Price | None:
        known = len(self.problems)
        rates = self._rates(entry, where, ("long", "regional"))
        if rates and entry.get("long") is not None:
            rates["long"] = self._long(entry["long"], [*where, "long"])
        if rates and entry.get("regional") is not None:
            rates["regional"] = self._number(entry["regional"], [*where, "regional"])
        return Price(**rates) if len(self.problems) == known else None

    def _long(self, entry: Any, where: list[str]) -> LongRates | None:
        known = len(self.problems)
        rates = self._rates(entry, where, ("above",))
        if rates and (type(entry.get("above")) is not int or entry["above"] <= 0):
            self._add(f"{_path(where)} has no `above`", where, help="give `above` as a number of tokens")
        return LongRates(**rates, above=entry["above"]) if len(self.problems) == known else None

    def _rates(self, entry: Any, where: list[str], others: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(entry, dict):
            self._add(f"{_path(where)} is {json_type(entry)}, not an object with prices", where)
            return {}
        self._check_keys(entry, (*RATES, *others), where)
        for key in _NEEDED:
            if entry.get(key) is None:
                self._add(f"{_path(where)} has no `{key}` price", where, help=f"give `{key}` in {UNIT}")
        return {key: self._number(entry[key], [*where, key]) for key in RATES if entry.get(key) is not None}

    def _number(self, value: Any, where: list[str]) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._add(f"{_path(where)} is {json_type(value)}, not a number", where)
        elif not 0 <= value <= _DEAREST:  # which is false for NaN too
            self._add(f"{_path(where)} is not between 0 and {_DEAREST:,}", where, help=f"prices are in {UNIT}")
        else:
            return float(value)
        return 0.0

    def _check_keys(self, entry: dict[str, Any], keys: tuple[str, ...], where: list[str]) -> None:
        for key in entry:
            if key not in keys:
                near = get_close_matches(key[:40], keys, n=1, cutoff=0.7)
                help = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(keys)}"
                self._add(f"unknown key {_path([*where, key])}", [*where, key], help=help)

    def _add(self, message: str, where: list[str], *, help: str | None = None) -> None:
        self.problems.append(self._diagnostic(message, self._place(where), help))

    def _fail(self, message: str, place: tuple[int, int]) -> NoReturn:
        raise InputError([self._diagnostic(message, place, None)])

    def _place(self, where: list[str]) -> tuple[int, int]:
        """The span of a key, or of the innermost key above it that is found."""
        start, end = 0, 0
        for key in where:
            # inside a string the quotes of a key would be escaped, so this is a key
            found = re.compile(re.escape(json.dumps(key, ensure_ascii=False)) + r"(?=\s*:)").search(self.text, end)
            start, end = found.span() if found else (start, end)
        return start, end

    def _diagnostic(self, message: str, place: tuple[int, int], help: str | None) -> Diagnostic:
        start, end = place
        line, column = self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)
        return Diagnostic(
            code="bad-prices",
            message=message,
            file=self.name,
            span=Span(self.name, line, column, line, column + max(1, end - start)),
            excerpt=self.text[start - column + 1 :].partition("\n")[0][:400].rstrip("\r"),
            help=help,
        )


class _RepeatedKey(Exception):
    """A key is given twice."""


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKey(key)
        found[key] = value
    return found


def _path(where: list[str]) -> str:
    return f"`{'.'.join(part[:60] for part in where)}`"

"""Authentication, authorization and rate limits: API keys, signed-in people, and people whom a trusted proxy names.

A key is `bylaw_ID_SECRET`. The store has the SHA-256 of the secret: it is 32 random bytes, so nobody can try all of
them. A key that is valid is remembered for a second; so a revoked one is refused after that in every worker.

One key, person or address may ask `rate` times a second on average, and `burst` times at once. For each there is one
number, the moment at which its requests would have been answered if they had come evenly (the generic cell rate
algorithm). Workers of one machine share these numbers in a file that all of them map into memory, so that the limit is
the same with any number of workers. Whoever was silent longest is forgotten.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import mmap
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.model import is_name
from bylaw.guard.service.errors import BadRequest, Forbidden, NotFound, TooMany, Unauthorized
from bylaw.guard.stores.ports import GuardStore, each_followed, write_change
from bylaw.guard.stores.records import Credential, CredentialKind, Scope

SCOPES: tuple[Scope, ...] = get_args(Scope)
IMPLIED: dict[Scope, tuple[Scope, ...]] = {"admin": ("admin", "operator")}
"""scope → those that it includes"""
PREFIX = "bylaw"
REMEMBERED = 1.0
"""seconds"""
MOST_REMEMBERED = 10_000
LISTING_SHARE = 20.0
"""a list of all keys that took long to read is used this many times as long"""
MOST_EXPIRED = 100
"""logins that one sign-in tidies up"""
LOGIN_SECONDS = 12 * 3600.0
ANY = "*"
GROUP = "group:"

Via: TypeAlias = Literal["key", "login", "proxy"]


class Principal(Struct, frozen=True, kw_only=True):
    """The authenticated caller."""

    name: str
    scopes: frozenset[str]
    agents: tuple[str, ...] = ()
    via: Via = "key"
    id: str = ""
    """of the credential"""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    def require(self, scope: Scope) -> None:
        """Raises Forbidden."""
        if scope not in self.scopes:
            raise Forbidden(f"this needs the scope `{scope}`")

    def is_for(self, agent: str | None) -> bool:
        return ANY in self.agents or (agent is not None and agent in self.agents)


class Credentials:
    """Keys and logins in a store."""

    def __init__(self, store: GuardStore, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, tuple[float, Credential]] = {}
        self._listed: dict[str, str] = {}
        self._listed_until = 0.0

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        agents: Sequence[str] = (),
        seconds: float | None = None,
        by: str = "",
        kind: CredentialKind = "key",
        made_with: str | None = None,
    ) -> tuple[str, Credential]:
        """The key, which is shown once, and its record. `made_with`: the id of a key, which a login does not outlive.
        Raises BadRequest, and Unauthorized if that key is not valid."""
        _check(name, scopes, agents, seconds)
        id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._clock()
        ends = [] if seconds is None else [now + seconds]
        if made_with is not None:
            key = self._find(made_with)
            if key is None or not self._holds(key):
                raise Unauthorized("the key is not valid")
            ends += [] if key.expires_at is None else [key.expires_at]
        record = Credential(
            id=id,
            session=id,
            at=now,
            kind=kind,
            name=name,
            scopes=tuple(dict.fromkeys(scopes)),
            agents=tuple(dict.fromkeys(agents)),
            digest=_digest(secret),
            created_at=now,
            created_by=by,
            expires_at=min(ends, default=None),
            made_with=made_with,
        )
        valid = each_followed(self._store, Credential, status="valid") if kind == "login" else ()
        over = [one for one in valid if one.kind == "login" and (one.expires_at or now) < now][:MOST_EXPIRED]
        with self._store.transaction("") as transaction:
            for one in over:  # so that they can be pruned
                current = transaction.followed(Credential, one.id)
                if current is not None and current.status == "valid":
                    transaction.put_followed(replace(current, status="revoked", revoked_by="expired", at=now))
            record = transaction.put_followed(record)
            write_change(transaction, now, f"{kind} created", by or name, key=id, name=name)
        return f"{PREFIX}_{id}_{secret}", record

    def list(self, *, kind: CredentialKind | None = "key") -> Sequence[Credential]:
        """Oldest first, without the digests of the keys."""
        found = [one for one in each_followed(self._store, Credential) if kind in (None, one.kind)]
        return [replace(one, digest="", status="expired" if self._is_over(one) else one.status) for one in found]

    def revoke(self, key_id: str, *, by: str) -> Credential:
        with self._store.transaction("") as transaction:
            found = transaction.followed(Credential, key_id)
            if found is None:
                raise NotFound(f"there is no key `{key_id}`")
            now = self._clock()
            if found.status == "valid":
                found = transaction.put_followed(replace(found, status="revoked", revoked_by=by, at=now))
                write_change(transaction, now, f"{found.kind} revoked", by, key=key_id, name=found.name)
        self._known.clear()
        return replace(found, digest="")

    def check(self, key: str, *, kind: CredentialKind = "key") -> Principal:
        """Who this key belongs to. Raises Unauthorized; the message does not say what is wrong with it."""
        id, secret = _split_key(key)
        if not id:
            raise Unauthorized("the key is not valid")
        record = self._find(id)
        # compared in constant time, and also if there is no such key
        is_same = hmac.compare_digest(_digest(secret), record.digest if record is not None else _digest(""))
        if record is None or not is_same or record.kind != kind or not self._holds(record):
            raise Unauthorized("the key is not valid")
        via: Via = "login" if kind == "login" else "key"
        return Principal(name=record.name, scopes=implied(record.scopes), agents=record.agents, via=via, id=id)

    def is_listed(self, key: str) -> bool:
        """Whether this was a valid key or login when all of them were last read, at most once a second. However many
        keys somebody tries, the store is not asked about each. Only `check` says whether it is valid now."""
        id, secret = _split_key(key)
        if not id:
            return False
        if (begun := time.monotonic()) >= self._listed_until:
            self._listed_until = begun + REMEMBERED  # also if the store cannot be read
            self._listed = {one.id: one.digest for one in each_followed(self._store, Credential, status="valid")}
            ended = time.monotonic()
            self._listed_until = ended + max(REMEMBERED, LISTING_SHARE * (ended - begun))
        return hmac.compare_digest(_digest(secret), self._listed.get(id, _digest("")))

    def is_valid(self, who: Principal) -> bool:
        """Whether somebody who was let through before would be let through now, by what the store says now."""
        if who.via == "proxy":
            return True
        record = self._find(who.id, fresh=True)
        return record is not None and self._holds(record, fresh=True)

    def _holds(self, record: Credential, *, fresh: bool = False) -> bool:
        """Whether it is neither revoked nor expired, and neither is the key that a login was made with."""
        if record.status != "valid" or self._is_over(record):
            return False
        if record.made_with is None:
            return True
        key = self._find(record.made_with, fresh=fresh)
        return key is not None and key.kind == "key" and self._holds(key)

    def _is_over(self, record: Credential) -> bool:
        return record.status == "valid" and record.expires_at is not None and self._clock() >= record.expires_at

    def _find(self, id: str, *, fresh: bool = False) -> Credential | None:
        now = time.monotonic()
        known = self._known.get(id)
        if known is not None and known[0] > now and not fresh:
            return known[1]
        found = self._store.followed(Credential, session=id, limit=1)
        if not found:
            return None
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[id] = now + REMEMBERED, found[0]
        return found[0]


def implied(scopes: Iterable[Scope]) -> frozenset[str]:
    return frozenset(one for scope in scopes for one in IMPLIED.get(scope, (scope,)))


def _split_key(key: str) -> tuple[str, str]:
    """The id and the secret; both are empty if this has not the form of a key."""
    prefix, _, rest = key.partition("_")
    id, _, secret = rest.partition("_")
    if prefix != PREFIX or len(id) != 16 or not id.isalnum() or not secret or len(key) > 200 or not key.isascii():
        return "", ""
    return id, secret


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(name: str, scopes: Sequence[Scope], agents: Sequence[str], seconds: float | None) -> None:
    if not is_name(name) or not name.strip() or not name.isprintable():
        raise BadRequest("a key needs the name of a person or a program")
    if not scopes or any(scope not in SCOPES for scope in scopes):
        raise BadRequest(f"expected scopes of {', '.join(SCOPES)}")
    if "agent" in scopes and len(set(scopes)) > 1:
        raise BadRequest("a key of an agent has no other scope: it could answer its own reviews")
    if ("agent" in scopes) != bool(agents):
        raise BadRequest("a key with the scope `agent` names its agents, and no other key does")
    if not all(is_name(agent) and agent for agent in agents):
        raise BadRequest("agents are names of at most 512 characters")
    if seconds is not None and not 0 < seconds < 1e10:
        raise BadRequest("a key expires after a positive number of seconds")


class People(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which people may do what, whom a proxy or an identity provider names."""

    admins: tuple[str, ...] = ()
    """names, or `group:NAME`; `*`: everybody"""
    operators: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    """addresses and networks of proxies whose header is believed; `unix`: the socket"""
    user_header: str = "x-forwarded-user"
    groups_header: str | None = None
    """the header of the proxy that holds groups, with commas between them. None is believed unless it is named here: a
    proxy that does not set it passes on whatever its client has sent"""

    def scopes(self, name: str, groups: Iterable[str]) -> frozenset[str]:
        asked = {ANY, *(f"{GROUP}{group}" for group in groups)}
        if not name.startswith(GROUP):  # nobody becomes a group by a name
            asked.add(name)
        found: list[Scope] = []
        if asked & set(self.admins):
            found.append("admin")
        if asked & set(self.operators):
            found.append("operator")
        return implied(found)

    def trusts(self, peer: str | None) -> bool:
        if peer is None:
            return "unix" in self.trusted
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(one, strict=False) for one in self.trusted if one != "unix")

    def forwarded(self, peer: str | None, headers: Mapping[str, Any]) -> Principal | None:
        """The person whom the proxy names. The header of anybody else is ignored."""
        name = headers.get(self.user_header)
        if not name or not self.trusted or not self.trusts(peer) or not is_name(name) or not name.isprintable():
            return None
        group_names = headers.get(self.groups_header, "") if self.groups_header else ""
        groups = [one.strip() for one in group_names.split(",") if one.strip()]
        return Principal(name=name, scopes=self.scopes(name, groups), via="proxy", id=f"proxy:{name}")


def csrf_token(secret: str) -> str:
    """What a form has to bring along, from a cookie that no other site can read."""
    return hmac.new(secret.encode(), b"bylaw csrf", hashlib.sha256).hexdigest()


def is_same_token(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


# -- how often --------------------------------------------------------------------------------------------------------

MOST_ASKING = 10_000
BUCKETS, WIDTH = 2048, 8
"""of the file. A bucket has this many slots, each for a digest of who asks, and a moment"""
_SLOT = 16
"""bytes"""


class ProcessRateTable:
    """The moments in the memory of one process."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()

    def get(self, who: str) -> float:
        return self._known.get(who, 0.0)

    def change(self, who: str, change: Callable[[float], float]) -> None:
        self._known[who] = change(self._known.pop(who, 0.0))
        if len(self._known) > MOST_ASKING:
            self._known.popitem(last=False)


class SharedRateTable:
    """The moments in a file that several processes share. Their clocks are the same: monotonic, of one machine."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        size = BUCKETS * WIDTH * _SLOT
        os.ftruncate(self._file, size)
        content = memoryview(mmap.mmap(self._file, size))
        self._digests, self._moments = content.cast("Q")[0::2], content.cast("d")[1::2]

    def get(self, who: str) -> float:
        digest, slots = _rate_slots(who)
        return next((self._moments[slot] for slot in slots if self._digests[slot] == digest), 0.0)

    def change(self, who: str, change: Callable[[float], float]) -> None:
        """Lock the slots against other threads and processes."""
        digest, slots = _rate_slots(who)
        with self._locked(slots):
            slot = next((one for one in slots if self._digests[one] == digest), None)
            if slot is None:
                slot = min(slots, key=self._moments.__getitem__)
                self._digests[slot], self._moments[slot] = digest, 0.0
            self._moments[slot] = change(self._moments[slot])

    @contextmanager
    def _locked(self, slots: range) -> Iterator[None]:
        """Lock the slots; the system releases the lock if this process dies."""
        import fcntl  # not on Windows, where there is one worker

        place = (self._file, fcntl.LOCK_EX, WIDTH * _SLOT, slots.start * _SLOT)
        try:
            fcntl.lockf(*place)
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, *place[2:])


def _rate_slots(who: str) -> tuple[int, range]:
    """A digest, and the slots in which it may be. If all are taken, the one that was silent longest is forgotten."""
    digest = int.from_bytes(blake2b(who.encode("utf-8", "replace"), digest_size=8).digest()) or 1
    first = digest % BUCKETS * WIDTH
    return digest, range(first, first + WIDTH)


class Rates:
    def __init__(self, rate: float, burst: float, moments: ProcessRateTable | SharedRateTable | None = None) -> None:
        self._step, self._most = 1.0 / rate, burst / rate
        self._moments = moments or ProcessRateTable()

    def has_left(self, who: str) -> bool:
        return self._after(self._moments.get(who)) is not None

    def spend(self, who: str) -> None:
        """Raises TooMany if nothing is left."""
        is_over = False

        def spend(moment: float) -> float:
            nonlocal is_over
            after = self._after(moment)
            is_over = after is None
            return moment if after is None else after

        self._moments.change(who, spend)
        if is_over:
            raise TooMany("too many requests; wait a moment", retry_after=1)

    def _after(self, moment: float) -> float | None:
        """The moment after one more request; None if it is one too many."""
        now = time.monotonic()
        after = max(moment, now) + self._step
        return after if after - now <= self._most + 1e-6 else None

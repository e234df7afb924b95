"""What stands ready in a pool, by what it was made for. Not thread-safe: the pool's lock guards it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from typing import NamedTuple

import msgspec

from sandboxes.sandbox import Sandbox, SandboxSpec

FAILURES = 3
"""After so many in a row, none of this kind is made ahead any more until one could be had."""


KINDS = 64
"""So many are remembered without anything standing ready."""


class Warm(NamedTuple):
    sandbox: Sandbox
    idle_until: float
    lives_until: float
    """Its own lease: nobody gets it for longer than this."""


class Shelf:
    """The warm sandboxes of one kind. `spec` has the longest lease that was asked for."""

    def __init__(self, key: bytes, spec: SandboxSpec) -> None:
        self.key, self.spec = key, spec
        self.ready: deque[Warm] = deque()
        self.failures = 0


class Shelves:
    """At most `limit` sandboxes; those of the kind that was asked for last are kept longest."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._found: OrderedDict[bytes, Shelf] = OrderedDict()

    def of(self, spec: SandboxSpec) -> Shelf:
        """The shelf of this kind, which counts as being asked for."""
        key = _key(spec)
        shelf = self._found.setdefault(key, Shelf(key, spec))
        if spec.lease_s > shelf.spec.lease_s:
            shelf.spec = spec
        self._found.move_to_end(key)
        while len(self._found) > KINDS:
            oldest = next(iter(self._found.values()))
            if oldest.ready:
                break
            del self._found[oldest.key]
        return shelf

    def put(self, shelf: Shelf, warm: Warm) -> list[Sandbox]:
        """What has to go for it."""
        self._found.setdefault(shelf.key, shelf)
        shelf.ready.append(warm)
        gone = []
        while sum(len(one.ready) for one in self._found.values()) > self.limit:
            oldest = next(one for one in self._found.values() if one.ready)
            gone.append(oldest.ready.popleft().sandbox)
        return gone

    def idle(self, now: float) -> list[Sandbox]:
        """What nobody took for too long."""
        gone = []
        for shelf in self._found.values():
            while shelf.ready and shelf.ready[0].idle_until <= now:
                gone.append(shelf.ready.popleft().sandbox)
        return gone

    def clear(self) -> list[Sandbox]:
        gone = [warm.sandbox for shelf in self._found.values() for warm in shelf.ready]
        for shelf in self._found.values():
            shelf.ready.clear()
        return gone


def take(shelf: Shelf, until: float) -> tuple[Sandbox | None, list[Sandbox]]:
    """A sandbox that lives until then, if there is one; and those that do not."""
    unfit: list[Sandbox] = []
    while shelf.ready:
        warm = shelf.ready.popleft()
        if warm.lives_until >= until:
            return warm.sandbox, unfit
        unfit.append(warm.sandbox)
    return None, unfit


def _key(spec: SandboxSpec) -> bytes:
    """All that a sandbox is made of, but not who has it for how long."""
    kind = msgspec.structs.replace(spec, owner="", lease_s=0.0)
    return hashlib.sha256(msgspec.msgpack.encode(kind, enc_hook=str)).digest()

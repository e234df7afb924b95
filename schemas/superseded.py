"""Payload versions that are written no more, and the step from each to the version after it.

Their bytes stay in logs for ever, so a class here is as fixed as its golden bytes. A step takes a decoded payload and
gives the next version's; it never fails on what its schema allows, and what the old version did not know is left at
the new one's default, which says "not known".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from schemas.events import DeadLettered, Int64, Payload


class DeadLetteredV1(Payload, frozen=True, kw_only=True):
    """Headers were a map: a header that stood twice, or without a value, could not be kept, nor the record's key and
    time, so a record could not be appended again as it was."""

    NAME = "record.dead_lettered"
    TOPIC = "dead-letters"
    topic: str
    partition: Int64
    offset: Int64
    reason: str
    data: bytes
    headers: dict[str, bytes] = msgspec.field(default_factory=dict)
    at: Int64 = 0


def _dead_lettered(old: DeadLetteredV1) -> DeadLettered:
    return DeadLettered(topic=old.topic, partition=old.partition, offset=old.offset, reason=old.reason, data=old.data,
                        headers=list(old.headers.items()), at=old.at)


UPCASTERS: dict[type[Payload], Callable[[Any], Payload]] = {DeadLetteredV1: _dead_lettered}
SUPERSEDED = tuple(UPCASTERS)

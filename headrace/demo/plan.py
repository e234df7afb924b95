"""What one demo does, kept in the home so that the same command goes on after an interruption."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from schemas.errors import UserError
from schemas.ids import new_id, stable_id

_FILE, _LOCK = "demo.json", "demo.lock"


class Plan(msgspec.Struct, kw_only=True):
    """`groups` tasks of `group_size` episodes a step; held-out tasks at `eval_temperature` every `eval_every` steps."""

    run_id: str
    seed: int = 0
    steps: int = 16
    from_scratch: bool = False
    groups: int = 16
    group_size: int = 8
    eval_every: int = 4
    eval_temperature: float = 0.5
    shuffle_rewards: bool = False
    """The control: advantages from rewards dealt out at random. Nothing can be learned from them."""
    base_run_id: str = ""
    finished: bool = False

    def evaluated_versions(self) -> list[int]:
        return [version for version in range(self.steps + 1) if version % self.eval_every == 0 or version == self.steps]


def open_plan(
    home: Path, *, seed: int, steps: int, from_scratch: bool, fresh: bool, shuffle_rewards: bool = False
) -> Plan:
    """The plan of the same arguments if this home has one, else a new one."""
    plans = _load(home)
    wanted = (seed, steps, from_scratch, shuffle_rewards)
    for plan in plans:
        if not fresh and (plan.seed, plan.steps, plan.from_scratch, plan.shuffle_rewards) == wanted:
            return plan
    plan = Plan(
        run_id=new_id(),
        seed=seed,
        steps=steps,
        from_scratch=from_scratch,
        shuffle_rewards=shuffle_rewards,
        base_run_id=stable_id("demo", "base", seed) if from_scratch else "",
        eval_every=max(1, -(-steps // 4)),
    )
    _save(home, [plan, *plans])
    return plan


def finish(home: Path, plan: Plan) -> None:
    plans = _load(home)
    for known in plans:
        known.finished = known.finished or known.run_id == plan.run_id
    _save(home, plans)


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Holds the home's demo lock; the kernel lets go of it when the process dies."""
    with (home / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                "a demo runs in this home already",
                where=str(home),
                hint="wait for it, stop it with Ctrl-C, or name another --home",
            ) from None
        yield


def _load(home: Path) -> list[Plan]:
    path = home / _FILE
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Plan])
    except msgspec.MsgspecError as wrong:
        raise UserError(
            f"the demo's state cannot be read ({wrong})", where=str(path), hint="start over with --fresh"
        ) from None


def _save(home: Path, plans: list[Plan]) -> None:
    beside = home / f".{_FILE}.{os.getpid()}"
    beside.write_bytes(msgspec.json.encode(plans))
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(home / _FILE)

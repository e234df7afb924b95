"""Batches built anew: the plain answer for each, also for one that was tampered with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from replay.batch import rebuild_batches
from schemas.errors import NotFoundError
from schemas.events import BatchSealed
from schemas.ids import stable_id
from tests.training.world import RUN, World
from training.batch import seal
from training.manifest import encode_manifest, load_manifest
from training.spec import BatchSpec

SPEC = BatchSpec(groups=2, group_size=2, sequence_length=32, minibatches=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    yield world
    world.close()


def seal_next(world: World) -> BatchSealed:
    world.sink()
    sealed = seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log)
    assert sealed is not None
    world.sink()
    return sealed


def test_every_batch_is_built_again_identical(world: World) -> None:
    for name in "abcd":
        world.group(name, [1.0, 0.0])
    sealed = [seal_next(world), seal_next(world)]
    world.group("later", [0.5, 0.25])
    world.sink()
    reports = list(rebuild_batches(world.lake, world.artifacts))
    assert [(report.batch_id, report.step, report.result, report.detail) for report in reports] == [
        (batch.batch_id, batch.step, "identical", "") for batch in sealed]
    (one,) = rebuild_batches(world.lake, world.artifacts, [sealed[1].batch_id])
    assert one == reports[1]


def test_a_later_score_does_not_change_what_was_sealed(world: World) -> None:
    ids = world.group("a", [1.0, 0.0]) + world.group("b", [1.0, 0.0])
    seal_next(world)
    world.score(ids[0], 0.25, cause="replay")
    world.sink()
    (report,) = rebuild_batches(world.lake, world.artifacts)
    assert report.result == "identical"


def test_a_row_that_was_altered_is_shown(world: World) -> None:
    """A batch that claims another reward than its episode has in the lake."""
    for name in "ab":
        world.group(name, [1.0, 0.0])
    world.sink()
    honest = seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log)
    assert honest is not None
    manifest = load_manifest(honest.manifest.digest, world.artifacts)
    rows = [msgspec.structs.replace(manifest.rows[0], reward=0.75), *manifest.rows[1:]]
    forged = msgspec.structs.replace(manifest, rows=rows, step=1, batch_id=stable_id("forged"))
    ref = world.artifacts.put(encode_manifest(forged))
    world.append(msgspec.structs.replace(honest, manifest=ref, step=1, batch_id=forged.batch_id), RUN)
    world.sink()
    reports = list(rebuild_batches(world.lake, world.artifacts))
    assert [report.result for report in reports] == ["identical", "different"]
    assert reports[1].detail


def test_a_batch_of_other_code_is_not_compared(world: World) -> None:
    for name in "ab":
        world.group(name, [1.0, 0.0])
    world.sink()
    sealed = seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log)
    assert sealed is not None
    manifest = load_manifest(sealed.manifest.digest, world.artifacts)
    old = world.artifacts.put(encode_manifest(msgspec.structs.replace(manifest, code_digest="sha256:" + "0" * 64)))
    world.append(msgspec.structs.replace(sealed, manifest=old, step=1, batch_id="of other code"), RUN)
    world.sink()
    (report,) = rebuild_batches(world.lake, world.artifacts, ["of other code"])
    assert report.result == "not comparable"
    assert report.detail


def test_a_batch_that_nobody_knows_is_an_error(world: World) -> None:
    assert list(rebuild_batches(world.lake, world.artifacts)) == []
    with pytest.raises(NotFoundError, match="no such batch: 'nothing'"):
        list(rebuild_batches(world.lake, world.artifacts, ["nothing"]))

"""Packing, the learning rate and the supervised plan, against values worked out by hand."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from schemas.errors import ConfigError, TrainingError
from schemas.settings import Settings
from training.packing import first_fit, one_a_row
from training.schedule import learning_rate, supervised_plan
from training.spec import RECIPES, BatchSpec, Optimization, first_spec


def test_first_fit_takes_the_lowest_row_with_room():
    assert first_fit([6, 5, 4, 5, 1], 10) == [(0, 0), (1, 0), (0, 6), (1, 5), (2, 0)]
    assert first_fit([3], 10, first_row=4) == [(4, 0)]
    assert one_a_row(2, first_row=1) == [(1, 0), (2, 0)]


def test_a_sequence_longer_than_a_row_is_never_cut():
    with pytest.raises(TrainingError, match="longer than a row"):
        first_fit([11], 10)


def test_the_learning_rate_rises_and_falls_to_its_fraction():
    spec = BatchSpec(total_steps=10, optimization=Optimization(
        learning_rate=1.0, warmup_steps=2, decay_to=0.5, weight_decay=0.0))
    assert [learning_rate(spec, step) for step in (0, 1, 5, 10, 20)] == pytest.approx([0.5, 0.95, 0.75, 0.5, 0.5])


def test_the_supervised_learning_rate_is_held_at_its_fraction():
    spec = BatchSpec(algorithm="sft", optimizer_steps=10, optimization=Optimization(
        learning_rate=1.0, warmup_steps=0, decay_to=0.25, weight_decay=0.0))
    assert [learning_rate(spec, step) for step in (0, 5, 9)] == pytest.approx([1.0, 0.5, 0.25])


def test_a_supervised_plan_draws_all_in_turn_in_minibatches_of_like_length():
    lengths = [10 + index % 7 for index in range(64)]
    spec = BatchSpec(algorithm="sft", optimizer_steps=16, sequences_per_minibatch=4)
    plan = supervised_plan(lengths, spec)
    assert plan == supervised_plan(lengths, spec)
    assert plan != supervised_plan(lengths, msgspec.structs.replace(spec, seed=1))
    assert len(plan) == 16 and all(len(part) == 4 for part in plan)
    assert Counter(index for part in plan for index in part) == Counter(range(64))
    assert sum(max(lengths[i] for i in part) - min(lengths[i] for i in part) for part in plan) <= 7


def test_a_supervised_plan_works_with_fewer_sequences_than_a_minibatch():
    assert supervised_plan([5, 6], BatchSpec(algorithm="sft", optimizer_steps=2)) == [[0, 1], [0, 1]]


def test_the_recipe_of_an_algorithm_is_filled_in_and_stored():
    spec = BatchSpec(algorithm="sft")
    assert spec.optimization == RECIPES["sft"]
    assert msgspec.json.decode(msgspec.json.encode(spec), type=BatchSpec) == spec
    assert b'"learning_rate":0.002' in msgspec.json.encode(spec)


@pytest.mark.parametrize(("wrong", "words"), [
    ({"groups": 0}, "`groups` of a batch must be positive: 0"), ({"group_size": 1}, "at least two members"),
    ({"temperature": 0.0}, "`temperature`")])
def test_a_wrong_spec_is_refused_by_name(wrong: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        BatchSpec(**wrong)


def test_the_first_batch_of_a_run_obeys_the_settings():
    spec = first_spec(Settings(batch_max_staleness=3, batch_group_timeout_s=60.0))
    assert (spec.max_staleness, spec.group_timeout_s) == (3, 60.0)

"""pass@k in SQL is the estimator without bias, over samples that have a verdict."""

from __future__ import annotations

import itertools

import pytest

from artifacts.store import DirectoryStore
from lake.lake import Lake
from schemas.errors import ConfigError
from tests.lake.histories import Story, pour, records_of, rows
from verifiers.pass_at_k import mean_pass_at_k, pass_at_k


def test_it_is_the_share_of_choices_that_hold_a_right_sample() -> None:
    for n, c in ((5, 0), (5, 2), (5, 5), (7, 3)):
        right = [number < c for number in range(n)]
        for k in range(1, n + 1):
            chosen = list(itertools.combinations(right, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))
    assert mean_pass_at_k([(4, 1), (4, 3)], 2) == pytest.approx((0.5 + 1.0) / 2)
    assert pass_at_k(10_000, 3, 5000) == pytest.approx(0.875, abs=1e-4)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_what_is_not_defined_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ConfigError):
        pass_at_k(n, c, k)
    with pytest.raises(ConfigError):
        mean_pass_at_k([], k)


def test_sql_gives_it_for_each_task_and_k(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    told: dict[str, list[float | None]] = {"a": [1.0, 0.0, 0.5, 1.0], "b": [0.0, 0.0, 0.0, 0.0, None]}
    for task, rewards in told.items():
        for number, reward in enumerate(rewards):
            episode = f"{task}{number}"
            story.request(episode, task=task)
            story.start(episode)
            story.finish(episode)
            story.score(episode, reward, status="ok" if reward is not None else "infra_failure")
    pour(lake, artifacts, records_of(story.told))
    found = rows(lake, "select task_id, k, samples, passed, pass_at_k from pass_at_k order by all")
    assert [row[:4] for row in found] == [
        (task, k, 4, passed) for task, passed in (("a", 2), ("b", 0)) for k in (1, 2, 3, 4)]
    assert [row[4] for row in found] == pytest.approx([pass_at_k(4, row[3], row[1]) for row in found])
    means = rows(lake, "select avg(pass_at_k) from pass_at_k group by k order by k")
    assert [mean for mean, in means] == pytest.approx([mean_pass_at_k([(4, 2), (4, 0)], k) for k in (1, 2, 3, 4)])


def test_samples_of_other_weights_and_purposes_are_another_policys(lake: Lake, artifacts: DirectoryStore,
                                                                   story: Story) -> None:
    for episode, purpose, turns in (("a", "train", 0), ("b", "train", 0), ("c", "eval", 0), ("d", "train", 1)):
        story.request(episode, purpose=purpose, task="a")
        story.start(episode, purpose=purpose)
        for number in range(turns):
            story.turn(episode, number)
        story.finish(episode)
        story.score(episode, 1.0)
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select purpose, version, samples from pass_at_k where k = 1 order by all") == [
        ("eval", None, 1), ("train", 3, 1), ("train", None, 2)]

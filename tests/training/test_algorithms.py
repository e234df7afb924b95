"""Each function against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from training import algorithms
from training.advantages import EPSILON, group_advantages


def test_logprobs_and_entropy_of_known_distributions():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [math.log(1.0), math.log(2.0), math.log(4.0), math.log(1.0)]])
    distribution = algorithms.log_probabilities(logits)
    assert algorithms.token_logprobs(distribution, torch.tensor([3, 2])).tolist() == pytest.approx(
        [math.log(1 / 4), math.log(1 / 2)])
    # The second: 1/8, 1/4, 1/2, 1/8 has 3/8 + 2/4 + 1/2 + 3/8 = 1.75 bits.
    assert algorithms.entropy(distribution).tolist() == pytest.approx([math.log(4), 1.75 * math.log(2)])


def test_a_temperature_flattens_the_distribution():
    logits = torch.tensor([[0.0, 2 * math.log(3.0)]])
    distribution = algorithms.log_probabilities(logits, temperature=2.0)
    assert distribution.exp().tolist()[0] == pytest.approx([1 / 4, 3 / 4])


@pytest.mark.parametrize(("ratio", "advantage", "loss", "is_clipped"), [
    (1.0, 2.0, -2.0, False),
    (1.1, 1.0, -1.1, False),
    (1.5, 1.0, -1.28, True),    # clipped from above: no more credit than 1 + high
    (0.5, 1.0, -0.5, False),    # a good token grown rarer is never clipped
    (0.5, -1.0, 0.8, True),     # clipped from below at 1 - low
    (1.5, -1.0, 1.5, False),    # a bad token grown likelier pays in full
])
def test_clipped_loss_and_where_it_clips(ratio: float, advantage: float, loss: float, is_clipped: bool):
    behaviour = torch.tensor([-1.0])
    logprobs = behaviour + math.log(ratio)
    told = logprobs, behaviour, torch.tensor([advantage]), 0.2, 0.28
    assert algorithms.clipped_loss(*told).item() == pytest.approx(loss)
    assert algorithms.clipped(*told).item() is is_clipped


@pytest.mark.parametrize(("ratio", "advantage", "gradient"), [(1.0, 2.0, -2.0), (1.5, 1.0, 0.0), (0.5, -1.0, 0.0)])
def test_clipping_stops_the_gradient(ratio: float, advantage: float, gradient: float):
    logprobs = torch.tensor([-1.0 + math.log(ratio)], requires_grad=True)
    algorithms.clipped_loss(logprobs, torch.tensor([-1.0]), torch.tensor([advantage]), 0.2, 0.28).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(gradient)


def test_k3_is_zero_where_nothing_changed_and_positive_elsewhere():
    behaviour = torch.tensor([-1.0, -1.0, -1.0])
    logprobs = behaviour + torch.tensor([0.0, math.log(2.0), math.log(0.5)])
    assert algorithms.kl_k3(logprobs, behaviour).tolist() == pytest.approx(
        [0.0, 1 - math.log(2), -0.5 + math.log(2)], abs=1e-7)


def test_cross_entropy_is_the_negated_logprob():
    assert algorithms.cross_entropy(torch.tensor([-0.25, -2.0])).tolist() == [0.25, 2.0]


def test_advantages_with_either_standard_deviation():
    # Mean 0.5; squared differences 0.25 + 0.25 + 0 + 0: sample sqrt(0.5 / 3), population sqrt(0.5 / 4).
    rewards = [1.0, 0.0, 0.5, 0.5]
    assert group_advantages(rewards, "sample").tolist() == pytest.approx(
        [0.5 / (math.sqrt(0.5 / 3) + EPSILON), -0.5 / (math.sqrt(0.5 / 3) + EPSILON), 0.0, 0.0])
    assert group_advantages(rewards, "population").tolist() == pytest.approx(
        [0.5 / (math.sqrt(0.125) + EPSILON), -0.5 / (math.sqrt(0.125) + EPSILON), 0.0, 0.0])


def test_equal_rewards_give_no_advantage_and_sums_vanish():
    assert group_advantages([0.3, 0.3, 0.3]).tolist() == [0.0, 0.0, 0.0]
    assert group_advantages([0.1, 0.9, 0.4]).dtype == np.float64
    assert abs(group_advantages([0.1, 0.9, 0.4]).sum()) < 1e-12

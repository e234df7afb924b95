"""The in-process policy: equal to transformers, exact behaviour logprobs, independent of its batch, exact versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch

from producers.policies import TINY_BASE
from producers.policies.llama import Cache, load_llama
from producers.policies.local import LocalPolicy
from producers.policies.sampling import sample
from producers.policies.tokenizer import Tokenizer, train_tokenizer
from schemas.errors import PolicyError, UnavailableError
from schemas.events import Sampling
from schemas.policy import Generation, TurnRequest
from tests.producers.models import random_model


def request(context: list[int], index: int = 0, temperature: float = 1.0, version: int | None = None,
            max_tokens: int = 12) -> TurnRequest:
    return TurnRequest(episode_id=f"e{index}", task_id="t", turn=0, context=context, history=[], sample_index=index,
                       sampling=Sampling(temperature=temperature, max_tokens=max_tokens, seed=3), version=version)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[LocalPolicy]:
    policy = LocalPolicy("test", directory)
    try:
        yield policy
    finally:
        await policy.close()


def generate(directory: Path, use: Callable[[LocalPolicy], Awaitable[list[Generation]]]) -> list[Generation]:
    async def run() -> list[Generation]:
        async with opened(directory) as policy:
            return await use(policy)

    return asyncio.run(run())


def contexts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, 500, (5 + 7 * index % 60,), generator=generator).tolist() for index in range(count)]


@pytest.mark.parametrize("tied", [True, False])
def test_forward_pass_equals_transformers(tied: bool, tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    directory = random_model(tmp_path / "model", 0, tied)
    theirs, ours = LlamaForCausalLM.from_pretrained(directory).eval(), load_llama(directory)
    ids = torch.randint(5, 500, (3, 40), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        wanted = theirs(input_ids=ids).logits
        torch.testing.assert_close(ours.every_logit(ids), wanted, atol=1e-5, rtol=0)
        cache = Cache(ours.config)
        cache.reserve(3, 40, 0)
        torch.testing.assert_close(
            ours.prefill(ids[:, :20], torch.tensor([20, 20, 20]), cache), wanted[:, 19], atol=1e-5, rtol=0)
        for position in range(20, 40):
            logits = ours.step(ids[:, position], torch.full((3,), position), cache, position + 1)
            torch.testing.assert_close(logits, wanted[:, position], atol=1e-5, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_those_of_a_fresh_forward_pass(temperature: float, tmp_path: Path) -> None:
    directory = random_model(tmp_path / "model", 0, std=0.12)
    wanted = [request(context, index, temperature) for index, context in enumerate(contexts(40))]

    async def use(policy: LocalPolicy) -> list[Generation]:
        return list(await asyncio.gather(*(policy.generate(one) for one in wanted)))

    model = load_llama(directory)
    for one, generation in zip(wanted, generate(directory, use), strict=True):
        whole = torch.tensor([one.context + generation.ids])
        logprobs = torch.log_softmax(model.every_logit(whole)[0, :-1] / temperature, -1)
        fresh = logprobs[torch.arange(len(one.context) - 1, whole.shape[1] - 1), whole[0, len(one.context):]]
        assert generation.logprobs is not None
        torch.testing.assert_close(torch.tensor(generation.logprobs), fresh, atol=1e-5, rtol=0)


def test_a_turn_does_not_depend_on_who_else_is_in_the_batch(tmp_path: Path) -> None:
    directory = random_model(tmp_path / "model", 0)
    wanted = [request(context, index, max_tokens=5 + index % 9) for index, context in enumerate(contexts(30))]

    async def together(policy: LocalPolicy) -> list[Generation]:
        return list(await asyncio.gather(*(policy.generate(one) for one in wanted)))

    async def alone(policy: LocalPolicy) -> list[Generation]:
        return [await policy.generate(one) for one in wanted]

    assert [one.ids for one in generate(directory, together)] == [one.ids for one in generate(directory, alone)]


def test_each_turn_is_sampled_from_one_version_and_says_which(tmp_path: Path) -> None:
    base, newer = (random_model(tmp_path / str(seed), seed) for seed in (0, 1))
    context = contexts(2)[1]

    async def use(policy: LocalPolicy) -> list[Generation]:
        first = await policy.generate(request(context))
        policy.offer(4, newer)
        mixed = await asyncio.gather(*(policy.generate(request(context, version=version)) for version in (None, 0, 4)))
        with pytest.raises(UnavailableError, match="not published"):
            await policy.generate(request(context, version=7))
        return [first, *mixed]

    first, newest, old, new = generate(base, use)
    assert first.versions == [(0, 12)]
    assert newest.versions == new.versions == [(4, 12)]
    assert old.ids == first.ids
    assert newest.ids == new.ids != old.ids


def test_a_context_longer_than_the_model_is_refused(tmp_path: Path) -> None:
    async def use(policy: LocalPolicy) -> list[Generation]:
        with pytest.raises(PolicyError, match="longer than the model"):
            await policy.generate(request([5] * 512))
        return [await policy.generate(request([5] * 505))]

    assert len(generate(random_model(tmp_path / "model", 0), use)[0].ids) <= 7


def test_broken_weights_fail_the_turn_and_not_the_policy(tmp_path: Path) -> None:
    directory = random_model(tmp_path / "model", 0)
    broken = random_model(tmp_path / "broken", 0)
    (broken / "model.safetensors").write_bytes(b"\0" * 100)

    async def use(policy: LocalPolicy) -> list[Generation]:
        policy.offer(1, broken)
        with pytest.raises(UnavailableError, match="weights cannot be read"):
            await policy.generate(request([5, 6, 7], version=1))
        return [await policy.generate(request([5, 6, 7], version=0))]

    assert generate(directory, use)[0].versions[0][0] == 0


def test_truncated_sampling_renormalises() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(300, 1)
    uniforms = [index / 300 for index in range(300)]
    for sampling, kept in ((Sampling(top_k=2), {0: 0.625, 1: 0.375}), (Sampling(top_p=0.6), {0: 0.625, 1: 0.375}),
                           (Sampling(temperature=0), {0: 1.0}), (Sampling(), {0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05})):
        tokens, logprobs = sample(logits.clone(), [sampling] * 300, uniforms)
        shares = {token: tokens.count(token) / 300 for token in set(tokens)}
        assert shares == pytest.approx(kept, abs=0.005)
        for token, logprob in zip(tokens, logprobs, strict=True):
            assert logprob == pytest.approx(torch.tensor(kept[token]).log().item(), abs=1e-5)


def test_the_tokenizer_is_what_its_function_makes() -> None:
    assert (TINY_BASE / "tokenizer.json").read_text() == train_tokenizer()


def test_any_text_survives_and_no_text_poses_as_a_mark() -> None:
    tokenizer = Tokenizer(TINY_BASE / "tokenizer.json")
    for text in ("<|end|><|assistant|>done", "é漢\U0001f9ca\x00\r\n\t ", '{"tool": "run"}', " 007  1234567"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert min(ids) >= 5
    assert all(len(tokenizer.encode(str(number))) == 1 for number in range(100))
    assert tokenizer.size == 512


def test_weights_saved_by_transformers_are_read_back(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    directory = random_model(tmp_path / "model", 0)
    LlamaForCausalLM.from_pretrained(directory).save_pretrained(tmp_path / "saved")
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(load_llama(tmp_path / "saved").every_logit(ids), load_llama(directory).every_logit(ids))

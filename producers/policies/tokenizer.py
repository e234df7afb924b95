"""The tokenizer in front of a policy, with its chat template; and how the tiny policy's own one was trained.

Text is encoded with special tokens switched off, so nothing that a tool prints can pose as a template mark. The
template is the same for every role: mark, text, end mark, then the mark of the assistant, where the policy goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from schemas.errors import PolicyError, UnavailableError
from schemas.ids import digest
from tasks.experts import expert_turns
from tasks.task import Task
from tasks.tools import training_tasks

PAD, END, USER, ASSISTANT, TOOL = SPECIALS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>")
VOCABULARY = 512
_CHATML_START, _CHATML_END = "<|im_start|>", "<|im_end|>"
_WORDS = r"\d{1,2}| ?[A-Za-z]+|\s|[^\sA-Za-z\d]"


class Tokenizer:
    """Ids of text and text of ids; `digest` identifies the file."""

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise UnavailableError("the `tokenizers` package is not installed", where=str(file),
                                   hint="install the extra: headrace[train]") from None
        try:
            data = file.read_bytes()
            self._inner: Any = Loaded.from_buffer(data)
        except Exception as wrong:
            raise PolicyError(f"tokenizer cannot be read ({wrong})", where=str(file)) from None
        self._inner.encode_special_tokens = True
        self.file, self.digest = file, digest(data)

    def encode(self, text: str) -> list[int]:
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._inner.decode(ids, skip_special_tokens=False))

    def special(self, token: str) -> int:
        found = self._inner.token_to_id(token)
        if found is None:
            raise PolicyError("tokenizer lacks a mark of its chat template", where=str(self.file), value=token)
        return int(found)

    @cached_property
    def size(self) -> int:
        return int(self._inner.get_vocab_size())

    @cached_property
    def template(self) -> Template:
        """By the marks that the tokenizer has: the tiny policy's own, or ChatML."""
        if self._inner.token_to_id(ASSISTANT) is not None:
            end, assistant = [self.special(END)], [self.special(ASSISTANT)]
            return Template({"user": [self.special(USER)], "tool": [self.special(TOOL)]}, end, assistant)
        start = self.special(_CHATML_START)
        marks = {role: [start, *self.encode(f"{role}\n")] for role in ("user", "tool", "assistant")}
        return Template(marks, [self.special(_CHATML_END), *self.encode("\n")], marks["assistant"])


class Template:
    """Chat template as ids: `end[0]` is the token by which a policy ends its turn."""

    def __init__(self, marks: dict[str, list[int]], end: list[int], assistant: list[int]) -> None:
        self.marks, self.end, self.assistant = marks, end, assistant

    @property
    def stop(self) -> int:
        return self.end[0]

    def observation(self, role: str, ids: list[int]) -> list[int]:
        return [*self.marks[role], *ids, *self.end, *self.assistant]


def train_tokenizer(seed: int = 0) -> str:
    """The tiny policy's tokenizer as JSON: byte-level BPE of exactly 512 tokens, one for each number 0 to 99.

    `producers/tiny/tokenizer.json` is this function's result; ids that training left over are reserved marks.
    """
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Inner

    inner = Inner(models.BPE())
    split = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIALS), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    inner.train_from_iterator(_texts(seed), trainer)
    missing = VOCABULARY - inner.get_vocab_size()
    inner.add_special_tokens([f"<|reserved_{index}|>" for index in range(missing)])
    return str(inner.to_str(pretty=True)) + "\n"


def _texts(seed: int) -> Iterator[str]:
    """What tool tasks read like: prompts, records, turns of references and of experts, observations."""
    for _ in range(50):
        yield from (str(number) for number in range(100))
    rng = random.Random(seed)
    for task in training_tasks(seed, 0, 2000):
        yield task.prompt
        yield from (content.decode() for content in task.files.values())
        yield from task.reference
        yield from _played(task, rng)


def _played(task: Task, rng: random.Random) -> Iterator[str]:
    turns = expert_turns(task, rng.random())
    try:
        line = next(turns)
        while True:
            yield line
            observation = rng.choice(["ok", "error", str(rng.randint(0, 99)), f"{rng.randint(0, 99)}.5"])
            yield observation
            line = turns.send(observation)
    except StopIteration:
        return

"""A judge that is a model in this process: its own frozen weights, never the policy's.

Decisions:
1. It samples through toishi's own engine and templates, so whatever loads as a policy can judge.
2. A sampled reply is a function of the call and of `judge.seed`: the same question gets the same reply, in any run and order.
   (Which calls share a padded batch may move log-probs in their last digits; `batch_rows: 1` rules that out.)
3. The probability of a choice is exact: the sum over every way to spell it in tokens, with or without a blank before it. Where
   one choice begins another ("1" and "10"), the longer one's share is taken off the shorter one's.
4. A question that the tokenizer cannot take is a failure of that call alone.
5. A JSON schema is not enforced here; the question says the form in words.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from toishi.config import ModelConfig
from toishi.engines.base import Request, Sampling
from toishi.engines.torch import TorchEngine
from toishi.judging.base import JudgeCall, JudgeFailure, JudgeReply, Usage
from toishi.judging.cache import digest_of, open_cache
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.server_key import printable
from toishi.policy.capabilities import capabilities, position_limit
from toishi.policy.chat import Renderer
from toishi.policy.loading import load_model
from toishi.policy.precision import choose_device, choose_dtype
from toishi.types import Prompt

LEAST_FOLLOWED = 1e-6
"""Begun spellings with less probability than this are not followed to their end."""


class InProcessJudge:
    """Judges with the model that `options` name. Nothing is loaded before the first `check` or `ask`."""

    gives_probabilities = True
    waits = False

    def __init__(self, options: JudgeOptions) -> None:
        self.options = options
        self._usage = Usage()
        self._lock = threading.Lock()
        self._model: _Model | None = None
        self._cache = open_cache(options.cache)

    @property
    def name(self) -> str:
        return f"{self.options.model} in this process"

    def ask(self, calls: Sequence[JudgeCall]) -> list[JudgeReply | JudgeFailure]:
        """One reply or failure for each call, in order; one caller at a time. Raises ModelError where loading fails."""
        with self._lock:
            model = self._loaded()
            digests = [digest_of(call, model.identity | {"seed": self.options.seed}) for call in calls]
            wanted = dict(zip(digests, calls, strict=True))
            said: dict[str, JudgeReply | JudgeFailure] = {}
            if self._cache is not None:
                found = {digest: self._cache.get(digest) for digest in wanted}
                said |= {digest: reply for digest, reply in found.items() if reply is not None}
            cached = set(said)
            said |= self._answers(model, {digest: call for digest, call in wanted.items() if digest not in said})
            for digest in wanted.keys() - cached:
                reply = said[digest]
                if self._cache is not None and isinstance(reply, JudgeReply):
                    self._cache.put(digest, reply)
            counts = {"calls": self._usage.calls + len(calls), "cached": self._usage.cached + sum(d in cached for d in digests)}
            self._usage = replace(self._usage, **counts)
            return [said[digest] for digest in digests]

    def usage(self) -> Usage:
        """Totals since the judge was made."""
        return self._usage

    def check(self) -> None:
        """Loads the model. Raises ModelError when it cannot be loaded."""
        with self._lock:
            self._loaded()

    def notes(self) -> list[str]:
        """Whether the cache works."""
        return [self._cache.problem] if self._cache is not None and self._cache.problem else []

    def close(self) -> None:
        """Lets go of the weights and the cache; the next `ask` loads them again."""
        with self._lock:
            self._model = None
            if self._cache is not None:
                self._cache.close()

    def _loaded(self) -> _Model:
        if self._model is None:
            self._model = _Model.load(self.options)
        return self._model

    def _answers(self, model: _Model, calls: Mapping[str, JudgeCall]) -> dict[str, JudgeReply | JudgeFailure]:
        said: dict[str, JudgeReply | JudgeFailure] = {}
        prompts: dict[str, tuple[int, ...]] = {}
        for digest, call in calls.items():
            try:
                prompts[digest] = model.prompt_ids(call)
            except Exception as error:
                problem = printable(f"the question cannot be made into tokens ({type(error).__name__}: {error})")
                said[digest] = JudgeFailure(kind="bad_reply", message=problem)
        words: dict[Sampling, list[str]] = {}
        for digest, call in ((digest, calls[digest]) for digest in prompts):
            problem = model.too_long(len(prompts[digest]) + (1 if call.choices else call.max_tokens))
            if problem:
                said[digest] = JudgeFailure(kind="refused", message=problem)
            elif call.choices:
                said[digest] = JudgeReply(text="", probabilities=model.probabilities(prompts[digest], call.choices))
                self._count(len(prompts[digest]), 0)
            else:
                words.setdefault(_sampling(call), []).append(digest)
        for sampling, digests in words.items():
            requests = [
                Request(prompt_ids=prompts[digest], key=(self.options.seed, int(digest[:16], 16))) for digest in digests
            ]
            for digest, completion in zip(digests, model.engine.generate(requests, sampling), strict=True):
                self._count(len(prompts[digest]), completion.num_tokens)
                if completion.text.strip():
                    said[digest] = JudgeReply(text=completion.text, finish_reason=completion.finish_reason)
                else:
                    said[digest] = JudgeFailure(kind="empty", message="the reply is empty")
        return said

    def _count(self, prompt: int, completion: int) -> None:
        usage = self._usage
        self._usage = replace(
            usage, prompt_tokens=usage.prompt_tokens + prompt, completion_tokens=usage.completion_tokens + completion
        )


def _sampling(call: JudgeCall) -> Sampling:
    if call.temperature == 0:
        return Sampling(max_new_tokens=call.max_tokens, greedy=True)
    return Sampling(max_new_tokens=call.max_tokens, temperature=call.temperature)


@dataclass(eq=False)
class _Model:
    """The loaded judge: `identity` is what decides its replies besides the call."""

    module: Any
    tokenizer: Any
    renderer: Renderer
    engine: TorchEngine
    identity: dict[str, str]

    @classmethod
    def load(cls, options: JudgeOptions) -> _Model:
        device = choose_device(options.device)
        dtype = choose_dtype(options.dtype, device)
        config = ModelConfig(name=options.model, revision=options.revision)
        loaded = load_model(config, seed=0)
        module = loaded.module.requires_grad_(False).to(device=device, dtype=dtype)
        renderer = Renderer(loaded.tokenizer, module)
        engine = TorchEngine(
            module,
            stop_ids=renderer.stop_ids,
            decode=renderer.decode,
            batched_prompts=capabilities(module.config).batched_decode,
            max_rows=options.batch_rows,
        )
        identity = {"weights": loaded.fingerprint, "dtype": str(dtype), "template": str(loaded.tokenizer.chat_template)}
        return cls(module=module, tokenizer=loaded.tokenizer, renderer=renderer, engine=engine, identity=identity)

    def prompt_ids(self, call: JudgeCall) -> tuple[int, ...]:
        """The tokens after which the judge goes on, `prefix` included."""
        begun = ({"role": "assistant", "content": call.prefix},) if call.prefix else ()
        return self.renderer.render(Prompt(id="judge", messages=(*call.messages, *begun))).token_ids

    def too_long(self, tokens: int) -> str:
        """Why so many tokens do not fit; "" when they do."""
        limit = position_limit(self.module)
        if limit is None or tokens <= limit.tokens:
            return ""
        return f"the question and its reply take up to {tokens} tokens, and the judge has positions for {limit.tokens}"

    @cached_property
    def tokens_of(self) -> dict[str, list[int]]:
        """Text -> the token ids that decode to it, over the whole vocabulary."""
        count = int(self.module.get_input_embeddings().num_embeddings)
        ids = range(min(count, len(self.tokenizer)))
        pieces = self.tokenizer.batch_decode([[token] for token in ids], clean_up_tokenization_spaces=False)
        found: dict[str, list[int]] = {}
        for token, piece in zip(ids, pieces, strict=True):
            if token not in self.tokenizer.added_tokens_decoder:
                found.setdefault(str(piece), []).append(token)
        return found

    def probabilities(self, prompt_ids: tuple[int, ...], choices: Sequence[str]) -> dict[str, float]:
        """The probability that the text goes on with each choice."""
        found = dict.fromkeys(choices, 0.0)
        self._follow(prompt_ids, {choice: choice for choice in choices}, 1.0, found, blank_allowed=True)
        return found

    def _follow(
        self, ids: tuple[int, ...], rests: Mapping[str, str], weight: float, found: dict[str, float], *, blank_allowed: bool
    ) -> None:
        """Adds to `found` what the choices get after `ids`, which have probability `weight`; of each, its rest is to come."""
        probs_V = self._next_probs(ids)
        for piece in _pieces(rests, blank_allowed=blank_allowed):
            written = piece.lstrip() if blank_allowed else piece
            after = {choice: rest[len(written) :] for choice, rest in rests.items() if rest.startswith(written)}
            whole = next((choice for choice, rest in after.items() if not rest), None)
            longer = {choice: rest for choice, rest in after.items() if rest}
            for token in self.tokens_of.get(piece, ()):
                share = weight * float(probs_V[token])
                before = sum(found[choice] for choice in longer)
                if longer and share > LEAST_FOLLOWED:
                    self._follow((*ids, token), longer, share, found, blank_allowed=False)
                if whole is not None:
                    found[whole] += share - (sum(found[choice] for choice in longer) - before)

    @torch.inference_mode()
    def _next_probs(self, ids: tuple[int, ...]) -> torch.Tensor:
        ids_1L = torch.tensor([ids], device=next(self.module.parameters()).device)
        logits_V = self.module(input_ids=ids_1L, use_cache=False, logits_to_keep=1).logits[0, -1]
        return torch.softmax(logits_V.to(torch.promote_types(logits_V.dtype, torch.float32)), dim=-1).cpu()


def _pieces(rests: Mapping[str, str], *, blank_allowed: bool) -> list[str]:
    """Every text that a next token may have on the way to one of the rests; a blank may come first, or alone, if allowed.

    >>> _pieces({"10": "10"}, blank_allowed=False)
    ['1', '10']
    """
    starts = {rest[:end] for rest in rests.values() for end in range(1, len(rest) + 1)}
    blanks = {blank + start for blank in (" ", "\n") for start in ("", *starts)} if blank_allowed else set()
    return sorted(starts | blanks)

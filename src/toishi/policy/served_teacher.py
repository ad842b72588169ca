"""A teacher behind an OpenAI-style server that tells log-probs of a prompt's tokens (vLLM's `prompt_logprobs`).

Decisions:
1. A step's answers are asked before its update, prompt and answer as token ids, several requests at a time. What the server
   tells is kept for the step and no longer: it is not on record, so a replay asks again.
2. A server tells the K likeliest words of a place. The divergence is taken over these and one event for all others, a lower
   bound (`ops.divergence`); what the others hold is measured and recorded.
3. A token of an answer that the server does not tell gets the largest log-prob that it can have, and is counted.
4. The server is asked how it cuts some texts, and refused when it cuts them otherwise than the student.
5. Log-probs are told at temperature 1, so that is the run's. No key is sent: this is for one's own servers.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toishi.algorithms.teaching import SERVED_METRICS
from toishi.config import TeacherConfig
from toishi.errors import EngineError, ModelError
from toishi.ops.divergence import completed, divergences, with_rest
from toishi.policy.head import Predictions
from toishi.policy.policy import Policy
from toishi.policy.teacher import INSTEAD, TEXTS, LogProbs, Seen
from toishi.types import Rollout

_TRIES = 3
_LEAST = 1e-12
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an environment's proxy is for other servers
Key = tuple[tuple[int, ...], tuple[int, ...]]


class Told(NamedTuple):
    """What the teacher says of T tokens: the log-prob of each (None: not told), and the K likeliest words of each place."""

    own: tuple[float | None, ...]
    words_TK: tuple[tuple[int, ...], ...]
    logprobs_TK: tuple[tuple[float, ...], ...]

    def rest(self, place: int) -> float:
        """Probability of all words that are not told at the place."""
        return max(0.0, 1.0 - math.fsum(math.exp(value) for value in self.logprobs_TK[place]))

    def bound(self, place: int) -> float:
        """The token's log-prob, or the largest that a word which is not told can have."""
        own = self.own[place]
        return own if own is not None else min(math.log(max(self.rest(place), _LEAST)), min(self.logprobs_TK[place]))


@dataclass(slots=True, kw_only=True)
class ServedTeacher:
    """Asks a server; one request for each answer."""

    config: TeacherConfig
    model: None = None
    _told: dict[Key, Told] = field(default_factory=dict)
    _tokens: list[tuple[float, bool]] = field(default_factory=list)

    @classmethod
    def open(cls, config: TeacherConfig, tokenizer: Any) -> ServedTeacher:
        """Raises ModelError when the server cuts texts into other tokens, EngineError when it does not answer."""
        teacher = cls(config=config)
        for text in TEXTS:
            own = list(tokenizer(text, add_special_tokens=False)["input_ids"])
            body = {"model": config.name, "prompt": text, "add_special_tokens": False}
            found = teacher._post(f"{teacher._root}/tokenize", body).get("tokens")
            if found != own:
                raise ModelError(
                    f"teacher {config.name} at {config.endpoint} cannot be asked about the student's tokens: it cuts {text!r} "
                    f"into {str(found)[:60]}, the student into {str(own)[:60]}. {INSTEAD}"
                )
        return teacher

    @property
    def _root(self) -> str:
        return str(self.config.endpoint).rstrip("/").removesuffix("/v1")

    def describe(self) -> dict[str, Any]:
        name = f"{self.config.name} at {self.config.endpoint}"
        return {"source": name, "fingerprint": f"served: {name}", "parameters": None, "architecture": None}

    def look_at(self, rollouts: Sequence[Rollout]) -> None:
        keys = list(dict.fromkeys(map(_key, rollouts)))
        with ThreadPoolExecutor(max_workers=self.config.concurrency) as pool:
            self._told = dict(zip(keys, pool.map(self._ask, keys), strict=True))
        self._tokens = [
            (told.rest(place), told.own[place] is None)
            for rollout in rollouts
            for told in [self._told[_key(rollout)]]
            for place, trained in enumerate(rollout.completion.loss_mask)
            if trained
        ]

    def logprobs(self, rollouts: Sequence[Rollout], ask: Callable[[Policy], LogProbs]) -> LogProbs:
        return {
            rollout.id: tuple(
                self._told[_key(rollout)].bound(place) if trained else 0.0
                for place, trained in enumerate(rollout.completion.loss_mask)
            )
            for rollout in rollouts
        }

    def divergence(
        self, student: Predictions, row: Seen, ask: Callable[[Policy], Predictions], *, temperature: float, beta: float
    ) -> Tensor:
        device = row.targets_N.device
        places = [
            (self._told[_key(rollout)], place)
            for rollout in row.rollouts
            for place, trained in enumerate(rollout.completion.loss_mask)
            if trained
        ]
        words_NK = torch.tensor([told.words_TK[place] for told, place in places], device=device)
        teacher_NK = torch.tensor([told.logprobs_TK[place] for told, place in places], dtype=torch.float64, device=device)

        def compared(places_n: Tensor) -> tuple[Tensor, Tensor]:
            logits_nV = student.logits(places_n)
            student_nV = torch.log_softmax(logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32)), dim=-1)
            return with_rest(student_nV, words_NK[places_n]), completed(teacher_NK[places_n]).to(student_nV.dtype)

        num_words = student.logits(torch.zeros(1, dtype=torch.int64, device=device)).shape[1]
        return divergences(compared, len(places), num_words, beta, device)

    def figures(self) -> Mapping[str, float | int | None]:
        count = len(self._tokens)
        rest = math.fsum(rest for rest, _ in self._tokens) / count if count else None
        return dict(zip(SERVED_METRICS, (rest, sum(untold for _, untold in self._tokens)), strict=True))

    def _ask(self, key: Key) -> Told:
        prompt, answer = key
        body = {
            "model": self.config.name, "prompt": [*prompt, *answer], "max_tokens": 1, "temperature": 0.0,
            "prompt_logprobs": self.config.top_logprobs,
        }  # fmt: skip
        said = self._post(f"{self._root}/v1/completions", body)
        try:
            listed = said["choices"][0]["prompt_logprobs"][-len(answer) :]
            found = [_of_place(entry, token, self.config.top_logprobs) for entry, token in zip(listed, answer, strict=True)]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"teacher {self.config.name} at {self.config.endpoint}: the reply has no log-probs of the prompt's tokens "
                f"({type(error).__name__}: {str(error)[:80]}). Expected choices[0].prompt_logprobs with "
                f"{self.config.top_logprobs} words a token, as vLLM gives them (start it with --max-logprobs "
                f"{self.config.top_logprobs})"
            ) from None
        return Told(*(tuple(column) for column in zip(*found, strict=True)))

    def _post(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON that the server answers, after at most three tries. Raises EngineError."""
        data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
        problem = ""
        for _ in range(_TRIES):
            try:
                request = urllib.request.Request(address, data=data, headers=headers)
                with _OPENER.open(request, timeout=self.config.timeout_s) as response:
                    found = json.loads(response.read())
                if isinstance(found, dict):
                    return found
                problem = f"a JSON object was expected, got a {type(found).__name__}"
            except urllib.error.HTTPError as error:
                problem = f"HTTP {error.code}: {error.read(300).decode('utf-8', 'replace')}"
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                problem = str(error)
        raise EngineError(
            f"teacher {self.config.name}: {address} does not answer as it should: {problem}. Is the server running?"
        )


def _key(rollout: Rollout) -> Key:
    return rollout.prompt.token_ids, rollout.completion.token_ids


def _of_place(entry: Mapping[str, Any], token: int, count: int) -> tuple[float | None, tuple[int, ...], tuple[float, ...]]:
    """(log-prob of the token that stands there, the likeliest words, their log-probs). Servers add the token to the words."""
    told = {int(word): float(value["logprob"] if isinstance(value, Mapping) else value) for word, value in entry.items()}
    ranked = sorted(told, key=lambda word: (-told[word], word))[:count]
    if len(ranked) < count:
        raise ValueError(f"{len(ranked)} words at a token instead of {count}")
    return told.get(token), tuple(ranked), tuple(told[word] for word in ranked)

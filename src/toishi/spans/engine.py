"""An engine that tells of every answer, around one that samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from toishi.engines.base import Engine, Finished, Request, Sampling, TellsFinished
from toishi.spans.telling import Telling
from toishi.spans.told import told_of
from toishi.types import Completion, Prompt


class TracedEngine:
    """Samples as `engine` does, and tells of each answer when it ends.

    model    the name under which the answers are told
    prompts  the rendered prompts that will be asked; a request for another one is told by its tokens alone
    """

    def __init__(self, engine: Engine, telling: Telling, *, model: str, prompts: Sequence[Prompt]) -> None:
        self.name = engine.name
        self._engine, self._telling, self._model = engine, telling, model
        self._prompts: Mapping[tuple[int, ...], Prompt] = {prompt.token_ids: prompt for prompt in prompts}

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion for each request, in order."""
        return self.generate_telling(requests, sampling, lambda index, completion: None)

    def generate_telling(self, requests: Sequence[Request], sampling: Sampling, on_finished: Finished) -> list[Completion]:
        """As `generate`; `on_finished` is called when an answer ends, or at the end where the engine cannot say when."""
        started_ns = time.time_ns()

        def ended(index: int, completion: Completion) -> None:
            request, ended_ns = requests[index], time.time_ns()
            prompt = self._prompts.get(request.prompt_ids, Prompt(id="unknown", text=""))
            self._telling.tell(
                told_of(self._model, prompt, request, sampling, completion, started_ns=started_ns, ended_ns=ended_ns)
            )
            on_finished(index, completion)

        if isinstance(self._engine, TellsFinished):
            return self._engine.generate_telling(requests, sampling, ended)
        completions = self._engine.generate(requests, sampling)
        for index, completion in enumerate(completions):
            ended(index, completion)
        return completions

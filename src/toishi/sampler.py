"""A model opened for asking and measuring only: no optimizer, no run folder, nothing is written.

Decisions:
1. A finished run is opened by its checkpoint and sampled exactly as the run itself would: same precision, same stop ids.
2. What may be opened: a run folder, a model folder, a hub id, or `bundled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toishi.config import Config, ModelConfig
from toishi.engines.torch import TorchEngine
from toishi.errors import ConfigError, RecordError
from toishi.evaluate import Evaluation, best_step, evaluate
from toishi.machine import Machine
from toishi.policy.capabilities import Capabilities, capabilities
from toishi.policy.chat import Renderer
from toishi.policy.loading import LoadedModel, load_model
from toishi.policy.policy import Policy
from toishi.ranking import evaluate_pairs
from toishi.record.checkpoint_files import checkpoint_fault, checkpoint_folders, checkpoint_step
from toishi.record.reader import Run
from toishi.recorded import recorded_config, require_same_base
from toishi.rendering import refuse_long
from toishi.rewards.base import Reward
from toishi.session import Materials, gather, is_adapted, sampling_of, saved_model
from toishi.types import Prompt
from toishi.update import UpdateSettings


@dataclass(frozen=True)
class Sampler:
    """A loaded model that answers prompts."""

    loaded: LoadedModel
    policy: Policy
    renderer: Renderer
    engine: TorchEngine
    machine: Machine
    able: Capabilities

    @classmethod
    def open(cls, model: ModelConfig, *, seed: int, run: Run | None = None, predicts: str = "tokens") -> Sampler:
        """Loads the model; one that predicts a score answers no prompts, but can be measured.

        Raises what `load_model` and `Renderer` raise, and ModelError when a run's adapter would be put around another base.
        """
        machine = Machine.decide(model)
        loaded = load_model(model, seed=seed, predicts=predicts)
        if run is not None and is_adapted(model):
            require_same_base(loaded, run.run)
        renderer = Renderer(loaded.tokenizer, loaded.module)
        able = capabilities(loaded.module.config)
        policy = Policy(loaded.module, compute_dtype=machine.torch_dtype, device=machine.device)
        engine = TorchEngine(
            policy.module, stop_ids=renderer.stop_ids, decode=renderer.decode, batched_prompts=able.batched_decode
        )
        return cls(loaded=loaded, policy=policy, renderer=renderer, engine=engine, machine=machine, able=able)


def heldout_of(materials: Materials, config: Config) -> list[Prompt]:
    """The prompts that are measured on. Raises ConfigError when there is none."""
    heldout = list(materials.task.heldout_prompts()[: config.evaluation.prompts])
    if not heldout:
        raise ConfigError("nothing to measure on: the task holds no prompt out, or evaluation.prompts is 0; set task.heldout")
    return heldout


def measure_model(
    config: Config, *, step: int = 0, run: Run | None = None, sampler: Sampler | None = None
) -> tuple[Evaluation, ...]:
    """The evaluations that a run of this recipe makes at `step` with the model as it is: greedy (if it says so) and sampled.

    sampler  the recipe's model, where it is open already

    Equal step, seed and weights give the run's own numbers again. Raises ConfigError when the recipe holds nothing out.
    """
    materials = gather(config)
    heldout = heldout_of(materials, config)
    if sampler is None:
        sampler = Sampler.open(config.model, seed=config.seed, run=run, predicts=config.algorithm.predicts)
    prompts = [sampler.renderer.render(prompt) for prompt in heldout]
    refuse_long(prompts, config.sampling.max_prompt_tokens)
    return MEASURED[config.algorithm.predicts](sampler, config, prompts, materials.rewards, step)


def _ranked(
    sampler: Sampler, config: Config, prompts: Sequence[Prompt], rewards: Sequence[Reward], step: int
) -> tuple[Evaluation, ...]:
    budget = sampler.machine.token_budget(config)
    settings = UpdateSettings.of(config, shared_prompt=sampler.able.shared_prompt, token_budget=budget)
    return (evaluate_pairs(sampler.policy, sampler.renderer, prompts, config, settings, step=step),)


def _answered(
    sampler: Sampler, config: Config, prompts: Sequence[Prompt], rewards: Sequence[Reward], step: int
) -> tuple[Evaluation, ...]:
    weights = [reward.weight for reward in config.rewards]
    return tuple(
        evaluate(
            sampler.engine, prompts, rewards, weights, sampling_of(config, greedy=greedy),
            samples=config.evaluation.samples, seed=config.seed, step=step,
        )
        for greedy in ([True] if config.evaluation.greedy else []) + ([False] if config.evaluation.samples else [])
    )  # fmt: skip


MEASURED: Mapping[str, Callable[[Sampler, Config, Sequence[Prompt], Sequence[Reward], int], tuple[Evaluation, ...]]] = {
    "tokens": _answered,
    "score": _ranked,
}
"""What a model predicts -> how it is measured."""


@dataclass(frozen=True)
class Source:
    """What is to be asked: a model as it is, or a checkpoint of a run (`run` is None for the former).

    step  training steps that the weights have seen
    """

    model: ModelConfig
    run: Run | None = None
    step: int = 0

    @classmethod
    def find(cls, name: str, which: str = "last") -> Source:
        """A run's folder (with the checkpoint `which`), a model's folder, a hub id, or 'bundled'."""
        if not (Path(name) / "run.json").is_file():
            return cls(model=ModelConfig.model_validate({"name": name}))
        run = Run.open(name)
        checkpoint = checkpoint_of(run, which)
        model = run_config(run).model.model_copy(update={"dtype": run.run["decisions"]["dtype"]})
        return cls(model=saved_model(model, checkpoint), run=run, step=checkpoint_step(checkpoint))

    def compared(self, found: Evaluation) -> Evaluation:
        """The evaluation with its paired change since the run's first one of the same mode."""
        lines = self.run.evaluations if self.run is not None else ()
        first = next((line for line in lines if line.get("mode") == found.mode), None)
        return found if first is None else found.compared_with(Evaluation.from_record(first))


def run_config(run: Run) -> Config:
    """The configuration that the run was started with."""
    return recorded_config(run)


def checkpoint_of(run: Run, which: str = "last") -> Path:
    """The run's newest whole checkpoint ("last"), that of its best held-out value ("best"), or that of a step ("12").

    Raises RecordError when there is none, with those that there are.
    """
    whole = [folder for folder in checkpoint_folders(run.folder) if checkpoint_fault(folder) is None]
    if not whole:
        raise RecordError(f"{run.folder} has no whole checkpoint; `toishi audit {run.folder}` says what is damaged")
    if which == "last":
        return whole[-1]
    steps = {checkpoint_step(folder): folder for folder in whole}
    measured = [Evaluation.from_record(line) for line in run.evaluations if line["step"] in steps]
    step = best_step(measured) if which == "best" else int(which) if which.isdigit() else None
    if step not in steps:
        raise RecordError(
            f"{run.folder} has no checkpoint '{which}'; expected last, best, or a step of {', '.join(map(str, sorted(steps)))}"
        )
    return steps[step]

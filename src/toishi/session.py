"""Everything a run needs, built in the order in which it can fail cheaply: data and rewards first, the model last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from toishi.checkpoints import load_checkpoint
from toishi.config import Config, ModelConfig
from toishi.engines.base import Engine, Sampling
from toishi.engines.torch import TorchEngine
from toishi.errors import DataError
from toishi.evaluate import Evaluation
from toishi.given import NOTHING_GIVEN, Given
from toishi.policy.capabilities import capabilities
from toishi.policy.chat import Renderer
from toishi.policy.loading import LoadedModel, load_model
from toishi.policy.policy import Policy
from toishi.policy.precision import choose_device, choose_dtype
from toishi.preflight import preflight
from toishi.record.environment import environment
from toishi.record.writer import RunWriter
from toishi.rewards.base import Reward
from toishi.tasks.base import Task
from toishi.types import Prompt
from toishi.update import UpdateSettings, make_optimizer


@dataclass
class Session:
    """A run in progress.

    step         the last finished step
    next_prompt  position in the task's stream
    metrics, evaluations  the run's whole history so far; `said` holds the health rules that have spoken
    """

    config: Config
    task: Task
    rewards: tuple[Reward, ...]
    policy: Policy
    tokenizer: Any
    renderer: Renderer
    engine: Engine
    optimizer: torch.optim.Optimizer
    settings: UpdateSettings
    writer: RunWriter
    heldout: tuple[Prompt, ...]
    step: int = 0
    next_prompt: int = 0
    metrics: list[Mapping[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    said: set[str] = field(default_factory=set)

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(reward.weight for reward in self.config.rewards)

    @property
    def dtype(self) -> str:
        """Name of the compute precision: "float32", "bfloat16", ..."""
        return str(self.policy.compute_dtype).removeprefix("torch.")

    @property
    def sampling(self) -> Sampling:
        return sampling_of(self.config)

    def prompts(self, count: int) -> list[Prompt]:
        """The next `count` training prompts, rendered; the position moves on."""
        found = [self.renderer.render(self.task.train_prompt(self.next_prompt + offset)) for offset in range(count)]
        self.next_prompt += count
        refuse_long(found, self.config.sampling.max_prompt_tokens)
        return found


def sampling_of(config: Config, *, greedy: bool = False) -> Sampling:
    """How the run draws its answers."""
    values = config.sampling
    return Sampling(
        max_new_tokens=values.max_new_tokens,
        temperature=values.temperature,
        top_p=values.top_p,
        top_k=values.top_k,
        min_p=values.min_p,
        stop=values.stop,
        greedy=greedy,
    )


def refuse_long(prompts: list[Prompt], limit: int) -> None:
    """Raises DataError that lists the prompts (rendered) with more than `limit` tokens."""
    long = [(prompt.id, len(prompt.token_ids)) for prompt in prompts if len(prompt.token_ids) > limit]
    if long:
        listed = ", ".join(f"{id_} ({count} tokens)" for id_, count in long[:10])
        raise DataError(
            f"{len(long)} prompts are longer than sampling.max_prompt_tokens={limit}: {listed}. "
            "They are not cut. Raise the limit or remove these rows"
        )


@dataclass(frozen=True)
class Materials:
    """Data and rewards, checked against each other; no model yet."""

    task: Task
    rewards: tuple[Reward, ...]


def gather(config: Config, given: Given = NOTHING_GIVEN) -> Materials:
    """Read the data, build the rewards, try them on real rows. Raises before anything heavy is loaded."""
    task, rewards = preflight(config, given).require()
    return Materials(task=task, rewards=rewards)


@dataclass(frozen=True)
class Machine:
    """Decided once by measuring, stored in run.json, used again on resume and replay."""

    dtype: str
    device: str
    threads: int

    @classmethod
    def decide(cls, config: ModelConfig) -> Machine:
        device = choose_device(config.device)
        dtype = choose_dtype(config.dtype, device)
        return cls(dtype=str(dtype).removeprefix("torch."), device=str(device), threads=torch.get_num_threads())

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)  # type: ignore[no-any-return]


def start(config: Config, materials: Materials, folder: Path) -> Session:
    """A new run in a new folder."""
    machine = Machine.decide(config.model)
    loaded = load_model(config.model, seed=config.seed)
    renderer = Renderer(loaded.tokenizer, loaded.module)
    writer = RunWriter.create(folder, run_record(config, machine, loaded, renderer, materials.task))
    policy = Policy(loaded.module, compute_dtype=machine.torch_dtype, device=machine.device)
    if config.algorithm.needs_reference:
        policy.keep_reference()
    return _session(config, materials, policy, loaded.tokenizer, renderer, writer)


def restore(config: Config, materials: Materials, folder: Path, run: Mapping[str, Any], checkpoint: Path) -> Session:
    """A run as it stood after the checkpoint's step: same machine decisions, same position, same weights bit for bit."""
    machine = Machine(**run["decisions"])
    torch.set_num_threads(machine.threads)
    saved = load_checkpoint(checkpoint)
    loaded = load_model(saved_model(config.model, checkpoint), seed=config.seed)
    if config.algorithm.needs_reference:
        masters = {name: weight.detach().clone() for name, weight in loaded.module.named_parameters()}
        loaded = load_model(config.model, seed=config.seed)
    renderer = Renderer(loaded.tokenizer, loaded.module)
    policy = Policy(loaded.module, compute_dtype=machine.torch_dtype, device=machine.device)
    if config.algorithm.needs_reference:
        policy.keep_reference()
        policy.load_masters(masters)
    session = _session(config, materials, policy, loaded.tokenizer, renderer, RunWriter.open(folder))
    session.optimizer.load_state_dict(saved.state["optimizer"])
    session.step, session.next_prompt = saved.step, saved.state["next_prompt"]
    return session


def saved_model(config: ModelConfig, checkpoint: Path) -> ModelConfig:
    """The model section that loads a checkpoint's weights: the whole model, or the base with the saved adapter."""
    folder = str(checkpoint / "model")
    if config.lora is not None or config.adapter is not None:
        return config.model_copy(update={"adapter": folder, "lora": None})
    return config.model_copy(update={"name": folder, "revision": None})


def _session(
    config: Config, materials: Materials, policy: Policy, tokenizer: Any, renderer: Renderer, writer: RunWriter
) -> Session:
    able = capabilities(policy.module.config, context=config.sampling.max_prompt_tokens + config.sampling.max_new_tokens)
    settings = UpdateSettings(
        algorithm=config.algorithm,
        train=config.train,
        optimizer=config.optimizer,
        temperature=config.sampling.temperature,
        max_new_tokens=config.sampling.max_new_tokens,
        shared_prompt=able.shared_prompt,
        seed=config.seed,
    )
    engine = TorchEngine(policy.module, stop_ids=renderer.stop_ids, decode=renderer.decode, batched_prompts=able.batched_decode)
    heldout = [renderer.render(prompt) for prompt in materials.task.heldout_prompts()[: config.evaluation.prompts]]
    refuse_long(heldout, config.sampling.max_prompt_tokens)
    return Session(
        config=config,
        task=materials.task,
        rewards=materials.rewards,
        policy=policy,
        tokenizer=tokenizer,
        renderer=renderer,
        engine=engine,
        optimizer=make_optimizer(policy, config.optimizer),
        settings=settings,
        writer=writer,
        heldout=tuple(heldout),
    )


def run_record(config: Config, machine: Machine, loaded: LoadedModel, renderer: Renderer, task: Task) -> dict[str, Any]:
    """What run.json says: enough to do any step again."""
    return {
        "config": config.model_dump(mode="json"),
        "config_given": config.model_dump(mode="json", exclude_unset=True),
        "seed": config.seed,
        "decisions": {"dtype": machine.dtype, "device": machine.device, "threads": machine.threads},
        "model": {
            "source": loaded.source,
            "fingerprint": loaded.fingerprint,
            "parameters": sum(weight.numel() for weight in loaded.module.parameters()),
            "trained": sum(weight.numel() for weight in loaded.module.parameters() if weight.requires_grad),
            "architecture": type(loaded.module).__name__,
        },
        "task": {"name": task.name, "num_train": task.num_train, "num_heldout": len(task.heldout_prompts())},
        "prompt": renderer.describe(task.train_prompt(0)),
        "environment": environment() | {"omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "")},
    }

"""Everything a run needs, built in the order in which it can fail cheaply: data and rewards first, the model last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from toishi.checkpoints import Checkpoint, load_checkpoint
from toishi.config import Config, ModelConfig
from toishi.engines.base import Engine, Sampling
from toishi.engines.torch import TorchEngine
from toishi.evaluate import Evaluation
from toishi.given import NOTHING_GIVEN, Given
from toishi.machine import Machine
from toishi.memory import MemoryPlan, ModelShape, plan_memory, reachable_memory
from toishi.passes import UpdateSettings
from toishi.policy.capabilities import Capabilities, capabilities
from toishi.policy.chat import Renderer
from toishi.policy.critic import Critic, require_hidden_states, without_output_layer
from toishi.policy.loading import LoadedModel, load_model
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.served_teacher import open_teacher
from toishi.preflight import preflight
from toishi.provenance import run_record
from toishi.record.writer import RunWriter
from toishi.recorded import require_same_base, require_same_teacher
from toishi.rendering import refuse_long, render_all
from toishi.rewards.base import Reward
from toishi.rewards.hooks import closing, weight_bytes_of
from toishi.rewards.tokens import with_decode
from toishi.tasks.base import Task
from toishi.types import Prompt
from toishi.written import look_at_rows


@dataclass
class Session:
    """A run in progress.

    step         the last finished step
    next_prompt  position in the task's stream
    metrics, evaluations  the run's whole history so far; `said` holds the health rules that have spoken
    memory       what the run was expected to need; None for one that goes on
    notices      what was found before the start and does not forbid it; `notes` is what the rewards say of themselves
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
    critic: Critic | None
    writer: RunWriter
    heldout: tuple[Prompt, ...]
    step: int = 0
    next_prompt: int = 0
    metrics: list[Mapping[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    notices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    memory: MemoryPlan | None = None

    @property
    def learner(self) -> Learner:
        return Learner(self.policy, self.tokenizer, self.renderer, self.engine, self.optimizer, self.settings, self.critic)

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


@dataclass(frozen=True)
class Materials:
    """Data and rewards, checked against each other; no model yet. `notices` are the warnings, `notes` what rewards say."""

    task: Task
    rewards: tuple[Reward, ...]
    notices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def gather(config: Config, given: Given = NOTHING_GIVEN) -> Materials:
    """Read the data, build the rewards, try them on real rows. Raises before anything heavy is loaded."""
    found = preflight(config, given)
    if found.errors:
        with closing(found.rewards or ()):
            found.require()
    task, rewards = found.require()
    notices = tuple(finding.message for finding in found.findings)
    return Materials(task=task, rewards=rewards, notices=notices, notes=found.notes)


@dataclass(frozen=True)
class Learner:
    """The model with all that samples from it and changes it; no task and no rewards, so a recorded step can be done again."""

    policy: Policy
    tokenizer: Any
    renderer: Renderer
    engine: Engine
    optimizer: torch.optim.Optimizer
    settings: UpdateSettings
    critic: Critic | None = None

    @classmethod
    def of(
        cls, config: Config, machine: Machine, policy: Policy, tokenizer: Any, renderer: Renderer, critic: Critic | None
    ) -> Learner:
        able = able_to(config, policy)
        settings = UpdateSettings.of(config, shared_prompt=able.shared_prompt, token_budget=machine.token_budget(config))
        engine = TorchEngine(
            policy.module, stop_ids=renderer.stop_ids, decode=renderer.decode, batched_prompts=able.batched_decode
        )
        return cls(policy, tokenizer, renderer, engine, make_optimizer(policy, config.optimizer), settings, critic)


def start(config: Config, materials: Materials, folder: Path) -> Session:
    """A new run in a new folder. Raises DataError that lists every prompt which cannot be used."""
    machine = Machine.decide(config.model)
    loaded = load_model(config.model, seed=config.seed, predicts=config.algorithm.predicts)
    renderer = Renderer(loaded.tokenizer, loaded.module)
    rendered = render_all(config, materials.task, renderer, loaded.module).require()
    notes = rendered.notes + look_at_rows(config, materials.task, renderer)
    policy = _policy(config, machine, loaded)
    _take_teacher(config, policy, loaded.tokenizer)
    if config.algorithm.needs_critic:
        require_hidden_states(policy)
    plan = planned(config, policy, rendered.longest, materials.rewards)
    plan.require()
    machine = replace(machine, micro_batch_tokens=plan.micro_batch_tokens)
    record = run_record(config, machine, loaded, renderer, materials.task, materials.rewards, teacher=policy.teacher)
    writer = RunWriter.create(folder, record)
    session = _session(config, materials, _at_step_0(config, machine, policy, loaded.tokenizer, renderer), writer)
    session.memory, session.notices = plan, materials.notices + notes
    return session


def planned(config: Config, policy: Policy, longest_prompt: int | None, rewards: Sequence[Reward] = ()) -> MemoryPlan:
    """What the run needs and which micro-batch fits, by the models at hand; without a prompt's length by the recipe's limit."""
    device, tokens = str(policy.device), longest_prompt or config.sampling.max_prompt_tokens
    shape = ModelShape.of(policy, shared_rows=able_to(config, policy).shared_prompt, reward_bytes=weight_bytes_of(rewards))
    return plan_memory(config, shape, prompt_tokens=tokens, reachable=reachable_memory(device))


def able_to(config: Config, policy: Policy) -> Capabilities:
    """What may run fast with the recipe's lengths."""
    context = config.sampling.max_prompt_tokens + config.sampling.max_new_tokens
    own = capabilities(policy.module.config, context=context)
    if policy.teacher is None or policy.teacher.model is None:
        return own
    teachers = capabilities(policy.teacher.model.module.config, context=context)
    return own if teachers.shared_prompt else replace(own, shared_prompt=False, why=f"{own.why}; the teacher: {teachers.why}")


def start_again(config: Config, materials: Materials, writer: RunWriter, run: Mapping[str, Any]) -> Session:
    """A run that was stopped before its first checkpoint, from its beginning, by the same machine decisions; or ModelError."""
    machine = Machine(**run["decisions"])
    torch.set_num_threads(machine.threads)
    loaded = load_model(config.model, seed=config.seed, predicts=config.algorithm.predicts)
    require_same_base(loaded, run)
    renderer, policy = Renderer(loaded.tokenizer, loaded.module), _policy(config, machine, loaded)
    _take_teacher(config, policy, loaded.tokenizer, run)
    return _session(config, materials, _at_step_0(config, machine, policy, loaded.tokenizer, renderer), writer)


def _at_step_0(config: Config, machine: Machine, policy: Policy, tokenizer: Any, renderer: Renderer) -> Learner:
    if config.algorithm.needs_step_0:
        policy.keep_reference()
    return Learner.of(config, machine, policy, tokenizer, renderer, _critic(config, machine, policy, config.model))


def _critic(config: Config, machine: Machine, policy: Policy, model: ModelConfig) -> Critic | None:
    """What the row's values come from, at its start; `model` loads a trunk of its own."""
    if not config.algorithm.needs_critic:
        return None
    if config.critic.kind == "shared":
        return Critic(policy, config.critic.optimizer, owns_trunk=False)
    loaded = load_model(model, seed=config.seed)
    without_output_layer(loaded.module)
    return Critic(_policy(config, machine, loaded), config.critic.optimizer, owns_trunk=True)


def _take_teacher(config: Config, policy: Policy, tokenizer: Any, run: Mapping[str, Any] | None = None) -> None:
    """Puts the teacher beside the policy, where there is one; `run`: the record that it has to agree with."""
    if config.teacher is not None:
        policy.teacher = open_teacher(config.teacher, policy, tokenizer, seed=config.seed)
        if run is not None:
            require_same_teacher(policy.teacher, run)


def _policy(config: Config, machine: Machine, loaded: LoadedModel) -> Policy:
    again, dtype = config.train.gradient_checkpointing, machine.torch_dtype
    return Policy(loaded.module, compute_dtype=dtype, device=machine.device, gradient_checkpointing=again)


def restore(config: Config, materials: Materials, writer: RunWriter, run: Mapping[str, Any], checkpoint: Path) -> Session:
    """A run as it stood after the checkpoint's step: same machine decisions, same position, same weights bit for bit."""
    machine = Machine(**run["decisions"])
    torch.set_num_threads(machine.threads)
    saved = load_checkpoint(checkpoint)
    learner = restore_learner(config, machine, run, saved)
    session = _session(config, materials, learner, writer)
    session.step, session.next_prompt = saved.step, saved.state["next_prompt"]
    return session


def restore_learner(config: Config, machine: Machine, run: Mapping[str, Any], saved: Checkpoint) -> Learner:
    """Weights, reference model, critic and optimizers as they were when the checkpoint was saved, bit for bit.

    Raises ModelError when the base model, where it is needed, is not the one that the run started from.
    """
    model = saved_model(config.model, saved.model_folder.parent)
    loaded = load_model(model, seed=config.seed, predicts=config.algorithm.predicts)
    masters = None
    if config.algorithm.needs_step_0:
        masters = {name: weight.detach().clone() for name, weight in loaded.module.named_parameters()}
        loaded = load_model(config.model, seed=config.seed)
    if masters is not None or is_adapted(config.model):
        require_same_base(loaded, run)
    renderer = Renderer(loaded.tokenizer, loaded.module)
    policy = _policy(config, machine, loaded)
    if masters is not None:
        policy.keep_reference(saved.state.get("reference"))
        policy.load_masters(masters)
    _take_teacher(config, policy, loaded.tokenizer, run)
    critic = _critic(config, machine, policy, model)
    learner = Learner.of(config, machine, policy, loaded.tokenizer, renderer, critic)
    learner.optimizer.load_state_dict(saved.state["optimizer"])
    if critic is not None:
        critic.load(saved.state["critic"])
    return learner


def saved_model(config: ModelConfig, checkpoint: Path) -> ModelConfig:
    """The model section that loads a checkpoint's weights: the whole model, or the base with the saved adapter."""
    folder = str(checkpoint / "model")
    if is_adapted(config):
        return config.model_copy(update={"adapter": folder, "lora": None})
    return config.model_copy(update={"name": folder, "revision": None})


def is_adapted(config: ModelConfig) -> bool:
    """Whether adapters are trained around a frozen base model."""
    return config.lora is not None or config.adapter is not None


def _session(config: Config, materials: Materials, learner: Learner, writer: RunWriter) -> Session:
    heldout = [learner.renderer.render(prompt) for prompt in materials.task.heldout_prompts()[: config.evaluation.prompts]]
    refuse_long(heldout, config.sampling.max_prompt_tokens)
    return Session(
        config=config,
        task=materials.task,
        rewards=with_decode(materials.rewards, learner.renderer.decode),
        policy=learner.policy,
        tokenizer=learner.tokenizer,
        renderer=learner.renderer,
        engine=learner.engine,
        optimizer=learner.optimizer,
        settings=learner.settings,
        critic=learner.critic,
        writer=writer,
        heldout=tuple(heldout),
        notes=materials.notes,
    )

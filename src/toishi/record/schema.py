"""Every file of a run folder and every column in it, described once: arrow schemas and docs/run-folder.md come from here.

Decisions:
1. A row of `rollouts/` is a rollout, a row of `tokens/` is a rollout in one optimizer update. Both are keyed by
   (step, group, member), so a join needs no other knowledge.
2. Per-token numbers are stored as float64: what float32 computed comes back bit for bit, and so does float64. The byte
   stream split encoding makes the unused low bytes cost nothing.
3. A missing number is null, never 0 and never NaN by convention.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from toishi.record.columns import Column
from toishi.record.influence import ARRAYS, influence_fields
from toishi.record.trace import AFTER_COLUMNS, CHANGE_COLUMNS, trace_fields

SCHEMA_VERSION = 1

_SCORE = pa.struct(
    [
        pa.field("reward", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("weight", pa.float64()),
        pa.field("contribution", pa.float64()),
        pa.field("status", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("span_start", pa.int32()),
        pa.field("span_end", pa.int32()),
        pa.field("readable", pa.bool_()),
        pa.field("kind", pa.string()),
        pa.field("use", pa.string()),
    ]
)
_FLOATS = pa.list_(pa.float64())


ROLLOUT_COLUMNS = (
    Column("step", pa.int32(), "training step, from 1"),
    Column("group", pa.int32(), "prompt's position in the step, from 0"),
    Column("member", pa.int32(), "answer's position among its siblings, from 0"),
    Column("prompt_id", pa.string(), "the task's name for the prompt"),
    Column("prompt", pa.string(), "the text a person recognises the prompt by: the last user turn, or the plain text"),
    Column("prompt_messages", pa.string(), "the whole conversation as JSON; null for a plain prompt"),
    Column("prompt_token_ids", pa.list_(pa.int32()), "the prompt as the model read it, chat template included"),
    Column("prompt_prefill", pa.string(), "text that the chat template already wrote for the assistant"),
    Column("gold", pa.string(), "the right answer as JSON; 'null' where the task has none"),
    Column("columns", pa.string(), "every other column of the data row as a JSON object"),
    Column("completion", pa.string(), "the answer, decoded without its stop token"),
    Column("finish_reason", pa.string(), "'stop' (ended by itself), 'length' (the token limit cut it), 'unknown' (not said)"),
    Column("num_tokens", pa.int32(), "tokens of the answer, stop token included"),
    Column("policy_version", pa.int64(), "optimizer updates that the sampling weights had seen"),
    Column("status", pa.string(), "'completed', 'truncated' or 'failed'"),
    Column("failure", pa.string(), "boundary and message of a failure; empty otherwise"),
    Column(
        "scores",
        pa.list_(_SCORE),
        "what each reward said: value (null unless status is 'ok'), weight, contribution (null: not in the sum), status "
        "('ok', 'abstained', 'failed'), reason, token span [start, end) or null for the whole answer, whether an "
        "answer in the asked-for form could be read, kind (a short word for failures of a kind), and use: 'counted' "
        "(contribution = weight x value), 'capped' (at a bound), 'gated' (0, its gate is closed), 'levelled' (the group's "
        "mean, its differences are within the noise), 'left_out' (of the whole group)",
    ),
    Column("reward", pa.float64(), "sum of the contributions, higher is better; null when the answer could not be scored"),
    Column("group_mean", pa.float64(), "mean reward of the siblings that took part; null for none"),
    Column("group_std", pa.float64(), "standard deviation of those rewards, with the algorithm's ddof; null for none"),
    Column("group_count", pa.int32(), "siblings that took part; null before baselines were computed"),
    Column("group_kept", pa.bool_(), "false when the algorithm's filter dropped the group"),
    Column("group_why", pa.string(), "in words: why it was dropped, or whose differences were within the noise; or empty"),
    Column("advantage", pa.float64(), "how much better than its baseline, > 0 pushes up; null when per token or not computed"),
    Column("token_advantages", _FLOATS, "the advantage of every token; null when one number serves the whole answer"),
)

TOKEN_COLUMNS = (
    Column("step", pa.int32(), "training step, from 1"),
    Column("update", pa.int32(), "optimizer update of the step, from 0; null when the rollout took part in none"),
    Column("group", pa.int32(), "prompt's position in the step, from 0"),
    Column("member", pa.int32(), "answer's position among its siblings, from 0"),
    Column("computed", pa.bool_(), "whether the update ran the model on this rollout (no gradient could come of it otherwise)"),
    Column("token_ids", pa.list_(pa.int32()), "the answer's tokens, stop token included"),
    Column("token_texts", pa.list_(pa.string()), "each token decoded on its own; null when no decoder was at hand"),
    Column("loss_mask", pa.list_(pa.int8()), "1 where the policy sampled the token, 0 for tool results and prefilled text"),
    Column("sampled_logprob", _FLOATS, "log-prob (nats) as the engine sampled it, at the sampling temperature"),
    Column("sampled_entropy", _FLOATS, "entropy (nats) of the distribution the token was drawn from"),
    Column(
        "old_logprob",
        _FLOATS,
        "log-prob (nats) before the step's first update; of a reward model its score, on the last token",
    ),
    Column("logprob", _FLOATS, "log-prob (nats), or score, under the weights that this update started from"),
    Column("ref_logprob", _FLOATS, "log-prob (nats) under the reference model; null when no KL term needs it"),
    Column("entropy", _FLOATS, "entropy (nats) under the weights that this update started from"),
    Column("ratio", _FLOATS, "importance ratio that multiplies the advantage: exp(logprob - old_logprob), or the sequence's"),
    Column("clip", pa.list_(pa.int8()), "0 free, 1 held at the lower bound, 2 at the upper bound, 3 by the dual clip"),
    Column("kl_policy_ref", _FLOATS, "estimate of KL(policy || reference) at the token (nats)"),
    Column(
        "divergence",
        _FLOATS,
        "divergence (nats) from the teacher's next-token distribution; null unless in the loss",
        later=True,
    ),
    Column("advantage", _FLOATS, "advantage that the update used"),
    Column("token_weight", _FLOATS, "d loss / d logprob: the token's whole influence; < 0 makes it more likely"),
)

RUN_FIELDS = {
    "schema_version": "version of this layout",
    "created": "UTC time of the start",
    "config": "the configuration with every default filled in",
    "config_given": "the recipe and the overrides as the person wrote them",
    "seed": "the seed that every random number is derived from",
    "decisions": "what was measured or chosen once and is used again on resume and replay: dtype, device, threads, "
    "micro_batch_tokens",
    "model": "source, fingerprint, architecture and size of the model that the run started from",
    "teacher": "source, fingerprint, architecture and size of the model that was learned from; null without one",
    "task": "name, number of training and of held-out prompts, and their fingerprints: what a resume must find again",
    "rewards": "sha256 of the source of each reward that a person wrote; null where the source cannot be seen",
    "prompt": "one training prompt as text, as rendered, and as token ids",
    "heldout_prompt": "the first held-out prompt in the same form, which traces watch; null where there is none",
    "source": "only when another program trained: who, and which links of the chain are not on record and why",
    "environment": "versions of toishi, python and packages; machine; commit of the checkout and whether it had changes",
    "seal": "sha256 of the rest of the file",
}

METRIC_FIELDS = {
    "step": "training step, from 1",
    "time": "UTC time at which the step was complete",
    "num_updates": "optimizer updates of the step",
    "<metric>": "a scalar of the step; docs/metrics.md explains each",
    "time/<part>_s": "wall seconds of a part of the step",
    "updates/<index>/<scalar>": "a scalar of one optimizer update: loss, grad_norm, lr, ...",
    "non_finite": "only where it happened: key -> 'nan', 'inf' or '-inf' of the numbers that are null in this line",
    "rollouts_sha256": "sha256 of the step's file in rollouts/",
    "tokens_sha256": "sha256 of the step's file in tokens/",
    "previous": "seal of the line before it, null in the first: a line that is missing breaks the chain",
    "seal": "sha256 of the rest of the line",
}

EVALUATION_FIELDS = {
    "step": "training steps done when it was measured",
    "time": "UTC time",
    "<field>": "name, values with intervals, and the sampling used",
    "previous": "seal of the line before it, null in the first: a line that is missing breaks the chain",
    "seal": "sha256 of the rest of the line",
}

EVENT_FIELDS = {
    "step": "training step, or null before the first",
    "time": "UTC time",
    "kind": "'health', 'resumed', 'checkpoint', 'failure', ...",
    "message": "what happened, in words",
    "<field>": "further evidence",
    "previous": "seal of the line before it, null in the first: a line that is missing breaks the chain",
    "seal": "sha256 of the rest of the line",
}

CHECKPOINT_FILES = {
    "model/": "the weights in safetensors with configuration and tokenizer: loads with plain transformers",
    "state.pt": "optimizer state and data position: loads with torch.load(weights_only=True)",
    "state.json": "schema version, step, where the lines ended, numbers and texts of state.pt, sha256 of all other files",
}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The explicit arrow schema, with each column's description as field metadata.

    >>> arrow_schema(TOKEN_COLUMNS).field("clip").metadata[b"description"].decode()[:6]
    '0 free'
    """
    return pa.schema([column.field for column in columns], metadata={"schema_version": str(SCHEMA_VERSION)})


ROLLOUT_SCHEMA = arrow_schema(ROLLOUT_COLUMNS)
TOKEN_SCHEMA = arrow_schema(TOKEN_COLUMNS)
AFTER_SCHEMA = arrow_schema(AFTER_COLUMNS)
CHANGE_SCHEMA = arrow_schema(CHANGE_COLUMNS)


def step_name(step: int) -> str:
    """
    >>> step_name(123)
    'step_000123'
    """
    return f"step_{step:06d}"


def shard_name(step: int) -> str:
    """
    >>> shard_name(123)
    'step_000123.parquet'
    """
    return f"{step_name(step)}.parquet"


_INTRODUCTION = """# The run folder

One folder holds everything about a run, in formats that other tools open. This page is generated from
`toishi.record.schema`; a test compares the two.

| file | what it holds |
|---|---|
| `run.json` | what the run is and what it ran on |
| `metrics.jsonl` | one line a step; a step exists if and only if its line does |
| `rollouts/step_000012.parquet` | a row a rollout: texts, scores with reasons, reward, baseline, advantage |
| `tokens/step_000012.parquet` | a row a rollout and optimizer update: every token with its numbers |
| `traces/step_000012/` | a traced step: log-probs before and after, the gradient in every matrix, which answer moved which |
| `evaluations.jsonl` | every evaluation, with intervals and the sampling used |
| `events.jsonl` | health warnings, checkpoints, resumes, failures |
| `checkpoints/step_000010/` | model, optimizer, data position |
| `failures/step_000012/` | the answers of a step that was refused (NaN, infinity), in the layout of the two tables |
| `writer.lock` | names the process that is writing the run; gone when none is |
| `undone/001/` | what a resume took back: lines, shards and checkpoints of steps after the one it started from |

Files appear whole (written aside, then renamed), lines are appended in one piece. After a kill the last line of a `.jsonl`
file may be cut: readers leave it out. Rows join on (step, group, member). A missing number is null, never 0.
`sha256` seals find accidents and careless edits (`toishi audit RUN`); they are no signature. Each line names the seal of
the line before it and each checkpoint the last seal of every file, so a missing line is found too.
"""


def schema_markdown() -> str:
    """docs/run-folder.md."""
    sections = (
        ("run.json", "field", RUN_FIELDS),
        ("metrics.jsonl", "key", METRIC_FIELDS),
        ("rollouts/", "column", _described(ROLLOUT_COLUMNS)),
        ("tokens/", "column", _described(TOKEN_COLUMNS)),
        ("traces/step_000012/trace.json", "field", trace_fields()),
        ("traces/step_000012/after.parquet", "column", _described(AFTER_COLUMNS)),
        ("traces/step_000012/changes.parquet", "column", _described(CHANGE_COLUMNS)),
        ("traces/step_000012/influence.json", "field", influence_fields()),
        ("traces/step_000012/influence.safetensors", "array", ARRAYS),
        ("evaluations.jsonl", "key", EVALUATION_FIELDS),
        ("events.jsonl", "key", EVENT_FIELDS),
        ("checkpoints/", "file", CHECKPOINT_FILES),
    )
    return "\n".join([_INTRODUCTION, *(_section(*section) for section in sections)])


def _described(columns: tuple[Column, ...]) -> dict[str, str]:
    return {f"{column.name}` `{_short(column.type)}": column.description for column in columns}


def _short(kind: pa.DataType) -> str:
    """
    >>> _short(pa.list_(pa.float64()))
    'list<double>'
    """
    if pa.types.is_list(kind):
        return f"list<{_short(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {_short(field.type)}" for field in kind) + ">"
    return str(kind)


def _section(title: str, what: str, descriptions: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {text} |" for name, text in descriptions.items()]
    return "\n".join([f"## {title}", "", f"| {what} | meaning |", "|---|---|", *rows, ""])

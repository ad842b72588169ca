"""Files as TRL, verl, NeMo-RL and prime-rl write them, read into run folders: what they hold, what is named as missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toishi.errors import ConfigError, DataError, RecordError
from toishi.explanation.audit import audit
from toishi.explanation.chain.build import explain_chain
from toishi.explanation.overview import overview
from toishi.explanation.step import step_report
from toishi.interop import import_run
from toishi.loop import resume
from toishi.record import Run
from toishi.recorded import recorded_config
from toishi.replay.plan import plan_replay

LATER = {"weights", "gradient", "change", "effect", "sft"}


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl_rows(step: int) -> list[dict[str, Any]]:
    return [
        {"input": prompt, "output": f"so {score}", "gts": "2", "score": score, "step": step, "acc": bool(score)}
        for prompt in ("1+1=", "2+0=")
        for score in (1.0, 0.0)
    ]


def nemo_row(reward: float, advantage: float) -> dict[str, Any]:
    """A batch of one: every field is a list of one. Two tokens of prompt, two of answer, one of padding."""
    return {
        "content": [["1+1=", "2"]],
        "rewards": [reward],
        "input_lengths": [4],
        "token_ids": [[5, 6, 7, 8, 0]],
        "token_loss_mask": [[0, 0, 1, 1, 0]],
        "sample_loss_mask": [1.0],
        "advantages": [[advantage] * 5],
        "generation_logprobs": [[0.0, 0.0, -1.0, -0.5, 0.0]],
        "prev_logprobs": [[0.0, 0.0, -1.125, -0.25, 0.0]],
        "idx": 0,
    }


def prime_row(reward: float, step: int) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "step": step,
        "export_step": step,
        "token_ids": [5, 6, 7, 8],
        "loss_mask": [False, False, True, True],
        "advantages": [None, None, reward - 0.5, reward - 0.5],
        "rewards": [reward] * 4,
        "inference_logprobs": [0.0, 0.0, -1.0, -0.5],
        "trainer_logprobs": [0.0, 0.0, -1.125, -0.5],
        "entropy": [0.0, 0.0, 1.0, 2.0],
        "importance_ratio": [None, None, 0.875, 1.0],
        "env_name": "sums",
    }


def opened(out: Path, missing: set[str]) -> Run:
    """The run, after everything that looks at one has looked at it."""
    run = Run.open(out)
    report = audit(run)
    assert report.ok, report.findings
    assert set(report.missing) == missing
    assert set(overview(run).missing) == missing
    for step in run.steps:
        step_report(run, step)
        chain = explain_chain(run, step)
        assert chain.broken is None
        assert set(chain.absent) == missing
        assert all(getattr(chain, name) is None for name in LATER)
    return run


def test_verl(tmp_path: Path) -> None:
    for step in (1, 2):
        lines(tmp_path / "rollouts" / f"{step}.jsonl", verl_rows(step))
    assert import_run("verl", tmp_path / "rollouts", tmp_path / "run", version="0.9.1") == 2
    run = opened(tmp_path / "run", {"tokens", "baseline", "advantage", *LATER})
    first, second = run.step(2).groups
    assert [group.prompt.text for group in (first, second)] == ["1+1=", "2+0="]
    assert first.rewards == (1.0, 0.0)
    assert (first.prompt.gold, first.prompt.columns) == ("2", {"acc": True})
    assert (first.baseline, first.rollouts[0].advantage) == (None, None)
    view = step_report(run, 1)
    assert view.formula == "advantage: The file holds no advantages, group means or spreads."
    assert (view.groups[0].members[0].num_tokens, view.groups[0].members[0].status) == (None, "unknown")
    assert "update" not in view.sentence
    assert explain_chain(run, 1).headlines == ("2 answers were scored. What advantages came of it is not on record.",)
    assert run.run["source"]["version"] == "0.9.1"


def test_trl_completions(tmp_path: Path) -> None:
    """The advantages are TRL's formula by hand: rewards 1 and 0, mean .5, sample std sqrt(.5), + 1e-4."""
    high = 0.5 / (0.5**0.5 + 1e-4)
    table = {
        "step": [7, 7],
        "prompt": [[{"role": "user", "content": "1+1="}]] * 2,
        "completion": [[{"role": "assistant", "content": text}] for text in ("2", "3")],
        "right": [1.0, 0.0],
        "short": [None, 0.5],
        "advantage": [high, -high],
    }
    (tmp_path / "completions").mkdir()
    pq.write_table(pa.table(table), tmp_path / "completions" / "completions_00007.parquet")
    weights = {"short": 0.0}
    import_run("trl", tmp_path / "completions", tmp_path / "plain", weights=weights)
    run = opened(tmp_path / "plain", {"tokens", "baseline", "advantage", *LATER})
    one, other = run.step(1).groups[0].rollouts
    assert run.line(1)["source/step"] == 7
    assert one.prompt.messages == ({"role": "user", "content": "1+1="},)
    assert [(score.reward, score.value, score.status) for score in one.scores] == [
        ("right", 1.0, "ok"),
        ("short", None, "abstained"),
    ]
    assert (one.reward, other.reward, one.completion.text) == (1.0, 0.0, "2")
    assert one.advantage == high
    import_run("trl", tmp_path / "completions", tmp_path / "checked", algorithm_name="grpo", weights=weights)
    checked = opened(tmp_path / "checked", {"tokens", *LATER})
    assert checked.step(1).groups[0].baseline is not None
    import_run("trl", tmp_path / "completions", tmp_path / "wrong", algorithm_name="dr_grpo", weights=weights)
    assert [finding.what for finding in audit(tmp_path / "wrong").findings] == ["advantage", "advantage"]


def test_nemo_rl(tmp_path: Path) -> None:
    lines(tmp_path / "logs" / "train_data_step3.jsonl", [nemo_row(1.0, 0.5), nemo_row(0.0, -0.5)])
    import_run("nemo-rl", tmp_path / "logs", tmp_path / "run", algorithm_name="dr_grpo")
    run = opened(tmp_path / "run", LATER)
    one, _ = run.step(1).groups[0].rollouts
    assert (one.prompt.token_ids, one.completion.token_ids, one.completion.loss_mask) == ((5, 6), (7, 8), (1, 1))
    assert (one.completion.sampled_logprobs, one.advantage, one.completion.text) == ((-1.0, -0.5), 0.5, "2")
    (stream, _) = run.step(1).updates[0].streams
    assert (stream.old_logprob, stream.logprob, stream.token_weight) == ((-1.125, -0.25), (), ())
    assert step_report(run, 1).groups[0].members[0].weight_sum is None


def test_prime_rl(tmp_path: Path) -> None:
    lines(tmp_path / "token_exports" / "step_0" / "rank_0.jsonl", [prime_row(1.0, 0), prime_row(0.0, 0)])
    import_run("prime-rl", tmp_path, tmp_path / "run", decode=lambda ids: "".join(chr(60 + one) for one in ids))
    run = opened(tmp_path / "run", {"baseline", "advantage", *LATER})
    one, other = run.step(1).groups[0].rollouts
    assert (one.prompt.text, one.completion.text, one.reward, other.advantage) == ("AB", "CD", 1.0, -0.5)
    (stream, _) = run.step(1).updates[0].streams
    assert (stream.logprob, stream.entropy, stream.ratio) == ((-1.125, -0.5), (1.0, 2.0), (0.875, 1.0))
    assert one.completion.sampled_logprobs == (-1.0, -0.5)


def test_a_cut_last_line_is_left_out_and_another_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "1.jsonl", verl_rows(1))
    path.write_text(path.read_text() + '{"input": "1+')
    import_run("verl", path, tmp_path / "run")
    assert len(Run.open(tmp_path / "run").step(1).rollouts) == 4
    path.write_text("{oops\n" + path.read_text())
    with pytest.raises(DataError, match="line 1"):
        import_run("verl", path, tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "row", "error", "said"),
    [
        ("verk", {}, ConfigError, "did you mean 'verl'"),
        ("verl", {"prompt": "?"}, DataError, "input, output, score, step is missing"),
        ("verl", {"input": "?", "output": "!", "score": "good", "step": 1}, DataError, "expected a number or null, got 'good'"),
        ("prime-rl", {"step": 1, "token_ids": [1], "loss_mask": [], "advantages": []}, DataError, "1 token_ids and 0 values"),
    ],
)
def test_what_is_not_of_the_format_is_refused(
    name: str, row: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        import_run(name, lines(tmp_path / "1.jsonl", [row]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_an_unknown_reward_and_a_taken_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found none"):
        import_run("verl", tmp_path, tmp_path / "run")
    path = lines(tmp_path / "1.jsonl", verl_rows(1))
    with pytest.raises(ConfigError, match="no reward 'scor' in these files; did you mean 'score'"):
        import_run("verl", path, tmp_path / "run", weights={"scor": 2.0})
    import_run("verl", path, tmp_path / "run")
    with pytest.raises(RecordError, match="already holds a run"):
        import_run("verl", path, tmp_path / "run")


def test_no_step_of_an_imported_run_can_be_done_again(tmp_path: Path) -> None:
    lines(tmp_path / "rollouts" / "1.jsonl", verl_rows(1))
    folder = tmp_path / "run"
    import_run("verl", tmp_path / "rollouts", folder)
    run = Run.open(folder)
    for again in (lambda: plan_replay(run, 1), lambda: recorded_config(run), lambda: resume(folder)):
        with pytest.raises(RecordError, match="imported from verl"):
            again()

"""The benchmark with a tiny model: every part runs, the same work reaches every system, and what fails is said."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.acceptance import bars, training_share
from benchmarks.charts import chart
from benchmarks.growth import fit, points
from benchmarks.limits import Product, Products, decoding_flop, layer_weights, products_rate, training_flop
from benchmarks.report import BEGINS, ENDS, markdown, with_results
from benchmarks.shapes import SHAPES, Shape, even
from benchmarks.systems import ON_GPU, PEERS, SYSTEMS, PeerMissing
from torch import nn

from benchmarks import bench, gpu


def test_the_quick_table_has_toishi_and_trl_with_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_TRL_PYTHON", sys.executable)
    file = tmp_path / "found.json"
    code = bench.main(
        ["--quick", "--shapes", "V", "--systems", "toishi,trl", "--repeats", "1", "--threads", "1", "--json", str(file)]
    )
    found = json.loads(file.read_text(encoding="utf-8"))
    rows = {row["system"]: row for row in found["tables"]["V"]["rows"]}
    assert code == 0, [row.get("error") for row in rows.values()]
    for row in rows.values():
        assert row["tokens"] == sum(found["tables"]["V"]["shape"]["lengths_B"])
        assert 0 < row["generation_s"] < row["step_s"]
        assert row["peak_bytes"] > 2**27
    share = training_share(found["tables"]["V"], rows["toishi"])
    assert share is not None
    assert 0 < share < 1
    assert "### V: 2 prompts" in markdown(found)


def test_a_peer_that_is_not_there_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_TRL_PYTHON", "/nowhere/python")
    with pytest.raises(PeerMissing, match="/nowhere/python cannot be run"):
        SYSTEMS["trl"].interpreter()
    monkeypatch.setenv("BENCH_VLLM_PYTHON", sys.executable)
    with pytest.raises(PeerMissing, match="vllm is not installed"):
        replace(PEERS["vllm"], is_present="no_such_vllm").interpreter("vllm")
    with pytest.raises(PeerMissing, match="no engine that calls vLLM"):
        ON_GPU["toishi-vllm"].interpreter()


def test_shapes_are_what_the_page_says() -> None:
    short, long, uneven = SHAPES["S"], SHAPES["L"], SHAPES["V"]
    assert (sum(short.prompt_lengths) / 4, sum(long.prompt_lengths) / 4) == (37, 350)
    assert set(short.lengths_B) == set(long.lengths_B) == {64}
    assert sum(8 <= length <= 32 for length in uneven.lengths_B) == 26  # 80% of 32, rounded
    assert max(uneven.lengths_B) == uneven.max_new_tokens == 256
    assert long.fed_tokens == 4 * 350 + 32 * 63
    assert Shape.from_json(json.loads(json.dumps(uneven.as_json()))) == uneven
    assert short.prompts(100) == short.prompts(100)


def test_useful_work_is_counted_by_hand() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(3, 5, bias=False), nn.Linear(5, 7, bias=False)

        def get_output_embeddings(self) -> nn.Module:
            return self.head

    module = Tied()
    assert layer_weights(module) == 15
    assert training_flop(module, fed_tokens=10, trained_tokens=2) == 6 * (15 * 10 + 35 * 2)
    assert decoding_flop(module, rows=4, tokens=3) == 2 * (15 + 35) * 4 * 3


def test_products_are_noted_forward_and_backward_with_their_layout() -> None:
    weight, inputs = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    with Products() as seen:
        torch.autograd.backward(nn.functional.linear(inputs, weight).sum())
    assert sum(seen.counts.values()) == 3
    assert sorted((product.M, product.K, product.N) for product in seen.counts) in (
        [(4, 3, 5), (4, 5, 3), (5, 4, 3)],
        [(3, 4, 5), (4, 3, 5), (4, 5, 3)],
    )
    assert all(product.flop == 2 * 3 * 4 * 5 for product in seen.counts)
    assert Product(4, 3, 5, False, True, torch.float32) in seen.counts
    assert products_rate(seen.counts, torch.device("cpu"), repeats=1) > 0


def test_a_bar_is_passed_failed_or_not_measured() -> None:
    def row(system: str, step_s: float) -> dict[str, object]:
        return {"system": system, "step_s": step_s, "generation_s": step_s / 2, "training_s": step_s / 2, "peak_bytes": step_s}

    training = {"training_flop": 50.0, "own_shapes_flops": 100.0}
    rows = [row("toishi", 2.0), row("trl", 5.0), row("trl-plain", 4.0)]
    result = {"tables": {"S": {"rows": rows, "limits": {"training": training}}}}
    found = {bar.what: bar for bar in bars(result)}
    assert found["whole step at S: times faster than TRL as it comes"].is_met is True  # 2.5 >= 2.3
    assert found["whole step at S: times faster than the fastest TRL row of the same precision"].is_met is False  # 2.0
    assert found["peak memory of the process at S, as a share of TRL's"].value == pytest.approx(0.4)
    assert found["training pass at S, share of what products of its shapes reach"].value == pytest.approx(0.5)  # 50 / 1 s / 100
    assert found["whole step at L: times faster than TRL as it comes"].is_met is None


def test_growth_tells_a_shared_prompt_from_one_a_row() -> None:
    def curve(shared: bool) -> list[dict[str, float]]:
        cost = [(G, 350 + G * 64 if shared else G * (350 + 64)) for G in (2, 4, 8, 16, 32)]
        return [{"x": G, "prompt": 350, "new": 64, "step_s": tokens / 100} for G, tokens in cost]

    assert fit(curve(True))["shared"]["r_squared"] == pytest.approx(1)
    assert fit(curve(True))["separate"]["r_squared"] < 0.95
    assert fit(curve(False))["measured_ratio"] == pytest.approx(16)
    assert {point.curve for point in points()} == {
        "group size", "prompt tokens", "new tokens", "vocabulary", "weights in layers, millions",
    }  # fmt: skip


def test_the_page_keeps_its_words_and_gets_its_results() -> None:
    page = bench.PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGINS)[0], page.split(ENDS)[1]
    again = with_results(page, {})
    assert again.startswith(before)
    assert again.endswith(after)


def test_without_a_gpu_the_script_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    given = Namespace(**vars(bench.options().parse_args(["--systems", "verl"])))
    with pytest.raises(SystemExit, match="unknown system 'verl'; expected one of: toishi, trl"):
        bench.run(given, SYSTEMS, "cpu")


def test_a_chart_is_svg_with_a_point_each() -> None:
    drawn = chart("cost", "G", "s", {"toishi": [(2, 0.5), (32, 8.0)], "a < b": [(2, 1.0)]})
    assert drawn.count("<circle") == 3
    assert "a &lt; b" in drawn
    assert even("x", prompt_lengths=(3,), group_size=2, new=4).new_tokens == 8

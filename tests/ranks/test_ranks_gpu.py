"""Ranks on CUDA devices; two processes share one if there is only one.

python -m pytest -m gpu tests/ranks
"""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.own_data import write_blobs
from tests.ranks.started import ended, printed, start, train, train_interrupted
from tests.ranks.test_group import METHOD, check_first_step, made, network, small_task
from tests.ranks.test_runs_on_ranks import FLAGS, data, records, weights
from vmt import methods
from vmt.engine.bench import workload
from vmt.engine.engine import Engine, captured_graph, make_engine
from vmt.methods.nouns import Adam
from vmt.ranks.group import ALONE, Ranks, join_ranks
from vmt.train.config import Config
from vmt.train.loop import train as train_method

pytestmark = pytest.mark.gpu
STEPS = 5


def replayed(ranks: Ranks, compile: bool) -> dict[str, Tensor]:
    """The state after some steps as one CUDA graph."""
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    # With Adam's own ε, a gradient that is only a rounding error would become a step of either sign.
    method = methods.vmt(lambda_t=0.06, optimiser=Adam(eps=1e-2))
    work = workload((16, 16, 16), False, torch.device("cuda"), 16, samples=2_000, side=16, method=method)
    context = replace(work.context, ranks=ranks)
    run = Engine("", "", captured_graph("", print, compile), work.state, context, work.seed)
    run.run(work.method.phases[0], 0, STEPS, 0)
    assert run.name == f"captured ({'compiled' if compile else 'eager'})", run.why
    return {name: tensor.cpu() for name, tensor in {**work.state.tensors(), **run.metrics()}.items()}


def captured_with_and_without_a_group(compile: bool) -> None:
    with join_ranks("cuda") as ranks:
        assert ranks.is_captured, "the group is not NCCL's"
        alone, grouped = replayed(ALONE, compile), replayed(ranks, compile)
    for name, tensor in alone.items():
        if compile:  # the compiler fuses other operations where the exchange stands between them
            tolerance = 1e-3 if "gradient norm" in name else 2e-4
            assert torch.allclose(tensor.double(), grouped[name].double(), rtol=tolerance, atol=tolerance), name
        else:
            assert torch.equal(tensor, grouped[name]), name


@pytest.mark.parametrize("compile", [False, True])
def test_nccl_captured_with_one_rank_equals_no_group(compile: bool, tmp_path: Path) -> None:
    processes = start(captured_with_and_without_a_group, compile, count=1, log=tmp_path)
    assert ended(processes) == [0], printed(tmp_path, 0)


def weights_on_a_gpu(folder: Path) -> None:
    config = Config(batch_size=6, device="cuda", validate_samples=0, precision="float32")
    with join_ranks("cuda") as ranks:
        shared = torch.cuda.device_count() == 1
        assert ranks.is_captured != shared, "two processes on one GPU exchange over gloo, outside a CUDA graph"
        assert make_engine("auto", *made(ranks, device="cuda"), 0, 200).name == ("eager" if shared else "captured")
        outcome = train_method(small_task(), METHOD, network, config, ranks=ranks)
        torch.save(
            {name: tensor.cpu() for name, tensor in outcome.network.state_dict().items()}, folder / str(ranks.rank)
        )


def test_gradients_of_two_processes_are_the_mean_of_two_single_steps(tmp_path: Path) -> None:
    check_first_step(tmp_path, "cuda")


def test_two_processes_on_gpus_have_the_same_weights(tmp_path: Path) -> None:
    assert ended(start(weights_on_a_gpu, tmp_path, log=tmp_path)) == [0, 0], printed(tmp_path, 0)
    first, second = (torch.load(tmp_path / str(rank)) for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_killed_process_ends_the_other_and_the_resumed_run_is_the_same(tmp_path: Path) -> None:
    write_blobs(tmp_path)
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    cuda = ["--device", "cuda", "--engine", "eager"]
    assert ended(start(train, *data(tmp_path), "--out", unbroken, *FLAGS, *cuda, log=tmp_path)) == [0, 0]
    ranks = start(train_interrupted, 1, 25, ["SIGKILL"], *data(tmp_path), "--out", run, *FLAGS, *cuda, log=tmp_path)
    assert ended(ranks) == [1, -signal.SIGKILL]
    assert "rank 1 of 2" in printed(tmp_path, 0)
    assert ended(start(train, "--resume", run, log=tmp_path)) == [0, 0]
    assert weights(run) == weights(unbroken)
    assert records(run) == records(unbroken)

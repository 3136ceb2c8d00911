"""Training leaves alone what belongs to the caller, and does not depend on it: generators, the default type."""

import pytest
import torch

from vmt import methods
from vmt.nets import mlp
from vmt.state import build_state


def test_building_networks_seeds_no_generator_but_those_that_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.manual_seed does to GPUs can be seen without one; where there is one, see tests/test_engine_gpu.py."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    build_state(methods.vmt(), lambda: mlp((2,), 3), (2,), 0, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    assert not seeded

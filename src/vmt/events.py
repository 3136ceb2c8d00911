"""What happens between steps."""

import torch

from vmt.method import CopyRole, Phase
from vmt.state import State


def run_events(phase: Phase, state: State, step: int) -> None:
    """Run what is due before step ``step`` of a phase (its first is 0)."""
    for event in phase.events:
        if step % event.every == 0:
            copy_role(event.action, state)


@torch.no_grad()
def copy_role(action: CopyRole, state: State) -> None:
    """Weights and running statistics, in place: captured graphs hold on to the tensors."""
    of, into = state.roles[action.of], state.roles[action.into]
    torch._foreach_copy_(list(into.parameters()), list(of.parameters()))
    if buffers := list(into.buffers()):
        torch._foreach_copy_(buffers, list(of.buffers()))

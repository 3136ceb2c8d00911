"""What happens between steps."""

from collections.abc import Iterator

import torch

from vmt.method import CopyRole, Method, Phase
from vmt.state import State


def run_events(phase: Phase, state: State, step: int) -> None:
    """Run what is due before step ``step`` of a phase (its first is 0)."""
    for event in phase.events:
        if step % event.every == 0:
            copy_role(event.action, state)


def never_refreshed(method: Method) -> Iterator[str]:
    """A sentence for each event that happens only once, because its phase is over before it is due again."""
    for phase in method.phases:
        for event in phase.events:
            if event.every >= phase.iterations:
                yield (
                    f"{phase.name} has {phase.iterations} iterations and an interval of {event.every}: it keeps the "
                    f"{event.action.into} that it begins with to its end."
                )


@torch.no_grad()
def copy_role(action: CopyRole, state: State) -> None:
    """Weights and running statistics, in place: captured graphs hold on to the tensors."""
    of, into = state.roles[action.of], state.roles[action.into]
    torch._foreach_copy_(list(into.parameters()), list(of.parameters()))
    if buffers := list(into.buffers()):
        torch._foreach_copy_(buffers, list(of.buffers()))

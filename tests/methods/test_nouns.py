"""Methods of other kinds than the package's can be written with the nouns, and learn; mistakes in them are named."""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.examples_of_methods import maximum_classifier_discrepancy, mean_teacher, two_networks
from vmt import losses, methods
from vmt.data import Domain
from vmt.errors import InputError
from vmt.methods.nodes import Batch, Joined, Labels, Mix, Pairs, View
from vmt.methods.nouns import (
    Adam,
    Average,
    Copy,
    CopyRole,
    Discriminator,
    Event,
    Method,
    Network,
    Phase,
    Role,
    Term,
    Update,
)
from vmt.nets import mlp
from vmt.step.draws import SeededDraws, seed_layers
from vmt.step.iteration import StepContext, step
from vmt.step.state import State, build_state
from vmt.train.loop import run_events

pytestmark = pytest.mark.usefixtures("one_thread")

CLASSES, TURNED, SEED, CPU = 3, 45.0, 1, torch.device("cpu")


def ring(n: int, degrees: float, seed: int) -> Domain:
    """Three blobs on a circle. Turned by nearly half their distance, some lie beyond the source's boundaries."""
    random = np.random.RandomState(seed)
    y = random.randint(0, CLASSES, n)
    angle = 2 * math.pi * y / CLASSES + math.radians(degrees)
    x = 2 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.3 * random.randn(n, 2)
    return Domain(torch.from_numpy(x).float(), torch.from_numpy(y), f"ring at {degrees}°")


def trained(method: Method, seed: int = SEED) -> State:
    streams = {"source": ring(300, 0, SEED), "target": ring(300, TURNED, SEED + 1).without_labels()}
    state = build_state(method, lambda: mlp((2,), CLASSES, width=16), (2,), seed, CPU)
    weights = {term.weight for update in method.updates() for term in update.terms if callable(term.weight)}
    scalars = {schedule: torch.zeros(()) for schedule in weights}
    context = StepContext(streams, lambda x: x, dict.fromkeys(streams, 48), SeededDraws(seed, state.step), {}, scalars)
    for phase in method.phases:
        for i in range(phase.iterations):
            for schedule, value in scalars.items():
                value.fill_(schedule(i / phase.iterations))
            run_events(phase, state, i)
            seed_layers(seed, int(state.step), CPU)
            step(phase, state, context)
    return state


@torch.no_grad()
def accuracy(method: Method, state: State) -> float:
    test = ring(500, TURNED, SEED + 2)
    x = test.x
    for role in method.predictor:
        x = list(state.roles[role].eval()(x).values())[-1]
    assert test.y is not None
    return float((x.argmax(1) == test.y).float().mean())


@pytest.fixture(scope="module")
def source_only() -> float:
    method = methods.source_only(Adam(lr=1e-2, beta1=0.9), iterations=200)
    # A slow average needs more steps than these, so the classifier itself predicts.
    method = replace(method, predictor=("classifier",))
    return float(np.mean([accuracy(method, trained(method, seed)) for seed in range(4)]))


@pytest.mark.parametrize("build", [mean_teacher, maximum_classifier_discrepancy, two_networks])
def test_a_method_of_another_kind_learns_the_target(build: Callable[[], Method], source_only: float) -> None:
    method = build()
    assert accuracy(method, trained(method)) > max(0.95, source_only + 0.03)
    lines, _ = inspect.getsourcelines(build)
    assert len(lines) < 40


def test_an_update_changes_the_roles_it_optimises_and_no_others() -> None:
    """MCD's three updates, one at a time."""
    method = maximum_classifier_discrepancy()
    phase = method.phases[0]
    streams = {"source": ring(60, 0, 0), "target": ring(60, TURNED, 1)}
    for update in phase.updates:
        state = build_state(method, lambda: mlp((2,), CLASSES, width=8), (2,), SEED, CPU)
        context = StepContext(streams, lambda x: x, dict.fromkeys(streams, 16), SeededDraws(0, state.step), {}, {})
        before = {r: [p.detach().clone() for p in m.parameters()] for r, m in state.roles.items()}
        step(replace(phase, updates=(update,)), state, context)
        changed = {
            role
            for role, module in state.roles.items()
            if any(not torch.equal(p, old) for p, old in zip(module.parameters(), before[role], strict=True))
        }
        assert changed == set(update.optimises)


def test_updates_on_the_same_batch_draw_it_once_and_repeats_count() -> None:
    method = maximum_classifier_discrepancy()
    state = build_state(method, lambda: mlp((2,), CLASSES, width=8), (2,), SEED, CPU)
    asked: list[str] = []

    class Watched(SeededDraws):
        def choice(self, name: str, population: int, n: int) -> torch.Tensor:
            asked.append(name)
            return super().choice(name, population, n)

    streams = {"source": ring(60, 0, 0), "target": ring(60, TURNED, 1)}
    context = StepContext(streams, lambda x: x, dict.fromkeys(streams, 16), Watched(0, state.step), {}, {})
    step(method.phases[0], state, context)
    assert set(asked) == {"all/source/indices", "all/target/indices"}
    assert float(state.optimisers["encoder/encoder"].t) == 2
    assert float(state.optimisers["heads/head a"].t) == 1


def test_roles_are_initialised_apart_and_reproducibly() -> None:
    method = two_networks()
    one, other = (build_state(method, lambda: mlp((2,), CLASSES), (2,), SEED, CPU) for _ in range(2))
    first = [next(iter(state.roles["a"].parameters())) for state in (one, other)]
    assert torch.equal(*first)
    assert not torch.equal(first[0], next(iter(one.roles["b"].parameters())))
    assert {"classifiers/a", "classifiers/b"} <= one.optimisers.keys()


def agreement(loss: Callable[..., torch.Tensor], stream: str = "target") -> Method:
    """One network, and a user-defined term."""
    logits = View("classifier", Batch(stream), statistics=True).logits
    update = Update("classifier", ("classifier",), (Term("own", loss, (logits,)),))
    return Method("own", {"classifier": Network()}, (Phase("own", (update,), iterations=2),), ("classifier",))


def test_mistakes_in_a_user_defined_method_are_named() -> None:
    view, per_example = View("classifier", Batch("target")), losses.conditional_entropy
    with pytest.raises(InputError, match=r"'own'.*View"):
        Term("own", per_example, (view,))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'own'.*ndarray"):
        Term("own", per_example, (np.zeros(3),))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'own'.*Tap"):
        Term("own", per_example, view.logits)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"weight.*'own'.*'1'"):
        Term("own", per_example, (view.logits,), "1")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'own'.*\(3,\)"):
        trained(agreement(torch.square))
    with pytest.raises(InputError, match="'tarjet'"):
        trained(agreement(per_example, "tarjet"))
    with pytest.raises(InputError, match=r"terms.*'u'.*list"):
        Update("u", ("classifier",), [Term("own", per_example, (view.logits,))])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'u'"):
        Update("u", (), ())
    with pytest.raises(InputError, match=r"'u'.*0"):
        Update("u", ("classifier",), (), repeats=0)
    assert trained(agreement(per_example)).step == 2


def own(*updates: Update, **roles: Role) -> Method:
    made = {"classifier": Network(), **roles}
    return Method("own", made, (Phase("p", updates, iterations=1),), ("classifier",))


def test_updates_and_roles_that_do_not_fit_together_are_named() -> None:
    term = Term("L_c", losses.conditional_entropy, (View("classifier", Batch("target"), statistics=True).logits,))
    update = Update("u", ("classifier",), (term,))
    with pytest.raises(InputError, match=r"'p'.*'u'"):  # two updates of one name would see the same batches
        own(update, update)
    with pytest.raises(InputError, match=r"'u'.*'w'"):
        own(replace(update, batch="w"), replace(update, name="w"))
    with pytest.raises(InputError, match=r"'ema'.*'teacher'"):
        own(update, ema=Copy("teacher"), teacher=Copy("classifier"))
    with pytest.raises(InputError, match=r"'u'.*'ema'"):
        own(replace(update, optimises=("ema",)), ema=Copy("classifier"))
    with pytest.raises(InputError, match=r"'u'.*'d'"):
        trained(own(replace(update, optimises=("classifier", "d")), d=Discriminator()))
    with pytest.raises(InputError, match="'classifier'"):
        build_state(own(update), lambda: mlp((2,), CLASSES).requires_grad_(False), (2,), 0, CPU)


@pytest.mark.parametrize(
    "update",
    [
        Update("u", ("student",), ()),
        Update("u", ("classifier",), (), averages=(Average("classifier", into="student"),)),
        Update("u", ("classifier",), (), keep=(View("student", Batch("source")),)),
    ],
    ids=["optimises", "averages", "keep"],
)
def test_a_method_refuses_an_update_with_a_role_it_does_not_have(update: Update) -> None:
    with pytest.raises(InputError, match=r"'own'.*'u'.*'student'"):
        own(update)


def test_a_method_refuses_events_and_predictors_with_a_role_it_does_not_have() -> None:
    event = Event(5, CopyRole("classifier", into="teacher"))
    with pytest.raises(InputError, match=r"'p'.*'teacher'"):
        Method("own", {"classifier": Network()}, (Phase("p", (), (event,)),), ("classifier",))
    with pytest.raises(InputError, match="'best'"):
        Method("own", {"classifier": Network()}, (), predictor=("best",))


def test_two_phases_of_one_name_are_refused() -> None:
    """The notes, models and figures of a run are kept by the names of its phases."""
    phase = own().phases[0]
    with pytest.raises(InputError, match=r"'own'.*'p'"):
        replace(own(), phases=(phase, phase))


def test_pairs_of_one_batch_are_the_same_wherever_they_are_read() -> None:
    """The mixed input and the mixed label use the same λ and partners, because they describe the same draw."""
    source, target = Batch("source"), Batch("target")
    assert Mix(source, Pairs(source)) == Mix(source, Pairs(source))
    assert Pairs(source) != Pairs(target)
    assert hash(Labels(source)) == hash(Labels(source))


def test_labels_below_other_nodes_are_seen() -> None:
    """A method is given the labels of a stream only if it reads them."""
    both = Joined((Labels(Batch("source")), Labels(Batch("target"))))
    logits = View("classifier", Joined((Batch("source"), Batch("target")))).logits
    method = own(Update("u", ("classifier",), (Term("L_y", losses.source_cross_entropy, (logits, both)),)))
    assert method.reads_labels_of("target")
    assert not method.reads_labels_of("labelled target")

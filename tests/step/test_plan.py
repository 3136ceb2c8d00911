"""The plan of an update: few network calls, shared by equal views, in an order in which inputs are ready."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.small import build, context
from vmt import losses, methods
from vmt.errors import InputError
from vmt.methods.nodes import Parameter, View
from vmt.methods.nouns import Method, Phase, Term, Update
from vmt.methods.systems import SOURCE, TARGET
from vmt.nets.networks import Staged
from vmt.step.iteration import step
from vmt.step.plan import Pass, batches_of, depth, plan

pytestmark = pytest.mark.usefixtures("one_thread")

TAPS = {
    "classifier": ("features", "hidden", "logits"),
    "ema": ("features", "hidden", "logits"),
    "teacher": ("features", "hidden", "logits"),
    "discriminator": ("domain",),
}


def planned(method: Method, update: str = "classifier", phase: int = 0) -> tuple[Pass, ...]:
    return plan(next(u for u in method.phases[phase].updates if u.name == update), TAPS)


def calls(passes: tuple[Pass, ...]) -> list[tuple[str, int, str, str]]:
    return [(each.role, len(each.views), each.entry, each.exit) for each in passes]


def test_vmt_makes_three_classifier_calls_and_one_of_the_discriminator() -> None:
    found = calls(planned(methods.vmt()))
    assert sorted(found) == sorted(
        [
            ("classifier", 4, "input", "logits"),  # source, target, mixed source, mixed target
            ("classifier", 2, "input", "logits"),  # near source, near target
            ("classifier", 2, "input", "logits"),  # attacked source, attacked target
            ("discriminator", 2, "input", "domain"),
        ]
    )


def test_the_discriminator_update_runs_only_the_encoder() -> None:
    assert calls(planned(methods.vmt(), "discriminator")) == [
        ("classifier", 2, "input", "features"),
        ("discriminator", 2, "input", "domain"),
    ]


def test_the_hidden_variant_enters_at_the_last_dense_layer() -> None:
    passes = planned(methods.vmt(mix="hidden", vat=False))
    (label,) = (each for each in passes if each.entry == "hidden")
    assert (label.role, len(label.views), label.exit, label.gradient) == ("classifier", 2, "logits", False)
    assert depth(label.views[0]) == 1
    assert sum(each.role == "classifier" for each in passes) == 2


def test_only_clean_target_passes_update_statistics() -> None:
    for method in (methods.vmt(), methods.vmt(mix="hidden"), methods.vada(), methods.dann()):
        for update in method.phases[0].updates:
            updating = [v for each in plan(update, TAPS) for v in each.views if v.statistics]
            assert [v.input for v in updating] == [TARGET]
            assert [v.role for v in updating] == ["classifier"]


def test_dirt_t_updates_statistics_with_one_of_its_two_batches_and_its_teacher_evaluates() -> None:
    passes = planned(methods.dirt_t(methods.vmt()), phase=1)
    updating = [v for each in passes for v in each.views if v.statistics]
    assert [v.input for v in updating] == [TARGET]
    (teacher,) = (each for each in passes if each.role == "teacher")
    assert not teacher.training
    assert not any(each.role == "discriminator" for each in passes)
    assert all(each.training for each in passes if each.role == "classifier")


def test_equal_views_are_one_pass_and_a_draw_makes_two() -> None:
    def update(*views: View) -> Update:
        return Update("u", ("classifier",), tuple(Term(str(i), sum, (v.logits,)) for i, v in enumerate(views)))

    same = View("classifier", SOURCE), View("classifier", SOURCE)
    apart = View("classifier", SOURCE), View("classifier", SOURCE, draw="again")
    assert calls(plan(update(*same), TAPS)) == [("classifier", 1, "input", "logits")]
    assert calls(plan(update(*apart), TAPS)) == [("classifier", 2, "input", "logits")]


def test_a_view_runs_up_to_the_last_tap_that_is_read() -> None:
    view = View("classifier", SOURCE)
    terms = tuple(Term(tap, sum, (view.tap(tap),)) for tap in ("hidden", "features"))
    assert calls(plan(Update("u", ("classifier",), terms), TAPS)) == [("classifier", 1, "input", "hidden")]


def test_modes_and_gradients_are_not_mixed_in_one_call() -> None:
    views = (
        View("classifier", SOURCE),
        View("classifier", SOURCE, training=False),
        View("classifier", TARGET, gradient=False),
        View("ema", SOURCE),
    )
    terms = tuple(Term(str(i), sum, (v.logits,)) for i, v in enumerate(views))
    assert len(plan(Update("u", ("classifier",), terms), TAPS)) == 4


def test_inputs_come_first() -> None:
    for method in (methods.vmt(), methods.vmt(mix="hidden"), methods.dirt_t(methods.vmt())):
        for phase in method.phases:
            for update in phase.updates:
                done: set[View] = set()
                for each in plan(update, TAPS):
                    for view in each.views:
                        before = {tap.view for node in view.reads for tap in taps_of(node)}
                        assert before <= done
                    done |= set(each.views)


def taps_of(node: object) -> list[object]:
    found = [node] if hasattr(node, "view") else []
    return [*found, *(tap for child in getattr(node, "reads", ()) for tap in taps_of(child))]


def test_the_networks_are_called_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step makes exactly the planned calls."""
    seen: list[int] = []
    forward = Staged.forward

    def watched(self: Staged, x: Tensor, entry: str = "input", exit: str | None = None) -> dict[str, Tensor]:
        seen.append(len(x))
        return forward(self, x, entry, exit)

    method = methods.vmt(xi=0.5)
    state = build(method)
    monkeypatch.setattr(Staged, "forward", watched)
    step(method.phases[0], state, context())
    assert sorted(seen) == [12, 12, 12, 12, 12, 24]  # 2 + 4 calls, batches of 6


def term(*reads: object) -> Term:
    return Term("t", losses.conditional_entropy, reads)  # type: ignore[arg-type]


def test_errors_name_the_role_and_the_tap() -> None:
    with pytest.raises(InputError, match="student"):
        plan(Update("u", ("classifier",), (term(View("student", SOURCE).logits),)), TAPS)
    with pytest.raises(InputError, match=r"'pixels' of the role 'classifier'.*features, hidden, logits"):
        plan(Update("u", ("classifier",), (term(View("classifier", SOURCE).tap("pixels")),)), TAPS)
    mixed = View("classifier", SOURCE, entry="hidden")
    with pytest.raises(InputError, match=r"'features' of the role 'classifier'.*after hidden are logits"):
        plan(Update("u", ("classifier",), (term(mixed.tap("features")),)), TAPS)
    with pytest.raises(InputError, match=r"'classifier' at 'pixels'.*features, hidden, logits"):
        plan(Update("u", ("classifier",), (term(replace(mixed, entry="pixels").logits),)), TAPS)
    near = View("classifier", SOURCE, probe=View("classifier", SOURCE).logits)
    with pytest.raises(InputError, match=r"'logits' of a view with a probe.*slope"):
        plan(Update("u", ("classifier",), (term(near.logits),)), TAPS)


def test_a_term_may_read_a_parameter() -> None:
    name = "stages.logits.0.weight"
    decay = Term("decay", lambda w: w.square().sum()[None], (Parameter("classifier", name),), 1.0)
    base = methods.source_only()
    update = replace(base.phases[0].updates[0], terms=(decay,))
    state = build(base)
    before = state.roles["classifier"].get_parameter(name).detach().clone()
    step(Phase("p", (update,)), state, context())
    after = state.roles["classifier"].get_parameter(name).detach()
    torch.testing.assert_close(after, before - 1e-3 * before.sign(), rtol=1e-4, atol=1e-6)


def test_which_streams_an_update_reads() -> None:
    def streams(method: Method) -> list[set[str]]:
        return [{batch.stream for batch in batches_of(update)} for update in method.updates()]

    assert streams(methods.source_only()) == [{"source"}]
    assert streams(methods.source_only(statistics="target")) == [{"source", "target"}], "no term reads this view"
    assert all("target" in each for each in streams(methods.vmt()))

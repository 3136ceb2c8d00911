"""The package's methods as values: which settings they take, and which they refuse."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vmt import methods
from vmt.errors import InputError
from vmt.methods import settings
from vmt.methods.nodes import Joined, View
from vmt.methods.nouns import Adam, Method, Network, Phase, WarmUp
from vmt.methods.systems import CLASSIFIER, SOURCE, TARGET
from vmt.methods.terms import L_c, L_d, L_m, L_v, L_y


def names(method: Method, update: str = "classifier") -> list[str]:
    (found,) = (each for each in method.updates() if each.name == update)
    return [term.name for term in found.terms if term.weight != 0]


def test_a_weight_of_zero_leaves_terms_out() -> None:
    assert names(methods.vmt(lambda_d=0)) == [
        "L_y",
        "L_m(source)",
        "L_v(source)",
        "L_m(target)",
        "L_v(target)",
        "L_c(target)",
    ]
    assert names(methods.vmt(lambda_s=0)) == ["L_y", "L_d", "L_m(target)", "L_v(target)", "L_c(target)"]
    assert names(methods.vmt(lambda_t=0)) == ["L_y", "L_d", "L_m(source)", "L_v(source)"]
    assert "discriminator" not in methods.vmt(lambda_d=0).roles


def test_vmt_has_mcc_only_if_it_has_a_weight() -> None:
    assert names(methods.vmt(lambda_mcc=0.5))[-1] == "L_mcc(target)"
    assert names(methods.vmt_mcc(lambda_mcc=0)) == names(methods.vmt())
    (update,) = methods.vmt_mcc(lambda_d=0, warm_up=0.25).updates()
    assert next(term.weight for term in update.terms if term.name == "L_mcc(target)") == WarmUp(1.0, 0.25)


def test_a_term_is_named_after_its_symbol_its_stream_and_a_second_classifier() -> None:
    source, target = View("classifier", SOURCE), View("classifier", TARGET)
    other = View("classifier2", TARGET)
    built = L_y(source), L_d(source, target, weight=0.1), L_m(target, weight=0.1), L_v(other, weight=0.1)
    assert [term.name for term in built] == ["L_y", "L_d", "L_m(target)", "L_v(target) of classifier2"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (methods.vmt, {"mix": "pixels"}),
        (methods.vmt, {"alpha": 0}),
        (methods.vmt, {"radius": 0}),
        (methods.vada, {"radius": float("inf")}),
        (methods.co_da, {"xi": -1.0}),
        (methods.vmt, {"warm_up": 1.5}),
        (methods.source_only, {"statistics": "both"}),
        (methods.mcc, {"temperature": 0}),
        (methods.vmt, {"temperature": -1.0}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_setting_that_is_not_valid_is_named(method: Callable[..., Method], settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InputError, match=name):
        method(**settings)


@pytest.mark.parametrize("settings", [{"radius": 0}, {"xi": -1.0}, {"mix": "pixels"}, {"alpha": -1}], ids=str)
def test_settings_are_checked_even_if_no_term_uses_them(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InputError, match=name):
        methods.vmt(lambda_s=0, lambda_t=0, **settings)


def test_lengths_and_decays_are_checked() -> None:
    with pytest.raises(InputError, match="source_only"):
        methods.source_only(iterations=0)
    with pytest.raises(InputError, match=r"iterations|length"):
        methods.vmt(iterations=2.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="decay"):
        methods.vmt().with_decay(1.5)
    with pytest.raises(InputError, match="vmt"):
        methods.vmt().with_iterations(3, 4)


def test_dirt_t_names_what_it_misses_in_a_method() -> None:
    with pytest.raises(InputError, match="'ema'"):
        methods.dirt_t(Method("m", {"classifier": Network()}, (), predictor=("classifier",)))
    with pytest.raises(InputError, match="optimises"):
        methods.dirt_t(Method("m", CLASSIFIER, (Phase("p", ()),)))
    with pytest.raises(InputError, match=r"'vmt\+dirt_t'"):
        methods.dirt_t(methods.dirt_t(methods.vmt()))


def test_dirt_t_continues_moments_and_average_of_an_update_of_any_name() -> None:
    (phase,) = methods.source_only(iterations=100).phases
    student = replace(phase, updates=(replace(phase.updates[0], name="student", optimiser=Adam(lr=0.5)),))
    method = methods.dirt_t(Method("m", CLASSIFIER, (student,)))
    before, after = method.updates()
    assert (after.name, after.optimiser, after.averages) == ("student", Adam(lr=0.5), before.averages)
    assert after.averages[0].decay < 0.998


def test_target_labels_need_a_classifier_that_learns_from_source_labels() -> None:
    with pytest.raises(InputError, match="target_only"):
        methods.with_target_labels(methods.target_only())


def test_a_term_needs_a_view_of_a_batch() -> None:
    joined = View("classifier", Joined((SOURCE, TARGET)))
    with pytest.raises(InputError, match="Joined"):
        L_c(joined, weight=1.0)


def test_a_method_is_found_by_its_name() -> None:
    assert methods.named("vada") is methods.vada
    with pytest.raises(InputError, match="vada"):
        methods.named("vadda")
    with pytest.raises(InputError, match=r"perhaps vmt_mcc"):
        methods.named("vmt+mcc")
    with pytest.raises(InputError, match="dirt_t=True"):
        methods.named("DIRT-T")


def test_the_command_line_names_every_method() -> None:
    assert tuple(methods.METHODS) == settings.METHODS


def test_methods_are_values() -> None:
    """Equal arguments give equal methods, lengths can be changed, and the labels that are read are known."""
    assert methods.vmt() == methods.vmt()
    both = methods.dirt_t(methods.vmt(iterations=7), iterations=9)
    assert both.iterations == 16
    assert both.with_iterations(2).iterations == 11
    assert both.with_iterations(None, 3).iterations == 10
    assert methods.target_only().reads_labels_of("target")
    assert not any(f().reads_labels_of("target") for n, f in methods.METHODS.items() if n != "target_only")
    assert methods.vmt().reads_labels_of("source")

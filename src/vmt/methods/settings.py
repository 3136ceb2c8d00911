"""The names of the methods and of their settings.

The command line makes its flags from these definitions and explains them without importing PyTorch, so this module
does not import it. The defaults are those of the functions in :mod:`vmt.methods.systems`; a recipe may change them.
"""

from dataclasses import dataclass

METHODS = ("source_only", "target_only", "adabn", "mmd", "mcc", "dann", "cdan", "vada", "co_da", "vmt", "vmt_mcc")
DEFAULT_METHOD = "vmt"
AUTO = "auto"
"""In place of a method, for your own data: some methods are trained, and one is chosen without target labels."""


@dataclass(frozen=True)
class Settings:
    """Settings of the methods that ``vmt train`` has flags for. None leaves the recipe's value.

    A method takes those that its function has an argument for; ``lr`` and ``decay`` are for every method.
    """

    vat: bool | None = None
    """Use virtual adversarial training, L_v; on by default."""

    fresh_lambda: bool | None = None
    """Draw λ anew at every step; on by default. The authors' program draws it once."""

    entropy_weights: bool | None = None
    """Give samples with certain predictions a larger weight in CDAN; on by default."""

    lambda_d: float | None = None
    """Weight of the domain-adversarial loss."""

    lambda_s: float | None = None
    """Weight of the penalties on the source."""

    lambda_t: float | None = None
    """Weight of the penalties on the target; the setting to try first."""

    warm_up: float | None = None
    """Share of the iterations over which the weights of target terms grow from 0, for example 0.125."""

    lambda_mix_t: float | None = None
    """Weight of virtual mixup (L_m) on the target, if it is not λ_t."""

    lambda_mcc: float | None = None
    """Weight of the confusion between classes (L_mcc) on the target."""

    temperature: float | None = None
    """Temperature T of L_mcc, by which the logits are divided."""

    mix: str | None = None
    """Where virtual labels are mixed: logits, probabilities or hidden."""

    alpha: float | None = None
    """λ of the mix is drawn from Beta(α, α)."""

    radius: float | None = None
    """Radius ε of virtual adversarial training (VAT), L2 per sample."""

    xi: float | None = None
    """Length ξ of VAT's first step; chosen from the network if not given."""

    lr: float | None = None
    """Learning rate of Adam."""

    decay: float | None = None
    """Decay of the weight average."""

    iterations: int | None = None
    """Iterations of the method, before DIRT-T."""


@dataclass(frozen=True)
class DirtTSettings:
    """Settings that only DIRT-T has. It shares the others with the method that it follows."""

    beta: float | None = None
    """Weight of the teacher's labels in DIRT-T."""

    interval: int | None = None
    """Iterations until DIRT-T takes a new teacher."""

    dirt_t_iterations: int | None = None
    """Iterations of DIRT-T."""


@dataclass(frozen=True)
class PythonSettings:
    """Settings of the methods that the command line has no flags for."""

    entropy: bool | None = None
    """Minimise the entropy of target predictions, L_c."""

    statistics: str | None = None
    """Whose batches update the running statistics: source or target."""

    weight: float | None = None
    """Weight of the discrepancy."""

    tap: str | None = None
    """Where source and target are compared: features, hidden or logits."""

    lambda_p: float | None = None
    """Weight of the agreement of the two classifiers, on the target."""

    lambda_div: float | None = None
    """Weight of the diversity of the two encoders, on the source."""

    ceiling: float | None = None
    """The squared distance ν beyond which the encoders are not pushed further apart."""

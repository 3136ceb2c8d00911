"""The names of the methods and of their settings.

The command line makes its flags from these definitions and explains them without importing PyTorch, so this module
does not import it. The defaults are those of the functions in :mod:`vmt.methods.systems`; a recipe may change them.
"""

from dataclasses import dataclass

METHODS = (
    *("source_only", "target_only", "adabn", "mmd", "mcc", "dann", "cdan", "vada", "co_da", "vmt", "vmt_mcc"),
    *("dann_grl", "pi_model", "drcn", "dsn"),  # of other papers
)
DEFAULT_METHOD = "vmt"
OPTIMISERS = ("adam", "adamw", "sgd")
LR_SCHEDULES = ("constant", "cosine", "inverse")
AUTO = "auto"
"""In place of a method, for your own data: some methods are trained, and the answer is chosen without target labels."""


def unnamed_method(of_one: bool) -> str:
    """The method of a run on own data that names none; ``of_one`` says that something of a single method is asked."""
    return DEFAULT_METHOD if of_one else AUTO


@dataclass(frozen=True)
class Settings:
    """Settings of the methods that ``vmt train`` has flags for. None leaves the recipe's value.

    A method takes those that its function has an argument for; those from ``lr`` to ``decay`` are
    for every method.
    """

    vat: bool | None = None
    """Use virtual adversarial training, L_v; on by default."""

    fresh_lambda: bool | None = None
    """Draw the λ of virtual mixup anew at every step; on by default. The authors' program draws it once."""

    entropy_weights: bool | None = None
    """Give samples with certain predictions a larger weight in CDAN; on by default."""

    lambda_d: float | None = None
    """Weight of the domain-adversarial loss."""

    lambda_s: float | None = None
    """Weight of the losses on the source that use no labels: VAT and virtual mixup."""

    lambda_t: float | None = None
    """Weight of the losses on the target: entropy, VAT and virtual mixup. It is the setting to try first."""

    warm_up: float | None = None
    """Share of the iterations in which the weights of the losses on the target grow from 0, for example 0.125."""

    lambda_mix_t: float | None = None
    """Weight of virtual mixup (L_m) on the target, if it differs from λ_t."""

    lambda_mcc: float | None = None
    """Weight of the confusion between classes (L_mcc) on the target."""

    temperature: float | None = None
    """Temperature T of L_mcc, by which the logits are divided."""

    mix: str | None = None
    """Where virtual labels are mixed: logits, probabilities or hidden."""

    alpha: float | None = None
    """Parameter α of the distribution Beta(α, α) from which the λ of virtual mixup is drawn."""

    radius: float | None = None
    """Radius ε of virtual adversarial training (VAT), L2 per sample."""

    xi: float | None = None
    """Length ξ of VAT's first step; by default chosen for the network."""

    lr: float | None = None
    """Learning rate."""

    lr_schedule: str | None = None
    """How the learning rate falls in each phase: constant, cosine (to 0) or inverse, as in DANN."""

    optimiser: str | None = None
    """Optimiser: adam (as in the paper), adamw or sgd. adamw and sgd have default learning rates of their own."""

    momentum: float | None = None
    """Momentum of sgd; 0.9 by default."""

    weight_decay: float | None = None
    """Weight decay of adamw (0.01 by default) or sgd (0 by default)."""

    clip_norm: float | None = None
    """Scale the gradients down if their joint norm exceeds this; off by default."""

    backbone_rate: float | None = None
    """Learning rate of all stages before the logits, as a share of the learning rate; 1 by default."""

    head_first: float | None = None
    """Share of the iterations in which the stages before the logits stay as they are; 0.4 with pretrained weights."""

    augment_crop: float | None = None
    """Train on random crops that keep at least this share of a picture's area, for example 0.5; off by default."""

    augment_flip: bool | None = None
    """Mirror half of the training pictures, at random; off by default."""

    augment_colour: float | None = None
    """Change brightness, contrast, saturation and hue at random, by up to this much, from 0 to 1; off by default."""

    augment_strength: float | None = None
    """Distort pictures as RandAugment does, by up to this much, from 0 to 1; off by default."""

    augment_invert: float | None = None
    """Invert this share of the training pictures, dark for bright, at random; off by default, or 0.5 for your own data
    if the target looks like a negative of the source."""

    decay: float | None = None
    """Decay of the weight average per iteration; 0.998 in the paper."""

    iterations: int | None = None
    """Iterations of the method, before DIRT-T."""


@dataclass(frozen=True)
class DirtTSettings:
    """Settings that only DIRT-T has. It shares the others with the method that it follows."""

    beta: float | None = None
    """Weight of the teacher's labels in DIRT-T."""

    interval: int | None = None
    """Iterations after which DIRT-T takes a new teacher."""

    dirt_t_iterations: int | None = None
    """Iterations of DIRT-T."""

    dirt_t_lambda_mix_t: float | None = None
    """Weight of virtual mixup (L_m) in DIRT-T, if it differs from that of the first phase."""


@dataclass(frozen=True)
class PythonSettings:
    """Settings of the methods that the command line has no flags for."""

    entropy: bool | None = None
    """Minimise the entropy of target predictions, L_c."""

    statistics: str | None = None
    """Whose batches update the running statistics: source or target."""

    weight: float | None = None
    """Weight of what the method adds: the discrepancy, the consistency or the reconstruction."""

    tap: str | None = None
    """Where source and target are compared, or what is decoded: features, hidden or logits."""

    lambda_p: float | None = None
    """Weight of the agreement of the two classifiers, on the target."""

    lambda_div: float | None = None
    """Weight of the diversity of the two encoders, on the source."""

    reversal: float | None = None
    """Weight λ of the reversed gradient; a schedule from 0 to 1 if not given."""

    head: list[int] | None = None
    """Widths of the discriminator's dense layers."""

    threshold: float | None = None
    """Confidence above which a prediction counts in the consistency."""

    balance: float | None = None
    """Weight of the class balance."""

    affine: float | None = None
    """Standard deviation of the random affine maps."""

    shift: float | None = None
    """Largest random shift, in pixels, or as a share of the side for DRCN."""

    flip: bool | None = None
    """Mirror images at random."""

    noise: float | None = None
    """Standard deviation of the noise that is added to samples."""

    intensity: bool | None = None
    """Change sign, scale and offset of the values at random."""

    rotation: float | None = None
    """Largest random rotation, in degrees."""

    masked: float | None = None
    """Share of the values that are removed before the reconstruction."""

    reconstruction: float | None = None
    """Weight of the reconstructions."""

    difference: float | None = None
    """Weight of the orthogonality of private and shared codes."""

    similarity: float | None = None
    """Weight of the domain loss on the shared codes."""

    separation_from: float | None = None
    """Share of the iterations after which all terms but L_y begin."""

    ceiling: float | None = None
    """The squared distance ν beyond which the encoders are not pushed further apart."""

r"""The equations of the paper, one pure function each.

A function takes logits and returns one value for each sample; the caller takes the mean. No function knows of a
network, an optimiser or a training loop, so you can use each of them in your own code.

The paper writes some terms as a KL divergence to a virtual label. With the label held constant, cross-entropy differs
from it by a constant and has the same gradient. Like the authors' program, these functions return the cross-entropy.

Shapes follow the names of tensors:

- N is the number of samples in a batch (M where a second batch may have another size), K that of classes;
- samples ``x`` are images (N, C, H, W) or vectors (N, F); ``(N, …)`` stands for either;
- ``logits`` and ``probabilities`` are (N, K), ``labels`` are (N,) int64 from 0 to K − 1;
- ``lam``, the λ of mixup, is (N,), and ``partner``, the row that each row is mixed with, is (N,) int64.

Tensors are floating point unless stated otherwise. Results are float32, or float64 if the arguments are.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """The same values in float32, or in float64 if they are: bfloat16 is too coarse for losses and statistics."""
    return x if x.dtype == torch.float64 else x.float()


# --- Cross-entropies ---


def soft_cross_entropy(probabilities: Tensor, logits: Tensor) -> Tensor:
    r"""Cross-entropy to a soft label: :math:`-p^\top \ln \mathrm{softmax}(z)`.

    probabilities (N, K), logits (N, K) → (N,).

    >>> soft_cross_entropy(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.0, 0.0]]))
    tensor([0.6931])
    """
    return -(probabilities * at_least_float32(logits).log_softmax(-1)).sum(-1)


def source_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Eq. 1, :math:`\mathcal L_y`: :math:`-y^\top \ln f(x)` on labelled source samples.

    logits (N, K), labels (N,) int64 → (N,).

    >>> source_cross_entropy(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    tensor([0.1269, 2.1269])
    """
    return F.cross_entropy(at_least_float32(logits), labels, reduction="none")


def conditional_entropy(logits: Tensor) -> Tensor:
    r"""Eq. 2, :math:`\mathcal L_c`: :math:`-f(x)^\top \ln f(x)`; the gradient flows through both factors.

    logits (N, K) → (N,).

    >>> conditional_entropy(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    tensor([0.6931, 0.0012])
    """
    return soft_cross_entropy(at_least_float32(logits).softmax(-1), logits)


# --- Domain terms ---


def discriminator_loss(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    r"""The loss of the domain discriminator: :math:`\tfrac12 \mathrm{BCE}(d(x_s), 1)` and :math:`\tfrac12
    \mathrm{BCE}(d(x_t), 0)`, from its logits on source and on target features.

    source (N, 1), target (M, 1) → (N,), (M,).

    >>> discriminator_loss(source=torch.tensor([[3.0]]), target=torch.tensor([[3.0]]))
    (tensor([0.0243]), tensor([1.5243]))
    """
    of_source = 0.5 * F.softplus(-at_least_float32(source).squeeze(-1))
    of_target = 0.5 * F.softplus(at_least_float32(target).squeeze(-1))
    return of_source, of_target


def domain_confusion(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    r"""Eq. 1, :math:`\mathcal L_d` as the classifier minimises it: the discriminator's loss with swapped labels.

    The updates of classifier and discriminator alternate; there is no gradient reversal.

    source (N, 1), target (M, 1) → (N,), (M,).

    >>> domain_confusion(source=torch.tensor([[3.0]]), target=torch.tensor([[3.0]]))
    (tensor([1.5243]), tensor([0.0243]))
    """
    return discriminator_loss(source=-source, target=-target)


def weighted_discriminator_loss(
    source: Tensor, target: Tensor, source_logits: Tensor, target_logits: Tensor
) -> tuple[Tensor, Tensor]:
    """CDAN+E: the :func:`discriminator_loss`, in which samples with certain predictions have larger weights.

    The weights are the :func:`certainty_weights` of each domain, from the logits of the classifier.

    source (N, 1), target (M, 1), source_logits (N, K), target_logits (M, K) → (N,), (M,).
    """
    of_source, of_target = discriminator_loss(source, target)
    return certainty_weights(source_logits) * of_source, certainty_weights(target_logits) * of_target


def weighted_domain_confusion(
    source: Tensor, target: Tensor, source_logits: Tensor, target_logits: Tensor
) -> tuple[Tensor, Tensor]:
    """CDAN+E: the :func:`weighted_discriminator_loss` with swapped labels, which the classifier minimises.

    source (N, 1), target (M, 1), source_logits (N, K), target_logits (M, K) → (N,), (M,).
    """
    return weighted_discriminator_loss(-source, -target, source_logits, target_logits)


# --- Virtual adversarial training ---

# The authors' program has this floor. A vanishing gradient then gives a step that is shorter than the radius, instead
# of a step of full length in an arbitrary direction.
SQUARED_NORM_FLOOR = 1e-12


def unit(direction: Tensor) -> Tensor:
    r"""Each sample divided by its own L2 norm: :math:`d / \|d\|_2`.

    direction (N, …) → (N, …).
    """
    flat = at_least_float32(direction).flatten(1)
    squared = flat.square().sum(1, keepdim=True).clamp_min(SQUARED_NORM_FLOOR)
    return (flat * squared.rsqrt()).view(direction.shape)


def slope(x: Tensor, label: Tensor, logits: Tensor) -> Tensor:
    r"""The gradient of :math:`\mathrm{CE}(p, f(x))` with respect to :math:`x`, for a soft label :math:`p`.

    x (N, …), label (N, K), logits (N, K) computed from x → (N, …).
    """
    # The sum, not the mean, because the floor in `unit` is meant for the gradient of a single sample.
    (gradient,) = torch.autograd.grad(soft_cross_entropy(label, logits).sum(), x)
    return gradient


def adversarial_point(x: Tensor, slope: Tensor, radius: float) -> Tensor:
    r"""Eq. 3, the point :math:`x + r` with :math:`\|r\|_2 = \epsilon` for each sample, along a slope.

    The slope at :math:`x + \xi d`, a random point near :math:`x`, makes this one power step. The method is of first
    order: no gradient flows through the search for :math:`r`.

    x (N, …), slope (N, …) → (N, …).
    """
    return x + radius * unit(slope)


def virtual_adversarial(clean: Tensor, adversarial: Tensor) -> Tensor:
    r"""Eq. 3, :math:`\mathcal L_v`: :math:`\mathrm{CE}(f(x), f(x + r))` with :math:`f(x)` held constant.

    ``clean`` are the logits at :math:`x`, and ``adversarial`` those at the :func:`adversarial_point` :math:`x + r`.

    clean (N, K), adversarial (N, K) → (N,).

    >>> virtual_adversarial(clean=torch.tensor([[9.0, 0.0]]), adversarial=torch.tensor([[0.0, 0.0]]))
    tensor([0.6931])
    """
    return soft_cross_entropy(at_least_float32(clean.detach()).softmax(-1), adversarial)


# --- Virtual mixup ---


def mixed(values: Tensor, lam: Tensor, partner: Tensor) -> Tensor:
    r"""Eq. 4, the convex combination :math:`\lambda v_i + (1 - \lambda) v_j` of each row with its partner row.

    values (N, …), lam (N,), partner (N,) int64 → (N, …).

    >>> mixed(torch.tensor([[0.0], [8.0]]), lam=torch.tensor([0.75, 0.5]), partner=torch.tensor([1, 0]))
    tensor([[2.],
            [4.]])
    """
    lam = lam.view(-1, *[1] * (values.dim() - 1))
    return lam * values + (1 - lam) * values[partner]


def virtual_mixup(clean: Tensor, of_mixed: Tensor, lam: Tensor, partner: Tensor) -> Tensor:
    r"""Eqs. 6 and 7, :math:`\mathcal L_m` on logits: :math:`\mathrm{CE}(\tilde y, f(\tilde x))` with :math:`\tilde y =
    \mathrm{softmax}(\lambda z_i + (1-\lambda) z_j)` held constant.

    ``clean`` are the logits of a batch, ``of_mixed`` those of the :func:`mixed` batch with the same λ and partners.

    clean (N, K), of_mixed (N, K), lam (N,), partner (N,) int64 → (N,).

    A linear network agrees with every mix, so only the entropy of the virtual labels is left:

    >>> net = torch.nn.Linear(5, 3)
    >>> x, lam, partner = torch.randn(8, 5), torch.rand(8), torch.randperm(8)
    >>> loss = virtual_mixup(net(x), net(mixed(x, lam, partner)), lam, partner)
    >>> torch.allclose(loss, conditional_entropy(net(mixed(x, lam, partner))), atol=1e-5)
    True
    """
    virtual_label = mixed(at_least_float32(clean.detach()), lam, partner).softmax(-1)
    return soft_cross_entropy(virtual_label, of_mixed)


def virtual_mixup_on_probabilities(clean: Tensor, of_mixed: Tensor, lam: Tensor, partner: Tensor) -> Tensor:
    r"""Eqs. 5 and 6, :math:`\mathcal L_m` with :math:`\tilde y = \lambda f(x_i) + (1-\lambda) f(x_j)` held constant.

    clean (N, K), of_mixed (N, K), lam (N,), partner (N,) int64 → (N,).

    >>> clean, lam, partner = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0.5, 0.5]), torch.tensor([1, 0])
    >>> virtual_mixup_on_probabilities(clean, torch.zeros(2, 2), lam, partner)
    tensor([0.6931, 0.6931])
    """
    virtual_label = mixed(at_least_float32(clean.detach()).softmax(-1), lam, partner)
    return soft_cross_entropy(virtual_label, of_mixed)


# --- DIRT-T ---


def teacher_cross_entropy(teacher: Tensor, student: Tensor) -> Tensor:
    r"""DIRT-T: :math:`\mathrm{CE}(f_{n-1}(x), f_n(x))`, with the teacher's soft label held constant.

    It also serves :math:`\mathcal L_m` on the last hidden layer (appendix of the paper). There the teacher is the head
    applied to the mixed hidden layer, and the student is the network applied to the mixed input.

    teacher (N, K), student (N, K), both logits → (N,).

    >>> teacher_cross_entropy(teacher=torch.tensor([[9.0, 0.0]]), student=torch.tensor([[2.0, 0.0]]))
    tensor([0.1272])
    """
    return soft_cross_entropy(at_least_float32(teacher.detach()).softmax(-1), student)


# --- Co-DA ---


def agreement(first: Tensor, second: Tensor) -> Tensor:
    r"""Co-DA's :math:`\mathcal L_p`: :math:`\|f_1(x) - f_2(x)\|_1` of the predictions of two classifiers.

    first (N, K), second (N, K), both logits → (N,), from 0 to 2.

    >>> agreement(torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 9.0]]))
    tensor([1.9995])
    """
    return (at_least_float32(first).softmax(-1) - at_least_float32(second).softmax(-1)).abs().sum(-1)


def diversity(first: Tensor, second: Tensor, ceiling: float = 10.0) -> Tensor:
    r"""Co-DA's :math:`-\mathcal D_g`: :math:`-\min(\nu, \|\overline{g_1(x) - g_2(x)}\|_2^2)` of a whole batch.

    It pushes two encoders apart until the squared distance of their mean features reaches the ceiling ν. The mean of a
    feature map (N, C, H, W) is over samples and positions, so that a channel is one feature. Otherwise the noise and
    the dropout of 4,096 features alone would be above every ceiling that is known, and the gradient would be zero.

    first (N, …), second (N, …), features of the same samples → (1,).

    >>> diversity(torch.ones(4, 3), torch.zeros(4, 3))
    tensor([-3.])
    """
    difference = at_least_float32(first) - at_least_float32(second)
    distance = difference.mean([i for i in range(difference.dim()) if i != 1]).square().sum()
    return -distance.clamp_max(ceiling)[None]


# --- Minimum class confusion ---

# Below this weight a class counts as absent from a batch: dividing by less would overflow in single precision.
CLASS_WEIGHT_FLOOR = 1e-12


def certainty_weights(logits: Tensor) -> Tensor:
    r"""A weight for each sample, larger for certain predictions: :math:`n (1 + e^{-H_i}) / \sum_j (1 + e^{-H_j})`.

    :math:`H_i` is the entropy of the prediction. The mean of the weights is 1, and they are held constant.

    logits (N, K) → (N,).

    >>> certainty_weights(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    tensor([0.8574, 1.1426])
    """
    certainty = 1 + (-conditional_entropy(logits.detach())).exp()
    return certainty / certainty.mean()


def class_confusion(logits: Tensor, temperature: float = 2.5) -> Tensor:
    r"""MCC's loss of a whole batch: :math:`\tfrac1K \sum_{j \neq k} \tilde C_{jk}`, the confusion between classes.

    With :math:`p = \mathrm{softmax}(z / T)` and the :func:`certainty_weights` :math:`w`, the confusion matrix is
    :math:`C = p^\top \mathrm{diag}(w)\, p`, and :math:`\tilde C` is C with rows that are divided by their sums.

    logits (N, K) → (1,), from 0 to 1 − 1/K.

    >>> class_confusion(torch.tensor([[99.0, 0.0], [0.0, 99.0]]))
    tensor([0.])
    >>> class_confusion(torch.zeros(2, 2))
    tensor([0.5000])
    """
    tempered = at_least_float32(logits) / temperature
    p, weights = tempered.softmax(-1), certainty_weights(tempered)
    confusion = (p * weights[:, None]).T @ p  # (K, K)
    rows = confusion / confusion.sum(1, keepdim=True).clamp_min(CLASS_WEIGHT_FLOOR)
    return ((rows.sum() - rows.diagonal().sum()) / logits.shape[-1])[None]


# --- Maximum mean discrepancy ---

BANDWIDTHS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6)


def maximum_mean_discrepancy(source: Tensor, target: Tensor) -> Tensor:
    r"""MMD² of two batches of features: :math:`\overline{K(s,s)} + \overline{K(t,t)} - 2\,\overline{K(s,t)}`, biased.

    K is the sum of the Gaussians :math:`\exp(-d^2 / 2\sigma)` over 19 bandwidths σ, as in the DSN paper's comparison.
    The value is at least 1e-4, and has no gradient there.

    source (N, …), target (M, …) → (1,).

    >>> x = torch.randn(20, 4)
    >>> maximum_mean_discrepancy(x, x)
    tensor([1.0000e-04])
    >>> maximum_mean_discrepancy(x, x + 3) > 1
    tensor([True])
    """

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        # |a|² + |b|² − 2ab would be faster, but its rounding error is larger than the smallest bandwidths.
        squared = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
        return torch.stack([(squared / (-2 * sigma)).exp() for sigma in BANDWIDTHS]).sum(0)

    s, t = at_least_float32(source).flatten(1), at_least_float32(target).flatten(1)
    value = kernel(s, s).mean() + kernel(t, t).mean() - 2 * kernel(s, t).mean()
    return value.clamp_min(1e-4)[None]


# --- Systems of other papers ---


def masked_consistency(student: Tensor, teacher: Tensor, threshold: float = 0.0) -> Tensor:
    r"""The Π-model's consistency: :math:`[\max_k q_k > \theta] \; \tfrac1K \sum_k (p_k - q_k)^2`, with q held constant.

    p and q are the predictions for two augmentations of a sample. Samples whose q is not confident give 0, and count in
    the mean.

    student (N, K), teacher (N, K), both logits → (N,).

    >>> masked_consistency(torch.zeros(1, 2), torch.tensor([[9.0, 0.0]]), threshold=0.9)
    tensor([0.2499])
    >>> masked_consistency(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), threshold=0.9)
    tensor([0.])
    """
    p, q = at_least_float32(student).softmax(-1), at_least_float32(teacher.detach()).softmax(-1)
    return (q.amax(-1) > threshold).float() * (p - q).square().mean(-1)


def class_balance(student: Tensor, teacher: Tensor, threshold: float = 0.0) -> Tensor:
    r"""The Π-model's class balance: :math:`K\,\overline{m} \cdot \tfrac1K \sum_k \mathrm{BCE}(\bar p_k, \tfrac1K)`.

    :math:`\bar p` is the mean prediction for a batch, and :math:`\overline m` the share of confident samples in it.

    student (N, K), teacher (N, K), both logits → (1,).

    >>> class_balance(torch.zeros(4, 2), torch.zeros(4, 2))
    tensor([1.3863])
    """
    p, q = at_least_float32(student).softmax(-1), at_least_float32(teacher.detach()).softmax(-1)
    mean, even = p.mean(0).clamp(1e-7, 1 - 1e-7), 1 / p.shape[-1]
    entropy = -(even * mean.log() + (1 - even) * (1 - mean).log()).sum()
    return (entropy * (q.amax(-1) > threshold).float().mean())[None]


def squared_error(reconstruction: Tensor, x: Tensor) -> Tensor:
    r"""DRCN's reconstruction: the mean of :math:`(\hat x - x)^2` over the values of each sample.

    reconstruction (N, …), x (N, …) → (N,).
    """
    return (at_least_float32(reconstruction) - at_least_float32(x)).flatten(1).square().mean(1)


def scale_invariant_error(reconstruction: Tensor, x: Tensor) -> Tensor:
    r"""DSN's reconstruction: :math:`\overline{e^2} - \bar e^2` of the errors e of each sample; a shift costs nothing.

    reconstruction (N, …), x (N, …) → (N,).

    >>> scale_invariant_error(torch.ones(2, 3), torch.zeros(2, 3))
    tensor([0., 0.])
    """
    error = (at_least_float32(reconstruction) - at_least_float32(x)).flatten(1)
    return error.square().mean(1) - error.mean(1).square()


def orthogonality(private: Tensor, shared: Tensor) -> Tensor:
    r"""DSN's difference: the mean of the squares of :math:`P^\top S`, which is small if two codes share no direction.

    Each code is centred over the batch, and its rows have length 1.

    private (N, F), shared (N, F) → (1,).

    >>> private, shared = torch.eye(2)[[0, 0, 1, 1]], torch.eye(2)[[0, 1, 0, 1]]
    >>> bool(orthogonality(private, shared) < 1e-6)
    True
    """

    def centred(code: Tensor) -> Tensor:
        flat = at_least_float32(code).flatten(1)
        return unit(flat - flat.mean(0))

    return (centred(private).T @ centred(shared)).square().mean()[None]

"""The numbers in the paper's tables: accuracy on the target test set in percent.

Mao, Ma, Yang, Chen, Li: Virtual Mixup Training for Unsupervised Domain Adaptation, 2019.
"""

TASKS = ("mnist-svhn", "svhn-mnist", "mnist-mnistm", "syn-svhn", "cifar-stl", "stl-cifar")

Row = tuple[float | None, ...]

# Table 1, with one value per task in the order of TASKS.
WITHOUT_INSTANCE_NORM: dict[str, Row] = {
    "Source-Only": (27.9, 77.0, 58.5, 86.9, 76.3, 63.6),
    "VADA": (47.5, 97.9, 97.7, 94.8, 80.0, 73.5),
    "Co-DA": (55.3, 98.8, 99.0, 96.1, 81.4, 76.4),
    "VMT": (59.3, 98.8, 99.0, 96.2, 82.0, 80.2),
    "VADA + DIRT-T": (54.5, 99.4, 98.9, 96.1, None, 75.3),
    "Co-DA + DIRT-T": (63.0, 99.4, 99.1, 96.5, None, 77.6),
    "VMT + DIRT-T": (88.1, 99.5, 99.1, 96.5, None, 80.6),
}
WITH_INSTANCE_NORM: dict[str, Row] = {
    "Source-Only": (40.9, 82.4, 59.9, 88.6, 77.0, 62.6),
    "VADA": (73.3, 94.5, 95.7, 94.9, 78.3, 71.4),
    "Co-DA": (81.7, 98.7, 98.0, 96.0, 80.6, 74.7),
    "VMT": (85.2, 98.9, 98.0, 96.4, 81.3, 79.5),
    "VADA + DIRT-T": (76.5, 99.4, 98.7, 96.2, None, 73.3),
    "Co-DA + DIRT-T": (88.0, 99.4, 98.8, 96.5, None, 75.9),
    "VMT + DIRT-T": (95.1, 99.4, 98.9, 96.6, None, 80.2),
}
TRAINED_ON_TARGET = 96.5  # SVHN, without instance norm
# The upper block of Table 1: systems of other papers, with their own networks.
OTHER_SYSTEMS: dict[str, Row] = {
    "MMD": (None, 71.1, 76.9, 88.0, None, None),
    "DANN": (35.7, 71.1, 81.5, 90.3, None, None),
    "DRCN": (40.1, 82.0, None, None, 66.4, 58.7),
    "DSN": (None, 82.7, 83.2, 91.2, None, None),
    "kNN-Ad": (40.3, 78.8, 86.7, None, None, None),
    "PixelDA": (None, None, 98.2, None, None, None),
    "ATT": (52.8, 86.2, 94.2, 92.9, None, None),
    "Π-model (aug)": (71.4, 92.0, None, 94.2, 76.3, 64.2),
}

# Ten runs each on MNIST → SVHN.
TEN_RUNS: dict[str, tuple[float, ...]] = {
    "VMT@40K, no IN": (57.7, 57.6, 57.4, 50.1, 54.1, 50.0, 52.7, 40.1, 53.9, 45.5),
    "VMT@160K, no IN": (64.6, 64.6, 58.3, 61.4, 57.3, 63.7, 64.5, 49.4, 56.9, 52.0),
    "VMT + DIRT-T@160K, no IN": (95.9, 95.9, 95.3, 95.3, 95.1, 83.6, 82.8, 80.4, 79.9, 76.6),
    "VMT@40K": (86.1, 85.6, 86.1, 85.8, 85.2, 85.6, 84.3, 84.0, 84.5, 84.3),
    "VMT + DIRT-T@160K": (96.0, 95.9, 95.6, 95.5, 95.4, 95.3, 95.3, 95.1, 94.2, 92.8),
}
# One run each, from the text.
LONGER = {"VMT + DIRT-T@260K, no IN": 96.4, "VMT + DIRT-T@280K": 96.4}
ON_PROBABILITIES: dict[str, tuple[float, ...]] = {  # without instance norm
    "VMT_prob@40K": (47.5, 54.0, 50.1, 49.6, 50.5, 50.2, 44.8, 48.1, 38.4, 43.1),
    "VMT_prob@160K": (59.2, 62.3, 61.0, 60.0, 60.3, 65.3, 57.0, 60.4, 21.7, 51.1),
    "VMT_prob + DIRT-T@160K": (95.0, 94.4, 93.3, 91.9, 89.7, 88.5, 78.3, 77.6, 19.6, 15.6),
}
ON_HIDDEN: dict[str, tuple[float, ...]] = {  # with instance norm
    "VMT_inter": (85.5, 83.9, 84.0, 84.1, 77.9, 74.2, 70.8, 47.4, 32.4, 16.3),
    "VMT_inter + DIRT-T": (95.9, 94.9, 94.2, 94.1, 87.1, 82.7, 75.1, 51.9, 32.6, 17.6),
}
LAMBDA_T: dict[str, tuple[float, ...]] = {
    "λ_t 0.02, no IN: VMT@40K, source": (95.2, 96.5, 98.1, 96.7, 98.5, 98.3, 98.4, 98.6, 98.5, 10.4),
    "λ_t 0.02, no IN: VMT@40K": (60.6, 60.5, 58.8, 47.3, 59.9, 53.3, 55.4, 52.8, 47.0, 14.6),
    "λ_t 0.02, no IN: VMT@160K": (73.4, 73.7, 68.5, 54.3, 67.0, 69.8, 69.4, 67.1, 65.5, 15.6),
    "λ_t 0.02, no IN: VMT + DIRT-T@160K": (96.0, 95.5, 95.4, 92.0, 87.3, 80.1, 79.6, 74.4, 73.7, 15.6),
    "λ_t 0.01: VMT@40K": (72.8, 75.3, 74.8, 74.4, 73.7, 72.3, 72.3, 73.8, 73.9, 71.7),
    "λ_t 0.01: VMT + DIRT-T@160K": (88.8, 87.3, 86.4, 85.4, 85.4, 84.4, 83.8, 83.4, 82.0, 79.9),
}

# VAT against VMT with instance norm; the first two rows are from the VADA paper.
VAT_VERSUS_VMT: dict[str, Row] = {
    "L_c": (66.8, 83.1, 93.8, 93.4, 79.1, 68.6),
    "L_c, L_v": (73.3, 94.5, 95.7, 94.9, 78.3, 71.4),
    "L_c, L_m": (82.6, 98.5, 97.3, 95.6, 82.0, 78.3),
    "L_c, L_v, L_m": (85.2, 98.9, 98.0, 96.4, 81.3, 79.5),
}

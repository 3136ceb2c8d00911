"""What has a name here, without the code behind it: the command line explains itself from this, and needs no torch.

Where a list names code (methods, networks, validators, tables, sets), the code has the same names, in the same order:
a test compares them.
"""

# Of the paper.
TABLES = (
    "evaluation",
    "evaluation-no-in",
    "ten-runs",
    "vat-versus-vmt",
    "mixup",
    "probabilities",
    "lambda-t",
    "frozen-lambda",
    "upper-bound",
    "priority",
)
FIGURES = ("tsne", "gradient-norms", "accuracy-over-time")

# Formats of exported models, and how many samples an export is compared on.
ONNX, PT2 = "onnx", "pt2"
FORMATS = (ONNX, PT2)
MOST_CHECKED = 1000

# Of VMT, and of DIRT-T after it, on the embedded task.
DIGITS_ITERATIONS, DIGITS_DIRT_T_ITERATIONS = 500, 250

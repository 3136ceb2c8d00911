"""What has a name here, without the code behind it: the command line explains itself from this, and needs no torch.

Where a list names code (methods, networks, validators, tables, sets), the code has the same names, in the same order:
a test compares them.
"""

PRECISIONS = ("auto", "float32", "bfloat16")
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

# Scores that need no target labels, and what each measures, in a few words.
VALIDATORS = {
    "source_accuracy": "accuracy on held-out source",
    "entropy": "certainty",
    "diversity": "even use of the classes",
    "im": "information maximisation: certainty and even use",
    "bnm": "nuclear norm of the predictions",
    "snd": "density of soft neighbourhoods",
    "mano": "norm of normalised logits",
    "class_ami": "agreement of classes and clusters",
    "ami_source": "agreement of classes and clusters × accuracy on held-out source",
    "mixval": "steadiness on mixtures",
    "agreement": "agreement of average and student",
    "dev": "importance-weighted source risk, negative",
}
# The one to choose by; why: docs/choosing.md.
VALIDATOR = "ami_source"

# Formats of exported models, and how many samples an export is compared on.
ONNX, PT2 = "onnx", "pt2"
FORMATS = (ONNX, PT2)
MOST_CHECKED = 1000

# Of VMT, and of DIRT-T after it, on the embedded task.
DIGITS_ITERATIONS, DIGITS_DIRT_T_ITERATIONS = 500, 250

"""The formats of exported models. The command line shows them without importing PyTorch."""

ONNX, PT2 = "onnx", "pt2"
FORMATS = (ONNX, PT2)
"""Each is also the suffix of its files."""

MOST_CHECKED = 1000
"""An export is compared with its model on at most this many samples."""

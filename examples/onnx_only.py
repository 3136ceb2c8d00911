"""Classify pictures with an exported model. This needs onnxruntime, NumPy and Pillow, but neither torch nor vmt.

    vmt export runs/mine --format onnx
    pip install onnxruntime numpy pillow
    python onnx_only.py runs/mine/model.onnx picture.png another.jpg

The pictures may have any size, because the exported file contains the preprocessing.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image


def main(model: str, *pictures: str) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    classes, expects = json.loads(metadata["classes"]), json.loads(metadata["input"])
    if expects["layout"] != "NHWC":
        sys.exit(f"{model} reads vectors of {expects['features']} values, not pictures.")
    for path in pictures:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("L" if expects["channels"] == 1 else "RGB"))
        samples = pixels.reshape(1, *pixels.shape[:2], expects["channels"])
        if expects["dtype"] == "float32":
            lowest, highest = expects["range"]
            samples = (samples / 255 * (highest - lowest) + lowest).astype(np.float32)
        (probabilities,) = session.run(None, {expects["name"]: samples})
        best = int(probabilities[0].argmax())
        print(f"{path}: {classes[best]} ({probabilities[0, best]:.1%})")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python onnx_only.py MODEL.onnx PICTURE...")
    main(*sys.argv[1:])

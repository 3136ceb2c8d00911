"""Classify pictures with an exported model. This needs onnxruntime, NumPy and Pillow, but neither torch nor vmt.

    vmt export runs/mine --format onnx
    pip install onnxruntime numpy pillow
    python onnx_only.py runs/mine/model.onnx picture.png another.jpg

``decoded`` has the lines that turn a picture file into what the exported model reads. A model for pictures that are
cropped to keep their aspect ratio (with ``--features``, for example) has the size and the crop in its metadata; any
other model takes pictures of every size, because it contains the resizing. Both contain the rest of the preprocessing.
"""

import json
import math
import sys
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def decoded(path: str, expects: dict[str, Any]) -> np.ndarray:
    """A picture as (height, width, channels) in 0–255: upright, on white, and cropped if the model expects that."""
    (height, width), crop = expects["resized_to"], expects.get("crop")
    with Image.open(path) as picture:
        if crop is not None:  # a JPEG is decoded at a fraction of its size, if that is enough
            least = math.ceil(2 * max(height, width) / crop)
            picture.draft("RGB", (least, least))
        picture = ImageOps.exif_transpose(picture)
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        picture = picture.convert("L" if expects["channels"] == 1 else "RGB")
    if "interpolation" in expects:
        across, down = picture.size
        if crop is not None:
            scale = crop * min(picture.height / height, picture.width / width)
            across, down = min(across, scale * width), min(down, scale * height)
        left, top = (picture.width - across) / 2, (picture.height - down) / 2
        box = (left, top, left + across, top + down)
        picture = picture.resize((width, height), Image.Resampling[expects["interpolation"].upper()], box)
    return np.asarray(picture).reshape(picture.height, picture.width, expects["channels"])


def main(model: str, *pictures: str) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    classes, expects = json.loads(metadata["classes"]), json.loads(metadata["input"])
    if expects["layout"] != "NHWC":
        sys.exit(f"{model} reads vectors of {expects['features']} values, not pictures.")
    for path in pictures:
        samples = decoded(path, expects)[None]
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

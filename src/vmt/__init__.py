"""Unsupervised domain adaptation with Virtual Mixup Training.

>>> import vmt
>>> model = vmt.adapt(source=(xs, ys), target=xt, method=vmt.methods.vmt(lambda_t=0.06))  # doctest: +SKIP
>>> model.predict(xt)  # doctest: +SKIP
"""

__version__ = "0.1.0"

from vmt import losses, methods
from vmt.api import adapt
from vmt.errors import InputError
from vmt.model import Model, load
from vmt.train import Config

__all__ = ["Config", "InputError", "Model", "adapt", "load", "losses", "methods"]

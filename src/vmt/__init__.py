"""Unsupervised domain adaptation with Virtual Mixup Training."""

__version__ = "0.1.0"

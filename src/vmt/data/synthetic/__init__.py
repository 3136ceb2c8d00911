"""Sets that are made here: drawn digits, MNIST-M and the re-creation of Synthetic Digits."""

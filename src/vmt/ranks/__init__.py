"""One run on several GPUs or machines: the processes that torchrun starts, called ranks.

``launch.py`` reads how this process was started, ``group.py`` has what the ranks compute together, and ``watch.py``
ends a run whose ranks are not complete any more.
"""

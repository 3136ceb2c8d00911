"""How a run is carried out. The command line makes its flags from the same definition."""

from dataclasses import dataclass, fields

from vmt.engine import ENGINES
from vmt.errors import InputError, bytes_in, whole
from vmt.validators.registry import check_name

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Config:
    """How a run is carried out, apart from the method: the seed, the machine, and how often to log and evaluate."""

    seed: int = 0
    """Determines the initial weights and every random draw."""

    batch_size: int = 64
    """Samples per domain in a batch."""

    device: str = "auto"
    """Where to train: auto, cpu, cuda or cuda:N. auto uses a GPU if there is one."""

    precision: str = "auto"
    """Arithmetic inside the networks: auto, float32 or bfloat16. Statistics, losses and optimiser stay in float32."""

    threads: int = 0
    """CPU threads. 0 means one for small samples, where one is fastest, and otherwise torch's default."""

    memory: str = "auto"
    """Memory for samples: auto, or a size such as 2GiB. Samples that need more are streamed in batches."""

    engine: str = "auto"
    """How the step is run: auto, eager, compiled or captured. All engines compute the same."""

    log_every: int = 100
    """Iterations between log records; each record holds the means since the one before."""

    evaluate_every: int = 1000
    """Iterations between evaluations. On your own data, vmt train evaluates at least six times in a phase."""

    evaluate_samples: int = 0
    """Evaluate on at most this many held-out samples of each domain; 0 means all."""

    validate_samples: int = 1000
    """How many samples of the target, the source and the held-out source the validators use; 0 turns them off."""

    keep_best: str = ""
    """Also keep the best model by this validator, for example ami_source; see docs/choosing.md."""

    checkpoint_every: int = 1000
    """Iterations between checkpoints; the last two are kept. On your own data, vmt train saves at each evaluation."""

    stop_on_collapse: bool = False
    """End the run when it collapses, instead of only reporting it."""

    tensorboard: bool = False
    """Also write the log for TensorBoard, to RUN/tensorboard. Needs the package tensorboard."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type is int:
                object.__setattr__(self, field.name, whole(getattr(self, field.name), field.name))
        for name in ("batch_size", "log_every", "evaluate_every", "checkpoint_every"):
            least = 2 if name == "batch_size" else 1
            if getattr(self, name) < least:
                raise InputError(f"{name} must be {least} or more, but got {getattr(self, name)}.")
        for name in ("evaluate_samples", "validate_samples", "threads"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be 0 or more, but got {getattr(self, name)}.")
        if self.keep_best:
            check_name(self.keep_best)
            if self.validate_samples == 0:
                raise InputError(
                    f"keep_best={self.keep_best} needs validators, but validate_samples is 0: set it to 1000, or leave "
                    "keep_best out."
                )
        if self.precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, but got {self.precision!r}.")
        if self.memory != "auto":
            bytes_in(self.memory, "memory")
        if self.engine not in ENGINES:
            raise InputError(f"engine must be one of {', '.join(ENGINES)}, but got {self.engine!r}.")

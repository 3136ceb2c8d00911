"""What to do next, as commands with the paths and settings of the runs, ready to be copied into a shell or Python."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from vmt.errors import InputError, as_flag
from vmt.methods.nouns import decay_for
from vmt.methods.settings import AUTO, DirtTSettings, Settings
from vmt.nets.factory import OWN_MODULE, factory_name
from vmt.nets.registry import NetSettings
from vmt.report.samples import Options
from vmt.report.signs import TOO_SHORT, WATCH
from vmt.report.standing import Standing, baseline_among, best_first
from vmt.report.verdict import accuracy_of
from vmt.runs.describe import named_functions
from vmt.runs.folder import AS_A_VALUE, MODEL, model_at_the_end, read_record
from vmt.runs.recipes import (
    CPU_ITERATIONS,
    OF_AUGMENTATION,
    OF_DIRT_T,
    OF_OPTIMISER,
    OWN_VALUES,
    REFINE,
    Recipe,
    interval_for,
    taken,
)
from vmt.runs.record import RunRecord, find_runs
from vmt.runs.spec import DataSpec
from vmt.train.config import Config
from vmt.validators.choice import REFERENCE

HELD_OUT = "held-out/"
# No recipe has a larger λ_t.
LARGEST_LAMBDA_T = 1.0
# Fields of Config that a repeated run should share. The others are chosen anew, by its length and machine.
REPEATED = ("seed", "batch_size", "precision", "keep_best")
# Fields of Recipe that are written in ways of their own, or follow from the data. Any other has a flag with its name.
WRITTEN = ("method", "settings", "dirt_t", "net", "net_options", "config", "target_labels", "balance_classes")


@dataclass(frozen=True)
class Step:
    """A reason to do something, and the command that does it."""

    text: str
    command: str
    python: bool = False


def next_steps(
    standings: Sequence[Standing],
    chosen: Standing | None,
    folders: Sequence[Path],
    out: Path,
    options: Options,
    answer: Path | None,
) -> list[Step]:
    """What to do next, the most useful first.

    ``chosen`` is the run to use, if one is usable, and ``answer`` a folder whose own model is to be used instead.
    """
    if not standings:
        return []
    failed = sorted((e for e in best_first(standings) if not e.usable), key=lambda each: each.state != TOO_SHORT)
    repairs = [step for each in failed if (step := repair(each, options)) is not None]
    if chosen is None:
        return repairs[:1] + source_only_step(standings, standings[0], folders, out, options)
    adapted_fail = chosen.run.kind == "lower" and not any(e.usable for e in standings if e.run.kind == "adapted")
    use, find_out = (
        use_step(chosen, options, answer),
        [] if accuracy_of(chosen.run) else [label_step(folders, out, options)],
    )
    careful = bool(chosen.warnings)  # measure before use
    steps = [*find_out, use] if careful else [use, *find_out]
    if adapted_fail:
        steps = repairs[:1] + steps
    steps += source_only_step(standings, chosen, folders, out, options)
    if answer is not None:
        return steps + ([another_seed(answer, chosen, options)] if accuracy_of(chosen.run) else [])
    if any(sign.level == WATCH and "still rising" in sign.text for sign in chosen.signs):
        steps.append(again("It was still improving: train longer.", chosen, options, **longer(chosen.run.spec.recipe)))
    elif accuracy_of(chosen.run) and one_seed(chosen, standings):
        seed = chosen.run.spec.recipe.config.seed + 1
        steps.append(again("See how much the seed matters.", chosen, options, seed=seed))
    return steps


def use_step(chosen: Standing, options: Options, answer: Path | None) -> Step:
    """Predict with the model of a run, or with that of the folder ``answer``."""
    run = chosen.run
    data = run.spec.data.moved(options.places)
    file = chosen.model.file if chosen.model is not None and chosen.model.file else None
    model = str(run.folder) if file is None or Path(file).name == MODEL else file
    what = f"Use {chosen.name}"
    if answer is not None:
        model, what = str(answer), f"Use {answer}"
    if run.spec.recipe.net == OWN_MODULE:
        code = f"vmt.load({model!r}, network=make).predict(x)"
        return Step(f"{what}: predict new samples x, with the function that builds your network.", code, python=True)
    if not data.in_files:
        return Step(f"{what}: predict new samples x.", f"vmt.load({model!r}).predict(x)", python=True)
    parts = ["vmt", "predict", model, data.target or "SAMPLES", "--out", "predictions.csv", *net_flag(run)]
    if data.label is not None:
        parts += ["--label", data.label]
    where = "its target samples" if data.target else "your own files, in place of SAMPLES"
    return Step(f"{what}: predict {where}.", shell_command(parts))


def another_seed(answer: Path, like: Standing, options: Options) -> Step:
    """The same candidates with another seed."""
    spec, text, out = like.run.spec, "See how much the seed matters.", free(answer)
    seed = spec.recipe.config.seed + 1
    if not spec.data.in_files:
        return Step(text, f"vmt.adapt(source, target, {AUTO!r}, seed={seed}, out={str(out)!r})", python=True)
    data = data_words(spec.data.moved(options.places))
    return Step(text, shell_command(["vmt", "train", *data, "--method", AUTO, "--seed", str(seed), "--out", str(out)]))


def label_step(folders: Sequence[Path], out: Path, options: Options) -> Step:
    """The same report with the accuracy on samples that are labelled by then."""
    text = (
        f"Find out the accuracy: label some 200 random target samples, save them as {HELD_OUT} (one subfolder per "
        "class), as a table or as an .npz file, and report again."
    )
    return Step(text, report_command(folders, options, HELD_OUT, out))


def report_command(folders: Sequence[Path], options: Options, test: str | None, out: Path) -> str:
    """The command of a report on folders, with the data and the functions that were named for this one."""
    words = ["vmt", "report", *map(str, folders), *data_words(options.places)]
    for name, named in (("net", options.nets), ("features", options.features)):
        words += [word for each in named for word in flag(name, each)]
    for name, value in (("test", test), ("label", options.label)):
        words += [] if value is None else flag(name, value)
    return shell_command([*words, "-o", str(out)])


def source_only_step(
    standings: Sequence[Standing], like: Standing, folders: Sequence[Path], out: Path, options: Options
) -> list[Step]:
    """Compare with source only, if an adapted run has nothing to be compared with: train it, unless it is there."""
    if like.run.kind != "adapted" or baseline_among(like, standings) is not None:
        return []
    if like.run.spec.data.from_model is not None:  # there is no source
        return []
    if beside := source_only_beside(like.run):
        text = f"Compare with no adaptation: {beside.name} is beside it."
        return [Step(text, report_command([beside, *folders], options, options.test, out))]
    recipe = like.run.spec.recipe
    length, more = recipe.settings.get("iterations"), (recipe.dirt_t or {}).get("iterations", 0)
    changes = {"method": REFERENCE, "dirt_t": None, **({} if length is None else {"iterations": length + more})}
    folder = like.run.folder.with_name("source-only")
    text = "Compare with no adaptation: train source only, and report both."
    return [again(text, like, options, folder if not folder.exists() else free(folder), **changes)]


def source_only_beside(run: RunRecord) -> Path | None:
    """The folder of a source-only run on the same data that is beside a run."""
    for folder in find_runs([run.folder.parent]):
        try:
            spec, record = read_record(folder)
        except InputError:
            continue
        same_data = record.get("fingerprint") == run.run_json.get("fingerprint")
        if same_data and spec.recipe.method == REFERENCE and model_at_the_end(folder).is_file():
            return folder
    return None


def repair(standing: Standing, options: Options) -> Step | None:
    """What may repair a run that is not usable."""
    run, recipe = standing.run, standing.run.spec.recipe
    if standing.state == "unfinished":
        text = f"Resume {standing.name}, which has not finished."
        if run.spec.can_be_built_again:
            return Step(text, shell_command(["vmt", "train", "--resume", str(run.folder), *net_flag(run)]))
        return again(text, standing, options, run.folder, resume=True)
    if standing.state == TOO_SHORT:
        return again(f"{standing.name} was too short: train longer.", standing, options, **longer(recipe))
    if standing.state in ("not learned", "forgets"):
        text = f"{standing.name} has not learned its task: check its labels, and try a lower learning rate."
        return again(text, standing, options, lr=float(f"{recipe.settings.get('lr', 1e-3) / 3:.2g}"))
    if lambda_t := recipe.settings.get("lambda_t"):
        less = min(lambda_t / 2, LARGEST_LAMBDA_T)
        return again(f"{standing.name} failed: try a smaller λ_t.", standing, options, lambda_t=less)
    text = f"{standing.name} failed: try another seed."
    return again(text, standing, options, seed=recipe.config.seed + 1) if run.kind == "adapted" else None


def longer(recipe: Recipe) -> dict[str, Any]:
    """Four times as many iterations, and no fewer than the shortest run by default has."""
    return {"iterations": max(4 * int(recipe.settings.get("iterations") or 0), CPU_ITERATIONS)}


def one_seed(chosen: Standing, standings: Sequence[Standing]) -> bool:
    alike = [each for each in standings if each.run.settings_key == chosen.run.settings_key]
    return len({each.run.spec.recipe.config.seed for each in alike}) == 1


def again(text: str, like: Standing, options: Options, out: Path | None = None, **changes: Any) -> Step:
    """A run like another one with some changes, in a new folder: as a command if files and names suffice for it."""
    run = like.run
    out = out or free(run.folder)
    recipe = recipe_with(run.spec.recipe, changes)
    writable = {*names(Settings), "entropy", *(names(DirtTSettings) if recipe.method == REFINE else ())}
    if run.spec.can_be_built_again and set(recipe.settings) <= writable:
        words = train_command(run.spec.data.moved(options.places), recipe)
        if recipe.method == run.spec.recipe.method:  # another method has its own
            # With equal class shares, which are the default on features, the flag would ask for something else.
            left_out = {*WRITTEN, "match_shares"} if recipe.balance_classes else WRITTEN
            words += [
                word for name in names(Recipe) if name not in left_out for word in flag(name, getattr(recipe, name))
            ]
        return Step(text, shell_command([*words, "--out", str(out)]))
    return Step(text, adapt_call(recipe, out, bool(changes.get("resume"))), python=True)


def recipe_with(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with another method, seed or setting. Settings that follow from the length follow the new one."""
    settings = dict(recipe.settings)
    if settings.get("decay") == decay_for(settings.get("iterations") or 1):
        del settings["decay"]
    settings |= {name: value for name, value in changes.items() if name in names(Settings)}
    method, by_name = changes.get("method", recipe.method), not recipe.method.endswith(AS_A_VALUE)
    if method != recipe.method:
        every = ("iterations", *OF_OPTIMISER, *OF_AUGMENTATION)
        common = {name: value for name, value in settings.items() if name in every}
        settings = {**taken(method, settings), **common} if by_name else common
    refine = None if "dirt_t" in changes else recipe.dirt_t
    config = replace(recipe.config, seed=changes.get("seed", recipe.config.seed))
    return replace(recipe, method=method, settings=settings, dirt_t=refine, config=config)


def train_command(data: DataSpec, recipe: Recipe) -> list[str]:
    """The words of the ``vmt train`` command for a recipe, with every setting that it has."""
    words = ["vmt", "train", *data_words(data)]
    if data.from_model is None:
        words += ["--method", recipe.method, "--net", recipe.net]
    elif (own := factory_name(recipe.net)) is not None:  # the model has its network
        words += ["--net", own]
    for name in (*names(Settings), *(names(DirtTSettings) if recipe.method == REFINE else ())):
        if recipe.settings.get(name) is not None:
            words += flag(name, recipe.settings[name])
    if recipe.dirt_t is not None:
        words += ["--dirt-t"]
        for name in names(DirtTSettings):
            value = recipe.dirt_t.get((OF_DIRT_T | OWN_VALUES)[name])
            follows = name in OWN_VALUES and value == recipe.settings.get(OWN_VALUES[name])
            follows = follows or (name == "interval" and follows_length(recipe.dirt_t))
            if value is not None and not follows:
                words += flag(name, value)
    for name in ("instance_norm", *names(NetSettings)):
        if recipe.net_options.get(name) is not None and data.from_model is None:
            words += flag(name, recipe.net_options[name])
    for name, value in settings_to_repeat(recipe.config).items():
        words += flag(name, value)
    return words


def data_words(data: DataSpec) -> list[str]:
    """The words that name the data."""
    words = [data.task] if data.task else []
    for name in names(DataSpec):
        if name != "task" and (value := getattr(data, name)) is not None:
            words += flag(name, value)
    return words


def adapt_call(recipe: Recipe, out: Path, resume: bool) -> str:
    """The call of ``vmt.adapt`` for a recipe, with the user's own source and target."""
    by_name = not recipe.method.endswith(AS_A_VALUE)
    given: dict[str, Any] = dict(recipe.settings) if by_name else {}
    given |= {"dirt_t": True} if recipe.dirt_t is not None and by_name else {}
    given |= {**settings_to_repeat(recipe.config), "out": str(out), **({"resume": True} if resume else {})}
    method = repr(recipe.method) if by_name else "method"
    return f"vmt.adapt(source, target, {method}, {', '.join(f'{name}={value!r}' for name, value in given.items())})"


def settings_to_repeat(config: Config) -> dict[str, Any]:
    """The fields of a config that a repeated run should share and that are not at their default."""
    return {name: value for name in REPEATED if (value := getattr(config, name)) != getattr(Config, name)}


def follows_length(refine: Mapping[str, Any]) -> bool:
    return refine.get("interval") == interval_for(refine.get("iterations") or 0)


def flag(name: str, value: Any) -> list[str]:
    """The words of a setting in a command."""
    if isinstance(value, bool):
        return [as_flag(name if value else f"no_{name}")]
    values = value if isinstance(value, list) else [value]
    return [as_flag(name), *(number(each) if isinstance(each, float) else str(each) for each in values)]


def number(value: float) -> str:
    """A number with all of its digits: a command must repeat the settings of a run exactly.

    >>> number(1000.0), number(0.01), number(1 / 3)
    ('1000', '0.01', '0.3333333333333333')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def net_flag(run: RunRecord) -> list[str]:
    """The flags that name the user's functions again."""
    return shlex.split(named_functions(run.spec))


def names(cls: type[Any]) -> list[str]:
    return [field.name for field in fields(cls)]


def free(folder: Path) -> Path:
    """The next name for a folder beside it that nothing has."""
    stem, n = re.sub(r"-\d+$", "", folder.name), 2
    while (found := folder.with_name(f"{stem}-{n}")).exists():
        n += 1
    return found


def shell_command(words: Sequence[str]) -> str:
    """Words as a shell reads them. A path that begins with a dash is kept from being read as a flag."""
    paths = [f"./{word}" if word.startswith("-") and Path(word).exists() else word for word in words]
    return shlex.join(paths)

"""What earlier studies of the same model, machine and engine found, for the settings of a new one.

Only ratios to their own default are taken over, and only from studies whose default is this one's. What
facts/measured holds is not read here: the predictions start from it already.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from model_optimizer.core import MoptError, Plan, codec
from model_optimizer.core.study import Knob, Prior, Study
from model_optimizer.facts.versions import minor
from model_optimizer.tune.space import ENVIRONMENT

STUDY = "study.json"


def earlier(folder: Path, fresh: Study, *, own: Path) -> tuple[Prior, ...]:
    """From the studies below `folder`, this one's left out. Files that cannot be read are passed over."""
    found: list[Prior] = []
    for path in sorted(folder.glob(f"*/{STUDY}")) if folder.is_dir() else []:
        if path.parent.resolve() == own.resolve():
            continue
        with suppress(MoptError, OSError):
            found += of_study(codec.load(path, Study), fresh, name=path.parent.name)
    return tuple(found)


def of_study(old: Study, fresh: Study, *, name: str) -> list[Prior]:
    """Its measured settings in the words of the new study, its default among them; [] if it tells none."""
    if not _alike(old, fresh) or not old.trials:
        return []
    base = next((t.score for t in old.trials if dict(t.settings) == old.default), None)
    if base is None or base.value <= 0 or _translated(old.default, old, fresh.knobs) != fresh.default:
        return []
    found: dict[tuple[tuple[str, str], ...], Prior] = {}
    for trial in old.trials:
        settings = _translated(trial.settings, old, fresh.knobs)
        if trial.score is None or trial.state != "measured" or trial.score.value <= 0 or settings is None:
            continue
        ratio = _proven(old, trial.settings) or trial.score.value / base.value
        found[tuple(sorted(settings.items()))] = Prior(settings=settings, ratio=ratio, study=name)
    return list(found.values())


def _alike(old: Study, fresh: Study) -> bool:
    """The same model, machine, engine up to its minor version, and aim."""
    a, b = old.plan, fresh.plan
    return (
        a.model == b.model
        and a.engine == b.engine
        and _minor(a) == _minor(b)
        and old.host_name == fresh.host_name
        and old.objective == fresh.objective
        and a.workload.task == b.workload.task
    )


def _minor(plan: Plan) -> tuple[int, int] | None:
    return minor(plan.engine_version) if plan.engine_version else None


def _translated(settings: Mapping[str, str], old: Study, knobs: Sequence[Knob]) -> dict[str, str] | None:
    """Values for the knobs of the new study; None when it turned something that is no knob there, or has a
    value that is not tried there."""
    names = {knob.name for knob in knobs}
    if any(value != old.default.get(name) for name, value in settings.items() if name not in names):
        return None
    made = {knob.name: settings.get(knob.name, _of_plan(knob, old.plan)) for knob in knobs}
    return made if all(made[knob.name] in knob.values for knob in knobs) else None


def _of_plan(knob: Knob, plan: Plan) -> str:
    """What the old default had for a knob that it did not turn."""
    if knob.name.startswith(ENVIRONMENT):
        return plan.env.get(knob.name.removeprefix(ENVIRONMENT), "")
    found = plan.setting(knob.name)
    return found if found is not None else knob.default


def _proven(old: Study, settings: Mapping[str, str]) -> float | None:
    """The ratio of its second look, which is worth more than one trial."""
    return next((d.ratio for d in old.finals if dict(d.b) == dict(settings) and d.ratio), None)

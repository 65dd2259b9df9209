"""The trials of a study in Optuna's storage, and the study as one file for readers.

The storage is the truth: a study that was killed is what it holds. A trial that ran at that moment is
marked as interrupted and proposed again.
"""

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_optimizer.core import HostError, MoptError, UsageError, codec
from model_optimizer.core.study import Knob, Trial

from .sampler import INTERRUPTED, SIGNAL, PriorSampler

TRIAL = "trial"
NAME = "mopt"
DATABASE = "trials.db"
SPACE = "space"


class Store:
    """`url` is any database that SQLAlchemy reaches; None is a file in the folder."""

    def __init__(self, folder: Path, url: str | None, sampler: PriorSampler, knobs: Sequence[Knob]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._knobs = tuple(knobs)
        self._optuna = optuna
        where = url or f"sqlite:///{folder / DATABASE}"
        self._shown = DATABASE if url is None else "the database under --storage"
        self._sampler = sampler
        with self._explained():
            self._study = optuna.create_study(
                study_name=NAME if url is None else f"{NAME}-{folder.name}",
                storage=where,
                sampler=sampler,
                direction="maximize",
                load_if_exists=True,
            )
            self._require_same_space()

    @contextmanager
    def _explained(self) -> Generator[None]:
        """What a database raises, in words; a full disk is the most common cause."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except MoptError:
                raise
            except Exception as error:  # noqa: BLE001 - every driver of every database has its own kinds
                raise HostError(
                    f"the trials in {self._shown} cannot be read or written",
                    cause=(_first_line(error),),
                    hint=(
                        "when the file is damaged, move it away: the finished trials are also in study.json",
                        "check the room on the disk; `mopt tune --resume` goes on where this study stands",
                    ),
                    reference="broken-study",
                ) from None

    def _require_same_space(self) -> None:
        mine = [[knob.name, list(knob.values)] for knob in self._knobs]
        found = self._study.user_attrs.get(SPACE)
        if found is None:
            self._study.set_user_attr(SPACE, mine)
        elif found != mine:
            raise UsageError(
                "this study searched another space",
                hint=("resume it without --knob and --fix, or start a new one with another --out",),
            )

    def trials(self) -> list[Trial]:
        """The finished ones, in order."""
        found = [t.user_attrs.get(TRIAL) for t in self._study.get_trials(deepcopy=False)]
        return [codec.loads(text, Trial, name=DATABASE) for text in found if text]

    def drop_interrupted(self) -> int:
        """Trials that a killed process left behind; they are proposed again. How many there were."""
        state = self._optuna.trial.TrialState
        left = [t for t in self._study.get_trials(deepcopy=False) if t.state == state.RUNNING]
        for trial in left:
            self._study._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)  # pyright: ignore[reportPrivateUsage]
            self._study.tell(trial.number, state=state.FAIL)
        return len(left)

    def ask(self, settings: "dict[str, str] | None" = None) -> tuple[Any, dict[str, str]]:
        """(handle, settings): those given, else what the sampler proposes."""
        with self._explained():
            if settings is not None:
                self._study.enqueue_trial(dict(settings))
            trial = self._study.ask()
            chosen = {knob.name: trial.suggest_categorical(knob.name, knob.values) for knob in self._knobs}
            return trial, chosen

    def exhausted(self) -> bool:
        return self._sampler.propose(self._study.get_trials(deepcopy=False)) is None

    def tell(self, handle: Any, trial: Trial) -> None:
        with self._explained():
            handle.set_user_attr(TRIAL, codec.line(trial))
            if trial.score is not None:
                handle.set_user_attr(SIGNAL, trial.score.signal)
                self._study.tell(handle, trial.score.value)
            else:
                self._study.tell(handle, state=self._optuna.trial.TrialState.FAIL)

    def interrupt(self, handle: Any) -> None:
        with self._explained():
            handle.set_user_attr(INTERRUPTED, True)
            self._study.tell(handle, state=self._optuna.trial.TrialState.FAIL)

    def believed(self) -> list[float]:
        return self._sampler.believed(self._study.get_trials(deepcopy=False))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__

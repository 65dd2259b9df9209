"""What a plan writes down while it is derived: settings with their reasons, and the pages behind them."""

from dataclasses import dataclass

from model_optimizer.core import Derivation, Setting, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Settings in the order of the command, and why."""

    settings: tuple[Setting, ...]
    derivations: tuple[Derivation, ...]


class Notes:
    """Collects settings and derivations."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []
        self.derivations: list[Derivation] = []

    def set(self, name: str, value: object, because: str, source: Source) -> None:
        self.settings.append(Setting(name=name, value=str(value), because=because, source=source))

    def write(
        self, title: str, *, constraint: str, formula: str, numbers: str, conclusion: str, source: str
    ) -> None:
        self.derivations.append(
            Derivation(
                title=title,
                constraint=constraint,
                formula=formula,
                numbers=numbers,
                conclusion=conclusion,
                source=source,
            )
        )


def by(user: bool) -> Source:
    return "user" if user else "derived"

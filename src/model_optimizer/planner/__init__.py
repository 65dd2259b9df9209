"""From hardware, model and need to plans. Arithmetic only: nothing here touches a machine.

What is named here is imported when it is asked for, so that one question does not load the rooms of all.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .choose import Options, Question, options
    from .pick import Pick, pick

_FILE_OF = {"Options": "choose", "Question": "choose", "options": "choose", "Pick": "pick", "pick": "pick"}


def __getattr__(name: str) -> object:
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_FILE_OF[name]}", __name__)
    # Importing `pick` binds the file to its name here; the function of that name takes its place.
    globals().update({n: getattr(module, n) for n, file in _FILE_OF.items() if file == _FILE_OF[name]})
    return globals()[name]


__all__ = ["Options", "Pick", "Question", "options", "pick"]

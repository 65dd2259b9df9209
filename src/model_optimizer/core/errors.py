"""Every error that a user can meet, in one tree. The exit code belongs to the kind of error.

MoptError                  1   the answer is no
├── UsageError             2   the request itself is wrong
├── HostError              3   the machine lacks an environment, a GPU, room or a lock
├── NoFeasiblePlan         4   nothing satisfies the request
└── ToolError              5   an outside tool failed

Anything else that escapes is a bug of ours: it keeps its traceback and exits with 70.
"""

from typing import ClassVar


class MoptError(Exception):
    """An expected failure: what happened, why, and what to do next.

    `message` is one line in the user's words. `cause` and `hint` hold one line an item. `reference`
    is a short stable name for documentation and scripts; a subclass has a default for it.
    """

    default_reference: ClassVar[str] = "no"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        cause: tuple[str, ...] = (),
        hint: tuple[str, ...] = (),
        reference: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint
        self.reference = reference or self.default_reference


class UsageError(MoptError):
    default_reference = "usage"
    exit_code = 2


class HostError(MoptError):
    default_reference = "host-not-ready"
    exit_code = 3


class NoFeasiblePlan(MoptError):
    default_reference = "no-feasible-plan"
    exit_code = 4


class ToolError(MoptError):
    default_reference = "tool-failed"
    exit_code = 5

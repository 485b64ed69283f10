"""What calls that fail raise."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from typing_extensions import Self

if TYPE_CHECKING:
    from .models import Problem


class PostdateError(Exception):
    """What every call that fails raises: a ProblemError, a NoAnswerError or a UsageError."""

    may_be_done: bool
    """Whether a call that changes something may have taken effect all the same."""
    schedule_id: str | None = None
    """Of schedule: the id of the message, which the client may have made. Repeat the call with it."""

    def of(self, schedule_id: str) -> Self:
        """Returns this error for one message, as calls that share a request share its error."""
        error = type(self).__new__(type(self), *self.args)
        error.__dict__.update(self.__dict__, schedule_id=schedule_id)
        return error


class UsageError(PostdateError, ValueError):
    """What was given cannot be sent, or the client cannot be used so. Nothing was done."""

    may_be_done = False


class ProblemError(PostdateError):
    """The server's answer is an error. Each type of problem has a class of its own, such as TooLateError.

    One that is a plain ProblemError comes from a proxy, say, and not from Postdate.
    """

    def __init__(self, problem: Problem, request_id: str | None = None, retry_after: timedelta | None = None) -> None:
        """Makes the error of a problem."""
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        """Everything that the answer says: detail, pointer, message_status and so on."""
        self.status = problem.status
        """The status code of HTTP."""
        self.request_id = request_id
        """Names the request in the node's log."""
        self.retry_after = retry_after
        """How long the server asks to wait."""
        not_done = {"urn:postdate:problem:" + name for name in ("unavailable", "not-ready", "full")}
        self.may_be_done = problem.status >= 500 and problem.type not in not_done  # noqa: PLR2004


class NoAnswerError(PostdateError):
    """There was no answer, or none that can be read. Its cause says why."""

    def __init__(self, server: str, may_be_done: bool, cause: object) -> None:
        """Makes the error of a call to a server."""
        self.server = server
        self.may_be_done = may_be_done
        self.is_garbled = False
        """An answer came that makes no sense. To try again does not help."""
        why = str(cause) or type(cause).__name__
        if may_be_done:
            text = (
                f"no answer from {server} ({why}): the call may have been done or not; repeat a schedule or a cancel "
                "with the same schedule_id, which is safe, and look at the message before you repeat anything else"
            )
        else:
            text = (
                f"no answer from {server} ({why}): nothing was done; see that a Postdate node serves there, "
                "and repeat the call"
            )
        super().__init__(text)
        if isinstance(cause, BaseException):
            self.__cause__ = cause


def garbled(server: str, may_be_done: bool, cause: object) -> NoAnswerError:
    """Returns the error of an answer that makes no sense."""
    error = NoAnswerError(server, may_be_done, f"the answer is not what a Postdate server says: {cause}")
    error.is_garbled = True
    return error

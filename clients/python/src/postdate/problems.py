"""The exceptions of the API's problems, made by generate.py."""

from .errors import ProblemError


class MalformedJsonError(ProblemError):
    """The problem malformed-json."""


class UnknownFieldError(ProblemError):
    """The problem unknown-field."""


class DuplicateFieldError(ProblemError):
    """The problem duplicate-field."""


class InvalidFieldError(ProblemError):
    """The problem invalid-field."""


class InvalidParameterError(ProblemError):
    """The problem invalid-parameter."""


class NotSupportedError(ProblemError):
    """The problem not-supported."""


class BadRequestError(ProblemError):
    """The problem bad-request."""


class UnauthorizedError(ProblemError):
    """The problem unauthorized."""


class ForbiddenError(ProblemError):
    """The problem forbidden."""


class LimitedError(ProblemError):
    """The problem limited."""


class NotFoundError(ProblemError):
    """The problem not-found."""


class NoSuchKeyError(ProblemError):
    """The problem no-such-key."""


class NoSuchJobError(ProblemError):
    """The problem no-such-job."""


class NoSuchPathError(ProblemError):
    """The problem no-such-path."""


class MethodNotAllowedError(ProblemError):
    """The problem method-not-allowed."""


class RequestTimeoutError(ProblemError):
    """The problem request-timeout."""


class ExistsError(ProblemError):
    """The problem exists."""


class TooLateError(ProblemError):
    """The problem too-late."""


class ConflictError(ProblemError):
    """The problem conflict."""


class ReceiptOutdatedError(ProblemError):
    """The problem receipt-outdated."""


class PreconditionFailedError(ProblemError):
    """The problem precondition-failed."""


class IdempotencyKeyReusedError(ProblemError):
    """The problem idempotency-key-reused."""


class TooLargeError(ProblemError):
    """The problem too-large."""


class UnsupportedMediaTypeError(ProblemError):
    """The problem unsupported-media-type."""


class HeadersTooLargeError(ProblemError):
    """The problem headers-too-large."""


class InternalError(ProblemError):
    """The problem internal."""


class UnavailableError(ProblemError):
    """The problem unavailable."""


class NotReadyError(ProblemError):
    """The problem not-ready."""


class UnknownOutcomeError(ProblemError):
    """The problem unknown-outcome."""


class FullError(ProblemError):
    """The problem full."""


BY_TYPE: dict[str, type[ProblemError]] = {
    "urn:postdate:problem:malformed-json": MalformedJsonError,
    "urn:postdate:problem:unknown-field": UnknownFieldError,
    "urn:postdate:problem:duplicate-field": DuplicateFieldError,
    "urn:postdate:problem:invalid-field": InvalidFieldError,
    "urn:postdate:problem:invalid-parameter": InvalidParameterError,
    "urn:postdate:problem:not-supported": NotSupportedError,
    "urn:postdate:problem:bad-request": BadRequestError,
    "urn:postdate:problem:unauthorized": UnauthorizedError,
    "urn:postdate:problem:forbidden": ForbiddenError,
    "urn:postdate:problem:limited": LimitedError,
    "urn:postdate:problem:not-found": NotFoundError,
    "urn:postdate:problem:no-such-key": NoSuchKeyError,
    "urn:postdate:problem:no-such-job": NoSuchJobError,
    "urn:postdate:problem:no-such-path": NoSuchPathError,
    "urn:postdate:problem:method-not-allowed": MethodNotAllowedError,
    "urn:postdate:problem:request-timeout": RequestTimeoutError,
    "urn:postdate:problem:exists": ExistsError,
    "urn:postdate:problem:too-late": TooLateError,
    "urn:postdate:problem:conflict": ConflictError,
    "urn:postdate:problem:receipt-outdated": ReceiptOutdatedError,
    "urn:postdate:problem:precondition-failed": PreconditionFailedError,
    "urn:postdate:problem:idempotency-key-reused": IdempotencyKeyReusedError,
    "urn:postdate:problem:too-large": TooLargeError,
    "urn:postdate:problem:unsupported-media-type": UnsupportedMediaTypeError,
    "urn:postdate:problem:headers-too-large": HeadersTooLargeError,
    "urn:postdate:problem:internal": InternalError,
    "urn:postdate:problem:unavailable": UnavailableError,
    "urn:postdate:problem:not-ready": NotReadyError,
    "urn:postdate:problem:unknown-outcome": UnknownOutcomeError,
    "urn:postdate:problem:full": FullError,
}

__all__ = [
    "BadRequestError",
    "ConflictError",
    "DuplicateFieldError",
    "ExistsError",
    "ForbiddenError",
    "FullError",
    "HeadersTooLargeError",
    "IdempotencyKeyReusedError",
    "InternalError",
    "InvalidFieldError",
    "InvalidParameterError",
    "LimitedError",
    "MalformedJsonError",
    "MethodNotAllowedError",
    "NoSuchJobError",
    "NoSuchKeyError",
    "NoSuchPathError",
    "NotFoundError",
    "NotReadyError",
    "NotSupportedError",
    "PreconditionFailedError",
    "ReceiptOutdatedError",
    "RequestTimeoutError",
    "TooLargeError",
    "TooLateError",
    "UnauthorizedError",
    "UnavailableError",
    "UnknownFieldError",
    "UnknownOutcomeError",
    "UnsupportedMediaTypeError",
]

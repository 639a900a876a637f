"""What can go wrong. Every error of the cache is an `Error`, whose `code` says what to do next."""

import enum


class Code(enum.IntEnum):
    """As `kvasir_code` of the C interface."""

    NOT_FOUND = 10
    ALREADY_EXISTS = 11
    INVALID_ARGUMENT = 30
    MALFORMED_FRAME = 31
    LAYOUT_MISMATCH = 32
    NOT_RESERVED = 33
    TOO_LARGE = 34
    OUT_OF_MEMORY = 60
    BUSY = 61
    TIMED_OUT = 62
    CANCELLED = 63
    IO_ERROR = 90
    PEER_UNREACHABLE = 91
    DEVICE_ERROR = 92
    CHECKSUM_MISMATCH = 120
    INTERNAL = 255


class Error(Exception):
    """An error of the cache; its text says what."""

    code = Code.INTERNAL


class InvalidArgumentError(Error, ValueError):
    """A value lies outside of its range, or an array's memory cannot be used."""

    code = Code.INVALID_ARGUMENT


class LayoutMismatchError(Error, ValueError):
    """An array is of another dtype or shape than the client's layout."""

    code = Code.LAYOUT_MISMATCH


class TooLargeError(Error, ValueError):
    """The pool is too small for chunks of this layout."""

    code = Code.TOO_LARGE


class NotReservedError(Error):
    """The store was committed, or its reservation ended."""

    code = Code.NOT_RESERVED


class OutOfMemoryError(Error, MemoryError):
    """There is no memory for the pool, or for the call."""

    code = Code.OUT_OF_MEMORY


class BusyError(Error):
    """Too many calls wait."""

    code = Code.BUSY


class TimedOutError(Error, TimeoutError):
    """The timeout passed; nothing touches the arrays any more."""

    code = Code.TIMED_OUT


class CancelledError(Error):
    """The client was closed."""

    code = Code.CANCELLED


class IoError(Error, OSError):
    """A file, segment or socket failed."""

    code = Code.IO_ERROR


_classes: "dict[int, type[Error]]" = {
    each.code: each
    for each in (
        InvalidArgumentError,
        LayoutMismatchError,
        TooLargeError,
        NotReservedError,
        OutOfMemoryError,
        BusyError,
        TimedOutError,
        CancelledError,
        IoError,
    )
}


def error_of(code: int, text: str) -> Error:
    """The exception of a code; the extension raises it."""
    found = _classes.get(code)
    if found is not None:
        return found(text)
    error = Error(text)
    try:
        error.code = Code(code)
    except ValueError:
        pass  # Of a newer library: the text says it.
    return error

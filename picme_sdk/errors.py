"""The one family of errors. Each text reads: what was given | what was expected | how to cure it."""

from __future__ import annotations


class PicmeError(Exception):
    """Base of everything that this project raises on purpose."""

    def __init__(self, given: str, expected: str, cure: str) -> None:
        super().__init__(f"{given} | expected {expected} | {cure}")
        self.given, self.expected, self.cure = given, expected, cure

    def __reduce__(self) -> tuple[type[PicmeError], tuple[str, str, str]]:
        return type(self), (self.given, self.expected, self.cure)


class BadArgument(PicmeError, ValueError):
    """An argument has a value that is not accepted."""


class BadImage(PicmeError):
    """A picture can't be read or has a form that is not supported."""


class UnknownImageFormat(BadImage):
    """A file is not a picture of any format that is read here."""


class ImageTooLarge(BadImage):
    """A picture declares more pixels than the limit; nothing was allocated."""


class BadMask(PicmeError):
    """A mask can't be read, or does not fit its photo."""


class BadVideo(PicmeError):
    """A video can't be read or written, or has a form that is not supported."""


class BadBundle(PicmeError):
    """A bundle is damaged, tampered with or of another format; nothing of it was loaded."""


class BadToken(PicmeError):
    """A result token is damaged or belongs to another model."""


class BackendUnavailable(PicmeError):
    """The requested back end or device is not available on this machine."""


class NumericalError(PicmeError):
    """A graph produced numbers that are not finite."""


class Closed(PicmeError):
    """The object was closed before or during the call."""


class FileExists(PicmeError):
    """An output exists already; nothing was written."""


class BadConfig(PicmeError, ValueError):
    """A training configuration has a value that can't be trained with."""


class DataError(PicmeError, ValueError):
    """The pictures to train or evaluate with can't be used as given."""


class CheckpointError(PicmeError, ValueError):
    """A training checkpoint can't be used or written."""


class BackboneMissing(PicmeError, ValueError):
    """The weights of the discriminator's frozen network are not installed."""


class NotFiniteError(PicmeError, RuntimeError):
    """The loss of a training step is not a finite number."""


class ExportError(PicmeError, RuntimeError):
    """A step of the export failed; nothing was written."""


def describe(error: Exception) -> str:
    """One line for a report: our own and the system's errors as they are, others with their type."""
    return str(error) if isinstance(error, (PicmeError, OSError)) else f"{type(error).__name__}: {error}"

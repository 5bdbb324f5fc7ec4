"""The one family of errors. Each text reads: what was given | what was expected | how to cure it."""

from __future__ import annotations


class PicmeError(Exception):
    """Base of everything that this package raises on purpose."""

    def __init__(self, given: str, expected: str, cure: str) -> None:
        super().__init__(f"{given} | expected {expected} | {cure}")
        self.given, self.expected, self.cure = given, expected, cure

    def __reduce__(self) -> tuple[type[PicmeError], tuple[str, str, str]]:
        return type(self), (self.given, self.expected, self.cure)


class BadArgument(PicmeError, ValueError):
    """An argument has a value that it can't have."""


class BadImage(PicmeError):
    """A picture can't be read or has a form that is not supported."""


class ImageTooLarge(BadImage):
    """A picture declares more pixels than the limit; nothing was allocated."""


class BadMask(PicmeError):
    """A mask can't be read, or does not fit its photo."""


class BadBundle(PicmeError):
    """A bundle is damaged, tampered with or of another format; nothing of it was loaded."""


class BadToken(PicmeError):
    """A result token is damaged or belongs to another model."""


class BackendUnavailable(PicmeError):
    """The wanted back end or device can't be had on this machine."""


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

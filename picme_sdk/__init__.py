"""PICME SDK: pluralistic image completion at the edge.

    from picme_sdk import Completer

Importing this package is cheap: numpy, pillow and the back end are imported when `Completer` is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from picme_sdk.completer import Completer
    from picme_sdk.errors import PicmeError
    from picme_sdk.scene import Completion, Scene

__version__ = "0.1.0"
__all__ = ["Completer", "Completion", "PicmeError", "Scene", "__version__"]

_HOMES = {"Completer": "completer", "Completion": "scene", "Scene": "scene", "PicmeError": "errors"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

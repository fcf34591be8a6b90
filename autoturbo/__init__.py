"""AutoTurbo: an autotuner that schedules whole neural networks on scratchpad accelerators.

    >>> import autoturbo
    >>> model = autoturbo.load_model("resnet50.onnx", batch=64)
    >>> target = autoturbo.load_target("stcp920")
    >>> result = autoturbo.tune(model, target, trials=200, seed=0)
    >>> result.best.schedule.save("resnet50.stcp920.json")

Everything here is loaded on first use, so that ``import autoturbo`` costs next to nothing: nor is
there much time in which Ctrl-C finds a command without its handlers.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to load than this package
if TYPE_CHECKING:
    from autoturbo.api import *  # noqa: F403  what is there is listed there
    from autoturbo.api import __all__ as __all__


def __getattr__(name: str) -> object:
    from importlib import import_module

    value: object = getattr(import_module("autoturbo.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from importlib import import_module

    names: list[str] = import_module("autoturbo.api").__all__
    return sorted({*globals(), *names})

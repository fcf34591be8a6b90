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

from autoturbo import api

TYPE_CHECKING = False  # typing itself takes longer to load than this package
if TYPE_CHECKING:
    from autoturbo.api import (
        CostModelSampler as CostModelSampler,
    )
    from autoturbo.api import (
        Graph as Graph,
    )
    from autoturbo.api import (
        Knobs as Knobs,
    )
    from autoturbo.api import (
        Measurement as Measurement,
    )
    from autoturbo.api import (
        Target as Target,
    )
    from autoturbo.api import (
        __version__ as __version__,
    )
    from autoturbo.api import (
        apply_schedule as apply_schedule,
    )
    from autoturbo.api import (
        compare as compare,
    )
    from autoturbo.api import (
        errors as errors,
    )
    from autoturbo.api import (
        load_machine as load_machine,
    )
    from autoturbo.api import (
        load_model as load_model,
    )
    from autoturbo.api import (
        load_schedule as load_schedule,
    )
    from autoturbo.api import (
        load_target as load_target,
    )
    from autoturbo.api import (
        resume as resume,
    )
    from autoturbo.api import (
        sweep as sweep,
    )
    from autoturbo.api import (
        testing as testing,
    )
    from autoturbo.api import (
        tune as tune,
    )
    from autoturbo.api import (
        verify_schedule as verify_schedule,
    )

__all__ = api.__all__


def __getattr__(name: str) -> object:
    value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The second opinion on shapes: onnxslim, for operators that ONNX itself has no definition of.

onnxslim carries a symbolic shape inference that knows ONNX Runtime's own operators
(``com.microsoft``). It is asked once per import, and only if a shape is not known without it,
because it takes a second to load and several to run on a large graph.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import TYPE_CHECKING

from onnx import ModelProto, TypeProto, helper

from autoturbo.graph.external_data import is_stored
from autoturbo.graph.source import Source, one_line
from autoturbo.graph.values import static_shape, tensor_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autoturbo.graph.values import Value


def slim_types(
    model: ModelProto, inputs: Sequence[Value], source: Source
) -> Mapping[str, TypeProto]:
    """Types that onnxslim finds, by value name; empty if it fails, which is noted.

    Args:
        model: the model; left as it is.
        inputs: its real inputs and the inputs that are weights, of static shape.
        source: where it is from.
    """
    try:
        with _quiet():
            import onnxslim

            slimmed = onnxslim.slim(_promoted(model, inputs))
    except Exception as error:  # noqa: BLE001 - whatever it stumbles over, it is only an opinion
        source.note(f"onnxslim gave up ({one_line(error)}): only ONNX's own inference was used")
        return {}
    known = (*slimmed.graph.value_info, *slimmed.graph.output)
    return {v.name: v.type for v in known if static_shape(v.type) is not None}


def _promoted(model: ModelProto, inputs: Sequence[Value]) -> ModelProto:
    """The model with static inputs, its large initializers as inputs too: nothing is copied."""
    promoted = ModelProto()
    promoted.CopyFrom(model)
    graph = promoted.graph
    stored = [tensor for tensor in graph.initializer if is_stored(tensor)]
    large = [tensor for tensor in model.graph.initializer if not is_stored(tensor)]
    types = {value.name: value.type for value in inputs}
    types.update((t.name, tensor_type(t.data_type, t.dims)) for t in large)
    kept = [tensor.SerializeToString() for tensor in stored]
    del graph.initializer[:], graph.input[:], graph.value_info[:]
    for data in kept:
        graph.initializer.add().ParseFromString(data)
    graph.input.extend(helper.make_value_info(name, kind) for name, kind in types.items())
    return promoted


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep a library's prints, log lines and warnings to itself."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)

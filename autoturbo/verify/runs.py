"""Runs of the original and of the scheduled model, with any of their values as results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto

from autoturbo.errors import UnrunnableError
from autoturbo.graph.model_nodes import ModelNodes
from autoturbo.graph.operators import Graph
from autoturbo.graph.weight_values import Array
from autoturbo.verify.at_batch import nodes_at
from autoturbo.verify.plain_model import plain_model
from autoturbo.verify.sessions import open_session, run, with_outputs
from autoturbo.verify.setting import Setting


class BrokenModelError(Exception):
    """The scheduled model does not run, though the original does."""


@dataclass(eq=False)
class Runs:
    """What gives values of both models on the inputs of a setting.

    Attributes:
        setting: with the original.
        graph: the whole model.
        proto: the scheduled model.
    """

    setting: Setting
    graph: Graph
    proto: ModelProto

    @functools.cached_property
    def nodes(self) -> ModelNodes:
        """Of the original at the samples that are run."""
        if not self.setting.whole:
            return self.setting.nodes
        return nodes_at(self.setting.original, self.graph, self.graph)

    @functools.cached_property
    def _reference(self) -> ModelProto:
        return onnx.load(self.setting.reference, load_external_data=False)

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        """Values that the original names as the graph does."""
        return frozenset(name for node in self._reference.graph.node for name in node.output)

    def originals(self, tensors: Sequence[int]) -> dict[int, Array]:
        """Tensors of the original, of all samples that are run.

        Raises:
            UnrunnableError: ONNX Runtime cannot run it.
        """
        return self.outputs_and(tensors)[1]

    def outputs_and(self, tensors: Sequence[int]) -> tuple[dict[str, Array], dict[int, Array]]:
        """The original's outputs, and tensors of it.

        Raises:
            UnrunnableError: ONNX Runtime cannot run it.
        """
        names = {t: self.nodes.graph.tensors[t].name for t in dict.fromkeys(tensors)}
        known = [name for name in names.values() if name in self._known]
        own = [value.name for value in self._reference.graph.output]
        values = self._values(self._reference, "reference", [*known, *own])
        rest = [name for name in names.values() if name not in values]
        if set(rest) - set(self.setting.feeds):
            values |= self._values(plain_model(self.nodes), "plain", rest)
        values |= {name: self.setting.feeds[name] for name in rest if name in self.setting.feeds}
        outputs = {name: values[name] for name in own}
        return outputs, {t: values[name] for t, name in names.items()}

    def scheduled(self, names: Sequence[str]) -> dict[str, Array]:
        """Values of the scheduled model; its inputs may be among them.

        Raises:
            BrokenModelError: it does not run.
        """
        try:
            return self._values(self.proto, "scheduled", names)
        except UnrunnableError as error:
            raise BrokenModelError(str(error)) from None

    def _values(self, model: ModelProto, kind: str, names: Sequence[str]) -> dict[str, Array]:
        feeds = self.setting.feeds
        asked = [name for name in dict.fromkeys(names) if name not in feeds]
        given = {name: feeds[name] for name in names if name in feeds}
        if not asked:
            return given
        path = self.setting.folder / f"{kind}-values.onnx"
        onnx.save(with_outputs(model, asked), path)
        return given | run(open_session(path), feeds, asked)

"""The door from a model file to a :class:`~autoturbo.graph.operators.Graph`.

A reader's map of :mod:`autoturbo.graph.importer`, in the order in which things happen:

1. :mod:`model_file` reads the file without large values and checks its versions;
2. :mod:`constants` gathers those of bodies, :mod:`external_data` checks weights, in the file and
   beside it, and reads the small ones;
3. :mod:`inputs` tells weights from real inputs, :mod:`freeze` gives those static shapes;
4. :mod:`propagate` goes through the nodes once: shapes, small constants, what folds away
   (twice where the batch is written into the file's constants: :mod:`rebatch`);
5. :mod:`assemble` turns what is left into operators, each described by the operator table.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto, TypeProto, ValueInfoProto

from autoturbo.errors import ModelError
from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.importer.assemble import build_graph, check_size
from autoturbo.graph.importer.constants import densify, gather
from autoturbo.graph.importer.external_data import attach
from autoturbo.graph.importer.fitting import (
    MOST_SYMBOLS,
    MisfitError,
    Relations,
    examples,
    mended,
    relations,
)
from autoturbo.graph.importer.freeze import (
    Extents,
    Frozen,
    declared_dims,
    flags_for,
    freeze,
    in_doubt,
    resolve,
    symbols_of,
)
from autoturbo.graph.importer.inputs import NO_SAMPLES, real_inputs, sample_dims
from autoturbo.graph.importer.model_file import open_model
from autoturbo.graph.importer.propagate import Program, Propagation
from autoturbo.graph.importer.rebatch import Rebatch
from autoturbo.graph.importer.samples import disagreement, stated_samples
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import SEED_KEY, Source
from autoturbo.graph.values import (
    Value,
    element_type,
    nothing,
    spread,
    static_shape,
    tensor_type,
)

Values = Mapping[str, Sequence[float]]
"""Elements by input name."""


def import_model(
    path: str | Path,
    *,
    batch: int | None = None,
    batch_dim: str | Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
) -> Graph:
    """Return the graph of an ONNX file, with static shapes and constants folded.

    Weights are not read: memory and time depend on the number of nodes only.

    Args:
        path: The file.
        batch: Samples processed at once; None keeps the file's own, or 1 where it has none.
        batch_dim: What counts samples, where names, operators and the agreement of inputs do not
            say it: the name of a dimension, or ``INPUT:AXIS``, or several.
        shapes: Extents by input name, where the batch does not say enough.
        dims: Extents by the name that the file gives a dimension, in all inputs.
        values: Elements by input name, one for all or as many as the input has: what depends on
            them alone is decided now.

    Raises:
        ModelError: The file is not usable, with the node or tensor and how to mend it.
    """
    source = Source(Path(path))
    said = (batch_dim,) if isinstance(batch_dim, str) else tuple(batch_dim)
    graph = _imported(source, Extents(batch, shapes or {}, dims or {}, said), values)
    return replace(graph, fixed=_fixed(source, graph, values))


def _imported(source: Source, asked: Extents, values: Values | None) -> Graph:
    """Return the graph of a file.

    The first dimensions are given the batch that is asked for where nothing says which dimensions
    are the samples. If samples cannot be followed then, those that the file's own batch has are.

    Raises:
        ModelError: As :func:`import_model` does.
    """
    try:
        _, program = read_program(source, asked, values)
        graph = build_graph(program, source).graph
    except ModelError:
        found = _guessed_otherwise(source, asked, values)
        if found is None:
            raise
        return found
    followed = graph.batch > 1 and trace_batch(graph).obstacle is None
    guessed = not program.samples and not followed
    return (guessed and _guessed_otherwise(source, asked, values)) or graph


def _guessed_otherwise(source: Source, asked: Extents, values: Values | None) -> Graph | None:
    """Return the graph with the requested batch where the file's own is; None if it leads."""
    if asked.batch is None or asked.shapes or asked.samples is not None:
        return None
    try:
        samples = _samples_of_file(source, asked, values)
    except ModelError:
        return None
    if not any((samples or {}).values()):
        return None
    # They are of the first reading, which is given up.
    source.notes.clear()
    _, program = read_program(source, replace(asked, samples=samples), values)
    return build_graph(program, source).graph


def _samples_of_file(
    source: Source, asked: Extents, values: Values | None
) -> dict[str, int] | None:
    """Return the dimension that counts samples in every input, at the file's own batch.

    Returns:
        By input name; None where the inputs do not agree and one sample is asked for: they are one.

    Raises:
        ModelError: The inputs do not agree, or the file cannot be read at its own batch.
    """  # noqa: DOC501  disagreement() makes the error
    first = Source(source.path)
    _, program = read_program(first, replace(asked, batch=None), values)
    graph = build_graph(program, first).graph
    if graph.agreed:
        return samples_by_name(graph)
    if asked.batch == 1:
        return None
    raise disagreement(graph, source)


def samples_by_name(graph: Graph) -> dict[str, int]:
    """Return the dimension that counts samples in every input; below 0 where there is none."""
    return {graph.tensors[t].name: graph.samples.get(t, NO_SAMPLES) for t in graph.inputs}


def _fixed(
    source: Source, graph: Graph, values: Mapping[str, Sequence[float]] | None
) -> tuple[str, str, str] | None:
    """Return the operator by which a file is fixed to its batch, and why; None if there is none.

    The scheduler divides the samples among clusters and passes, and the file's nodes are rewritten
    for each share.
    """
    trace = trace_batch(graph)
    if graph.batch == 1 or trace.obstacle:
        return None
    single, source_again = rebatch(graph, 1, trace), Source(source.path)
    shapes = {single.tensors[t].name: single.tensors[t].shape for t in single.inputs}
    try:
        again = Extents(shapes=shapes, samples=samples_by_name(graph))
        _, program = read_program(source_again, again, values)
        reread = build_graph(program, source_again).graph
    except ModelError as error:
        return *_named(single, error.at.field), f"has the batch written into it: {error.message}"
    return _difference(reread, single)


def _named(graph: Graph, field: str | None) -> tuple[str, str]:
    """Return the name and kind of the operator that an error is about."""
    for operator in graph.operators:
        first = graph.tensors[operator.outputs[0]].name
        if field in (operator.name, f"{operator.kind} of {first!r}"):
            return operator.name, operator.kind
    return (field, "value") if field else (graph.name, "model")


def _difference(found: Graph, one: Graph) -> tuple[str, str, str] | None:
    """Return the first operator at which two imports of a model differ; None if they agree."""
    for ours, theirs in zip(found.operators, one.operators, strict=False):
        alike = ours.kind == theirs.kind and ours.inputs == theirs.inputs
        if not alike or ours.outputs != theirs.outputs:
            return theirs.name, theirs.kind, "reads or makes other values for one sample"
        for index in (*theirs.inputs, *theirs.outputs):
            shape, wanted = list(found.tensors[index].shape), one.tensors[index]
            if shape != list(wanted.shape):
                are = f"{shape} for one sample, not {list(wanted.shape)}"
                return theirs.name, theirs.kind, f"has {wanted.name} of shape {are}"
    return None


def read_program(
    source: Source,
    asked: Extents,
    values: Mapping[str, Sequence[float]] | None = None,
    *,
    whole: bool = False,
) -> tuple[ModelProto, Program]:
    """Return the model of a file, and its steps at static shapes.

    Args:
        source: Names the file.
        asked: Extents of its inputs.
        values: Elements by input name, as for :func:`import_model`.
        whole: Keep the large values that the file itself holds.

    Raises:
        ModelError: As :func:`import_model` does.
    """
    model = open_model(source, weights=whole)
    seeded = any(entry.key == SEED_KEY for entry in model.metadata_props)
    gather(model.graph)
    missing = attach(model.graph, source, seeded=seeded).missing
    densify(model.graph, source, whole=whole)
    inputs, weights = real_inputs(model.graph, source)
    _check_kinds(inputs, source)
    samples, declared = asked.samples, declared_dims(inputs)
    if samples is None:
        said = sample_dims(model.graph)
        samples = stated_samples(declared, asked.batch_dim, said, source)
        if in_doubt(declared, asked, samples):
            found = _samples_of_file(source, asked, values)
            asked = replace(asked, batch=None) if found is None else asked
            samples = found or samples
    fixed = [_weight(v, source) for v in model.graph.input if v.name in weights]
    importer = _Import(model, inputs, fixed, missing, source, values or {})
    trials = _Trials(importer, asked, samples)
    frozen = freeze(inputs, asked, source, samples, trials.guess)
    try:
        program = importer.program(frozen)
    except ModelError as error:
        raise trials.explained(error, frozen.known) from None
    program.samples, program.batch = samples, asked.batch
    return model, program


def _check_kinds(inputs: Iterable[ValueInfoProto], source: Source) -> None:
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise source.error("input is not a tensor", value.name, "export with tensor inputs")
        if value.type.tensor_type.elem_type == 0:
            raise source.error("input has no element type", value.name)


@dataclass(frozen=True, slots=True)
class _Import:
    """Runs the propagation, a second time where the batch is written into the file."""

    model: ModelProto
    inputs: Sequence[ValueInfoProto]
    weights: Sequence[Value]
    missing: Mapping[str, str]
    source: Source
    given: Mapping[str, Sequence[float]]

    def program(self, frozen: Frozen) -> Program:
        """Return the steps of the model at the given input shapes."""
        if frozen.baked is None:
            return self._run(frozen.shapes, frozen)
        told = len(self.source.notes)
        first = self._run(frozen.baked, frozen)
        # The first run is for shapes at the file's batch alone; the second says the same again.
        self.source.take_back(told)
        rebatch = Rebatch(frozen.batch, frozen.ratio, first.shapes)
        program = self._run(frozen.shapes, frozen, rebatch)
        rebatch.check(program.outputs, self.source)
        return program

    def try_out(self, asked: Extents, samples: Mapping[str, int]) -> None:
        """Import at some extents; an error other than MisfitError says nothing.

        Raises:
            MisfitError: They do not go together.
        """
        with contextlib.suppress(ModelError):
            frozen = freeze(self.inputs, asked, self.source, samples)
            self._run(frozen.shapes, frozen, trial=True)

    def _run(
        self,
        shapes: Mapping[str, Sequence[int]],
        frozen: Frozen,
        rebatch: Rebatch | None = None,
        *,
        trial: bool = False,
    ) -> Program:
        inputs = [
            Value(value.name, tensor_type(value.type.tensor_type.elem_type, shapes[value.name]))
            for value in self.inputs
        ]
        check_size(inputs, self.source)
        declared = self._declared(frozen, rebatch)
        propagation = Propagation(self.source, declared, self.missing, rebatch, trial)
        fixed = given_values(inputs, self.given, self.source)
        return propagation.run(self.model.graph, inputs, [*self.weights, *_empty(inputs), *fixed])

    def _declared(self, frozen: Frozen, rebatch: Rebatch | None) -> dict[str, TypeProto]:
        """Return the types that the file states, at the given input shapes."""
        # What the file states holds for the shapes that it was made for.
        if not frozen.as_declared:
            return {}
        stated = (*self.model.graph.value_info, *self.model.graph.output)
        types = {value.name: resolve(value.type, frozen.bindings) for value in stated}
        if rebatch is not None:
            types = {name: rebatch.scaled_type(kind) for name, kind in types.items()}
        return types


@dataclass(frozen=True, slots=True)
class _Trials:
    """Imports with other extents, to find out which go together.

    Attributes:
        importer: Runs them.
        asked: Extents that the user wants.
        samples: The dimension that counts samples, of inputs in which it is not the first.
    """

    importer: _Import
    asked: Extents
    samples: Mapping[str, int]

    def guess(self, known: Mapping[str, int], free: Mapping[str, int]) -> Mapping[str, int]:
        """Return extents that fit: known ones, and examples for the others."""
        return examples(self._relations(known), known, free) or {**free, **known}

    def explained(self, error: ModelError, known: Mapping[str, int]) -> ModelError:
        """Return an error that mends the given extents, or the error itself if they go together."""
        told = error.hint is not None and "--" in error.hint
        if not known or told or self._fit(known):
            return error
        found = self._relations(known)
        changed = mended(found, known)
        if not changed or not self._fit({**known, **changed}):
            return error
        symbol, extent = next(iter(changed.items()))
        by = "weights" if symbol in found and not found[symbol].terms else "other extents"
        text = f"dimension {symbol!r} is {known[symbol]}, which the {by} make {extent}"
        inputs = self.importer.inputs
        flags = [
            flag
            for name, other in changed.items()
            for flag in flags_for(name, other, self.asked, inputs)
        ]
        return self.importer.source.error(text, error.at.field, f"give {' '.join(flags)}")

    def _relations(self, known: Mapping[str, int]) -> Relations:
        symbols = list(dict.fromkeys(s for several in self._symbols.values() for s in several))
        given = {name: known[name] for name in symbols if name in known}
        # Only where there are too many to be told apart by numbers: a tie is a guess.
        tied = self._tied() if len(symbols) > MOST_SYMBOLS else {}
        return relations(symbols, given, self._try, tied)

    def _tied(self) -> dict[str, str]:
        """Return symbols that stand where those of an input alike stand: caches of all layers."""
        first: dict[object, str] = {}
        tied: dict[str, str] = {}
        for value in self.importer.inputs:
            dims = value.type.tensor_type.shape.dim
            alike = tuple(dim.dim_value for dim in dims), value.type.tensor_type.elem_type
            for place, symbol in enumerate(self._symbols[value.name]):
                other = first.setdefault((alike, place), symbol)
                if other != symbol and symbol not in first.values():
                    tied[symbol] = tied.get(other, other)
        return tied

    @property
    def _symbols(self) -> dict[str, list[str]]:
        return symbols_of(self.importer.inputs)

    def _fit(self, extents: Mapping[str, int]) -> bool:
        try:
            self._try(extents)
        except MisfitError:
            return False
        return True

    def _try(self, extents: Mapping[str, int]) -> None:
        shapes = {name: s for name, s in self.asked.shapes.items() if not self._symbols.get(name)}
        importer = self.importer
        # A trial's notes are not the model's.
        alone = replace(importer, source=replace(importer.source, notes={}, given=[]))
        alone.try_out(Extents(shapes=shapes, dims=extents), self.samples)


def _empty(inputs: Iterable[Value]) -> list[Value]:
    """Return constants that stand for inputs without elements."""
    return [
        Value(value.name, value.type, constant=True, data=nothing(value.type))
        for value in inputs
        if value.empty
    ]


def given_values(
    inputs: Sequence[Value], given: Mapping[str, Sequence[float]], source: Source
) -> list[Value]:
    """Return constants that stand for inputs whose elements are given.

    Raises:
        ModelError: No input has the name, or it has another number of elements.
    """
    known = {value.name: value for value in inputs}
    fixed = []
    for name, elements in given.items():
        value = known.get(name)
        if value is None:
            hint = f"inputs are {', '.join(known)}"
            raise source.error("--value names no input of the model", name, hint)
        shape = value.shape or ()
        if len(elements) not in (1, math.prod(shape)):
            text = f"--value gives {len(elements)} elements, the input has {math.prod(shape)}"
            raise source.error(text, name)
        data = spread(elements, shape, element_type(value.type))
        fixed.append(Value(name, value.type, constant=True, data=data, given=(name,)))
        source.given.append((name, tuple(elements)))
    return fixed


def _weight(value: ValueInfoProto, source: Source) -> Value:
    if static_shape(value.type) is None:
        raise source.error("weight given as an input without a static shape", value.name)
    return Value(value.name, value.type, constant=True)

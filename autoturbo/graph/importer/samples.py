"""Which dimension of which input counts samples.

What is said comes first: by the user (``--batch-dim``), by the names of dimensions, by operators
that have a place for samples. Where nothing says it, the inputs vote once the graph is there: the
samples are the dimensions that can be followed to every output, else those that the inputs share.
Inputs that do not agree have no known batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autoturbo.errors import ModelError
from autoturbo.graph.batch import sample_dims_from, trace_batch
from autoturbo.graph.importer.inputs import NO_SAMPLES
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import Source

if TYPE_CHECKING:
    from autoturbo.graph.importer.freeze import Declared, Dim

NOT_SAMPLES = re.compile(
    "seq|len|tok|past|time|step|frame|point|pixel|height|width|chan|feat|box|node|edge|rows|cols",
    re.IGNORECASE,
)
"""Names of a leading dimension that is not the batch."""

_INNER = re.compile(
    "hidden|embed|dim$|mel|freq|class|head|layer|vocab|patch|roi|quer|^[^bnm]$", re.IGNORECASE
)
"""Further names that are not the batch wherever they stand."""

_BATCH = re.compile(r"batch|(^|[^a-z])(bs|bsz|bsize)($|[^a-z])", re.IGNORECASE)
"""Names that exporters give the batch."""

_COMPUTED = re.compile(
    r"[*/+()]|_x_|head|beam|seq|len|tok|node|edge|point|frame|box", re.IGNORECASE
)
"""What a name of the batch does not hold: then it counts something else for the whole batch."""

_ANOTHER = "--batch-dim NAME or INPUT:AXIS for another"
_HINT = "--batch-dim NAME or INPUT:AXIS states it"

UNKNOWN_BATCH = "the inputs do not agree on a batch"
"""The beginning of the note of a model without a known batch."""


# ------------------------------------------------------------------------------------ what is said


def stated_samples(
    declared: Declared, asked: Sequence[str], operators: Mapping[str, int], source: Source
) -> dict[str, int]:
    """Return the dimension that counts samples, of the inputs of which something says it.

    Args:
        declared: Extents by input name.
        asked: The user's words: names of dimensions, or ``INPUT:AXIS``.
        operators: The dimension by operators; :data:`NO_SAMPLES` for an input that has none.
        source: The file that the model comes from.

    Raises:
        ModelError: The user says something that the inputs do not have.
    """
    said = {k: v for text in asked for k, v in _asked(text, declared, source).items()}
    return {**operators, **(said or _by_name(declared))}


def _asked(text: str, declared: Declared, source: Source) -> dict[str, int]:
    named = _places(text, declared)
    name, _, axis = text.rpartition(":")
    if named or name not in declared or not axis.removeprefix("-").isdecimal():
        if named:
            return named
        hint = f"dimensions are {_listed(_names(declared))}; inputs are {_listed(declared)}"
        message = "--batch-dim names no dimension of the inputs and is no INPUT:AXIS"
        raise source.error(message, text, hint)
    dims, dim = declared[name], int(axis)
    rank = None if dims is None else len(dims)
    if rank is not None and not -rank <= dim < rank:
        raise source.error(f"--batch-dim {text}: the input has {rank} dimensions", name)
    dim = dim if rank is None or dim >= 0 else dim + rank
    symbol = dims[dim] if dims is not None else None
    return {**(_places(symbol, declared) if isinstance(symbol, str) else {}), name: dim}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "without names"


def _names(declared: Declared) -> list[str]:
    """Return the names of dimensions, in order of first appearance."""
    dims = (dim for dims in declared.values() for dim in dims or ())
    return list(dict.fromkeys(dim for dim in dims if isinstance(dim, str)))


def _places(name: str, declared: Declared) -> dict[str, int]:
    """Return the dimension of a name in every input that has it."""
    return {key: dims.index(name) for key, dims in declared.items() if dims and name in dims}


# -------------------------------------------------------------------------------- what names say

_NAMED, _B, _N, _OPEN, _OTHER = range(5)
"""How well a name suits the batch: called batch, B, N, anything, something else."""


def _suits(name: str) -> int:
    if _BATCH.search(name) and not _COMPUTED.search(name):
        return _NAMED
    letters = {"b": _B, "n": _N}
    if name.lower() in letters:
        return letters[name.lower()]
    return _OTHER if NOT_SAMPLES.search(name) or _INNER.search(name) else _OPEN


def _by_name(declared: Declared) -> dict[str, int]:
    """Return the dimension of samples of the inputs of which a name says it.

    A dimension called batch, whatever inputs have it; else one that all inputs with names share,
    unless B or N stand before it; else B; else N.
    """
    names = {name: _suits(name) for name in _names(declared)}
    # Whatever else names say: who writes batch means it.
    batches = [name for name, suits in names.items() if suits == _NAMED]
    if batches:
        return _all_places(batches, declared)
    possible = [name for name in names if names[name] < _OTHER and _may_be(name, declared)]
    shared = [name for name in possible if _shared(name, declared)]
    best = min(map(names.__getitem__, shared), default=_OTHER)
    chosen = [name for name in shared if names[name] == best]
    letters = [name for name in possible if names[name] in (_B, _N)]
    letter = min(letters, key=names.__getitem__, default="")
    # A name that could be anything decides only if it alone is shared.
    if best == _OPEN and not _telling(chosen, names, declared):
        chosen = []
    # N counts nodes, words and points as often as samples: it yields to what all inputs share.
    if letter and (not chosen or (names[letter] < best and _leads(letter, chosen, declared))):
        return _all_places([letter], declared)
    return _all_places(chosen, declared) if len(chosen) == 1 else {}


def _telling(chosen: Sequence[str], names: Mapping[str, int], declared: Declared) -> bool:
    """Return whether a name that says nothing tells the batch from other dimensions.

    It does not where all inputs share others, or where all begin with it anyway.
    """
    others = [name for name in names if names[name] == _OPEN and _shared(name, declared)]
    first = {dims[0] for dims in declared.values() if dims and len(dims) > 1}
    return others == [*chosen] and first != {*chosen}


def _all_places(names: Sequence[str], declared: Declared) -> dict[str, int]:
    """Return the dimension of the first of some names that each input has."""
    return {k: v for name in reversed(names) for k, v in _places(name, declared).items()}


def _shared(name: str, declared: Declared) -> bool:
    """Return whether all inputs with names have this one."""
    named = [dims for dims in declared.values() if any(isinstance(dim, str) for dim in dims or ())]
    return all(name in (dims or ()) for dims in named)


def _may_be(name: str, declared: Declared) -> bool:
    """Return whether a name other than batch can be the batch where it stands.

    It leads in an input; or what stands before it is named otherwise, or differs among inputs. An
    extent of 1 before it is the batch itself.
    """
    having = [dims for dims in declared.values() if dims and name in dims]
    leading = [dims[0] for dims in having]
    otherwise = any(isinstance(dim, str) and _suits(dim) > _suits(name) for dim in leading)
    return name in leading or otherwise or (1 not in leading and len(set(leading)) > 1)


def _leads(name: str, others: Sequence[str], declared: Declared) -> bool:
    """Return whether an input has a name before one of some others."""
    return any(
        dims.index(name) < dims.index(other)
        for dims in declared.values()
        for other in others
        if dims and name in dims and other in dims
    )


def like_a_batch(dim: Dim) -> bool:
    """Return whether an open leading dimension may be the batch."""
    return dim != 0 and not (isinstance(dim, str) and NOT_SAMPLES.search(dim))


# --------------------------------------------------------------------------- what the graph says


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A choice of the dimensions that count samples.

    Attributes:
        batch: The number of samples.
        dims: The dimension that counts them, by input that has them.
        note: Note for the user on the choice.
        agreed: The inputs agree on it.
    """

    batch: int
    dims: Mapping[int, int]
    note: str = ""
    agreed: bool = True


def with_samples(
    graph: Graph, stated: Mapping[str, int], asked: int | None, source: Source
) -> Graph:
    """Return a graph with its batch, and the dimension that counts samples in every input.

    Args:
        graph: A graph without.
        stated: The dimension by input name, where something says it; of all inputs where it is
            known.
        asked: The batch that was asked for, if any was.
        source: The file that the model is from; takes a note where inputs have different extents.
    """
    dims = {t: stated.get(graph.tensors[t].name) for t in graph.inputs}
    said = {t: dim for t, dim in dims.items() if dim is not None and _has(graph, t, dim)}
    if None not in dims.values():
        verdict = _known(graph, said)
    elif said:
        verdict = _completed(graph, said)
    else:
        verdict = _voted(graph, asked)
    if verdict.note:
        source.note(verdict.note)
    return replace(
        graph.sampled(verdict.batch, verdict.dims),
        agreed=verdict.agreed,
        notes=tuple(source.notes),
    )


def _has(graph: Graph, tensor: int, dim: int) -> bool:
    return NO_SAMPLES < dim < len(graph.tensors[tensor].shape)


def _extents(graph: Graph, dims: Mapping[int, int]) -> list[int]:
    return [graph.tensors[tensor].shape[dim] for tensor, dim in dims.items()]


def _known(graph: Graph, dims: Mapping[int, int]) -> _Verdict:
    """Return the verdict where the dimension is known of every input."""
    extents = Counter(_extents(graph, dims))
    if len(extents) > 1:
        return _disagreed(graph, dims)
    return _Verdict(next(iter(extents), 1), dims)


def _completed(graph: Graph, said: Mapping[int, int]) -> _Verdict:
    """Return the verdict where the dimension is known of some inputs.

    Of the others those have samples that begin with as many, if samples can be followed then; else
    those that are combined with samples.
    """
    extents = set(_extents(graph, said))
    if len(extents) > 1:
        return _disagreed(graph, said)
    batch = extents.pop()
    alike = {**_leading(graph, batch), **said}
    # Inputs that begin with as many by chance stand in the way of following the samples.
    if batch > 1 and trace_batch(graph.sampled(batch, alike)).obstacle:
        alike = sample_dims_from(graph, batch, said) or alike
    return _Verdict(batch, alike)


def _leading(graph: Graph, batch: int) -> dict[int, int]:
    """Return the inputs that begin with a number of samples."""
    return {t: 0 for t in graph.inputs if graph.tensors[t].shape[:1] == (batch,)}


def _disagreed(graph: Graph, dims: Mapping[int, int]) -> _Verdict:
    """Return the verdict where inputs do not agree: one evaluation is one sample."""
    extents = (f"{graph.tensors[t].name}: {graph.tensors[t].shape[d]}" for t, d in dims.items())
    text = f"{UNKNOWN_BATCH} ({', '.join(extents)}): no samples/s; {_HINT}"
    return _Verdict(1, {}, text, agreed=False)


def disagreement(graph: Graph, source: Source) -> ModelError:
    """Return the error for a batch that is asked for where the inputs do not agree on it."""
    shapes = (f"{graph.tensors[t].name} {list(graph.tensors[t].shape)}" for t in graph.inputs)
    return source.error(f"--batch was given, but {UNKNOWN_BATCH}: {', '.join(shapes)}", hint=_HINT)


# ------------------------------------------------------------------------------ the vote of inputs


def _voted(graph: Graph, asked: int | None) -> _Verdict:
    """Return the verdict where nothing says which dimensions are the samples."""
    first = {t: 0 for t in graph.inputs if graph.tensors[t].shape}
    counts = Counter(_extents(graph, first))
    # What the user asks for is taken at their word; extents of 1 everywhere are one sample.
    if asked in counts or set(counts) <= {1}:
        batch = asked if asked in counts and asked is not None else 1
        return _noted(graph, _Verdict(batch, _leading(graph, batch)))
    passing = _passing(graph, _joint(graph, counts))
    if passing and not _single(graph) and not any(_everywhere(graph, dims) for dims in passing):
        # queries apart from each other beside a memory: what both have behind are samples
        alike = _passing(graph, _behind_alike(graph))
        passing = [dims for dims in alike if _everywhere(graph, dims)] or passing
    doubtful = len(counts) > 1 or any(_mixes(graph, n) for n in counts)
    if not passing and doubtful and not _single(graph):
        # a first dimension of all inputs is given up only where operators compute across it
        behind = _passing(graph, _behind(graph))
        passing = [dims for dims in behind if _covers(graph, dims)]
    if passing:
        best = _best(graph, passing)
        if best is None:
            return _disagreed(graph, first)
        return _noted(graph, _Verdict(_extents(graph, best)[0], best))
    return _noted(graph, _shared_extent(graph, counts, first))


def _noted(graph: Graph, verdict: _Verdict) -> _Verdict:
    """Return a verdict with a note if an input begins with another number."""
    shapes = {t: graph.tensors[t].shape for t in graph.inputs}
    others = [t for t, shape in shapes.items() if shape and shape[0] != verdict.batch]
    if not others or verdict.note:
        return verdict
    begin = ", ".join(f"{graph.tensors[t].name}: {shapes[t][0]}" for t in others)
    text = f"batch taken as {verdict.batch}; not all inputs begin with it ({begin})"
    return replace(verdict, note=f"{text}; {_ANOTHER}")


def _single(graph: Graph) -> bool:
    """Return whether an input of several dimensions begins with one sample."""
    return any(graph.tensors[t].shape[:1] == (1,) for t in _data(graph))


def _data(graph: Graph) -> list[int]:
    """Return the inputs of more than one dimension."""
    return [t for t in graph.inputs if len(graph.tensors[t].shape) > 1]


def _kinds(graph: Graph) -> list[int]:
    """Return the inputs of several dimensions and samples, but one of each shape."""
    first: dict[tuple[int, ...], int] = {}
    for t in _data(graph):
        first.setdefault(graph.tensors[t].shape, t)
    return [t for shape, t in first.items() if shape[0] > 1]


def _joint(graph: Graph, counts: Counter[int]) -> Iterator[dict[int, int]]:
    """Return first dimensions that may be samples: of inputs that begin alike, or of one."""
    # The most common extent first: proposals that an earlier one contains are not tried again.
    yield from (_leading(graph, count) for count, _ in counts.most_common() if count > 1)
    yield from ({t: 0} for t in _kinds(graph))


def _behind_alike(graph: Graph) -> Iterator[dict[int, int]]:
    """Return further dimensions that all inputs of so many have of one extent."""
    shapes = {t: _countable(graph, t) for t in _data(graph)}
    for dim in range(1, max(map(len, shapes.values()), default=0)):
        extents = {shape[dim] for shape in shapes.values() if dim < len(shape)}
        if len(extents) == 1 and extents != {1}:
            yield {t: dim for t, shape in shapes.items() if dim < len(shape)}


def _behind(graph: Graph) -> Iterator[dict[int, int]]:
    """Return further dimensions that may be samples: the same of all inputs, or one of one."""
    yield from _behind_alike(graph)
    for t in _kinds(graph):
        extents = enumerate(_countable(graph, t))
        yield from ({t: dim} for dim, extent in extents if dim and extent > 1)


_WORDS = ("int64", "int32")
"""Types of inputs whose last dimension may count samples: words, time before samples."""


def _everywhere(graph: Graph, dims: Mapping[int, int]) -> bool:
    """Return whether all inputs of several dimensions have samples."""
    return dims.keys() >= {*_data(graph)}


def _covers(graph: Graph, dims: Mapping[int, int]) -> bool:
    """Return whether inputs without samples have extents of those with samples: masks have."""
    extents = {extent for t in dims for extent in graph.tensors[t].shape}
    return all(extents.issuperset(graph.tensors[t].shape) for t in _data(graph) if t not in dims)


def _countable(graph: Graph, tensor: int) -> tuple[int, ...]:
    """Return the extents that may count samples: the last one of real values has features."""
    shape, words = graph.tensors[tensor].shape, graph.tensors[tensor].dtype in _WORDS
    # Real values have features last; words may have time first and samples last.
    return shape if words else shape[:-1]


def _mixes(graph: Graph, batch: int) -> bool:
    """Return whether an operator mixes what the inputs that begin with an extent have there."""
    obstacle = trace_batch(graph.sampled(batch, _leading(graph, batch))).obstacle
    return obstacle is not None and obstacle.mixes


def _passing(graph: Graph, proposals: Iterable[dict[int, int]]) -> list[dict[int, int]]:
    """Return the dimensions that samples can be followed from, completed; each once."""
    passing: list[dict[int, int]] = []
    for proposal in proposals:
        if any(proposal.items() <= found.items() for found in passing):
            continue
        found = sample_dims_from(graph, _extents(graph, proposal)[0], proposal)
        if found is not None and found not in passing:
            passing.append(found)
    return passing


def _weight(graph: Graph, dims: Mapping[int, int]) -> tuple[int, int]:
    """Return a rank of proposed dimensions: most dimensions of an input they lead, their number."""
    return max((len(graph.tensors[t].shape) for t, dim in dims.items() if not dim), default=0), len(
        dims
    )


def _best(graph: Graph, passing: Sequence[dict[int, int]]) -> dict[int, int] | None:
    """Return the dimensions for which most speaks; None if others may be samples just as well."""
    most = max(_weight(graph, dims) for dims in passing)
    return next(
        (
            best
            for best in passing
            if _weight(graph, best) == most
            and not any(_rival(graph, dims, best) for dims in passing)
        ),
        None,
    )


def _rival(graph: Graph, dims: Mapping[int, int], best: Mapping[int, int]) -> bool:
    """Return whether other dimensions may be samples just as well.

    They are of other inputs, and no positions of the best one's inputs (a mask's are).
    """
    extents = {extent for t in best for extent in graph.tensors[t].shape}
    least = min(_weight(graph, best)[0], 2)
    apart = not dims.keys() & best.keys() and _extents(graph, dims)[0] not in extents
    return apart and _weight(graph, dims)[0] >= least


def _shared_extent(graph: Graph, counts: Counter[int], first: Mapping[int, int]) -> _Verdict:
    """Return the verdict where samples cannot be followed: what the inputs have in common.

    That is one sample behind a sequence, else an extent which leads one input and which all others
    have, else the one that leads more inputs than any other.
    """
    shapes = {t: graph.tensors[t].shape for t in _data(graph)}
    one = {t: e.index(1) for t in shapes if 1 in (e := _countable(graph, t))}
    if one and _covers(graph, one) and any(_mixes(graph, n) for n in counts):
        return _Verdict(1, one)
    common = [n for n in counts if all(n in shape for shape in shapes.values())]
    if len(common) == 1:
        batch = common[0]
        dims = {t: shape.index(batch) for t, shape in shapes.items()}
        return _Verdict(batch, {**_leading(graph, batch), **dims})
    (batch, most), *others = counts.most_common()
    # A tie says nothing.
    if others and others[0][1] == most:
        return _disagreed(graph, first)
    return _Verdict(batch, _leading(graph, batch))

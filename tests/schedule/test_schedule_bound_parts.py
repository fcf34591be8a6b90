"""Tables made for many bound parts at once are those of the templates, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.bind import binding_book, chosen_binding
from autoturbo.schedule.bound_parts import Bound, Known, bind_parts, bound_parts
from autoturbo.schedule.instances import parts_of
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, plan
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.templates import (
    Head,
    Row,
    Slot,
    TemplateTables,
    template_book,
    templates_of,
)
from autoturbo.simulate.evaluator import Evaluator

SPREADS = ((1, None), (3, None), (4, 1), (1 << 20, None), (1 << 20, 2))
"""Cores, some not a power of two, and the loop that is spread first."""


def bench(workload: str, target: str) -> Workbench:
    machine = load_target(target)
    graph = import_model(workloads.get(workload).file)
    return Evaluator(graph, machine, machine.default_dtype).bench


def rows(tables: TemplateTables, number: int) -> list[np.ndarray]:
    """What is said of one template, but for where it is in the tables."""
    head = tables.heads[number]
    layers = tables.rows[head[Head.ROW] : head[Head.ROW] + head[Head.LAYERS]]
    slots = tables.slots[head[Head.SLOT] : head[Head.SLOT] + head[Head.SLOTS]]
    wanted = slots[:, Slot.WANTED]
    known = wanted >= 0
    reads, writes = layers[:, Row.READS].sum(), layers[:, Row.WRITES].sum()
    return [
        head[[Head.LAYERS, Head.SLOTS, Head.WEIGHTS, Head.CORE_WEIGHTS, Head.WHOLE, Head.WRITES]],
        layers[:, [Row.READS, Row.WRITES, Row.REUSE]],
        tables.reads[layers[0, Row.READ] : layers[0, Row.READ] + reads],
        tables.writes[layers[0, Row.WRITE] : layers[0, Row.WRITE] + writes],
        slots[:, [Slot.TENSOR, Slot.RANK, Slot.ELEMENT]],
        known,
        tables.factors[wanted[known]],
        tables.ranks[wanted[known]],
    ]


def check(problem: Problem, bound: list[Bound]) -> None:
    """All tables of some parts against those of their templates."""
    numbers = bind_parts(problem, bound)
    book, tables = bound_parts(problem), bound_parts(problem).tables()
    for one, number in zip(bound, numbers.tolist(), strict=True):
        depth = None if one.depth < 0 else one.depth
        binding = chosen_binding(problem, one.shape, one.cores, depth)
        at = np.asarray([binding_book(problem).number(binding)])
        expected = int(templates_of(problem, np.asarray([one.shape]), at)[0])
        template = template_book(problem).templates[expected]
        wanted = rows(template_book(problem).tables(), expected)
        for mine, theirs in zip(rows(tables, number), wanted, strict=True):
            assert np.array_equal(mine, theirs)
        head, facts = tables.heads[number], book.facts.rows[number]
        stages = book.stages.rows[head[Head.ROW] : head[Head.ROW] + head[Head.LAYERS]]
        assert np.array_equal(stages, template.stages)
        assert facts[Known.CORES] == np.prod(binding)
        assert facts[Known.OUTPUTS] == sum(size for _, size, _ in template.writes[-1])


@pytest.mark.full
def test_tables_are_those_of_the_templates() -> None:
    """Sub-graphs of many layers, and layers one by one; operators with several outputs."""
    for knobs in (Knobs(), Knobs(max_layers=1)):
        problem, _, subgraphs = plan(bench("shufflenet_v2", "ipu-mk2"), knobs)
        bound = [
            Bound(shape, parts.inputs, cores, -1 if depth is None else depth)
            for parts in (parts_of(problem, s) for s in subgraphs)
            for shape in sorted(set(parts.shapes.tolist()))
            for cores, depth in SPREADS
        ]
        check(problem, bound)


@pytest.mark.full
def test_bound_twice_a_part_has_one_number() -> None:
    problem, _, subgraphs = plan(bench("squeezenet1_1", "stcp920"), Knobs())
    parts = parts_of(problem, subgraphs[0])
    one = Bound(int(parts.shapes[0]), parts.inputs, 2, -1)
    first, again = bind_parts(problem, [one, one]), bind_parts(problem, [one])
    assert set(first.tolist()) == set(again.tolist())
    assert bound_parts(problem).heads.count == 1

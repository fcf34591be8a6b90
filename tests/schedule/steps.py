"""Instances as objects; programs and signatures of kernels by steps, which tests may change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.stitch import clearances, local_edges
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.memory.timeline import Step
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.schedule import Schedule, digest_of, hash_kernels


def program_of(schedule: Schedule, step: Step) -> Instructions:
    """The program of one kernel."""
    layers, rules = step.template.layers, rules_at(schedule, step)
    edges, clear = local_edges(schedule.problem, layers), clearances(schedule.problem, layers)
    resident = step.weights_resident
    stages, streams = step.template.stages, step.streams
    return instruct(Kernel(stages, streams, edges, rules, resident, clear))


def signature_of(schedule: Schedule, step: Step) -> str:
    """A stable hash of all that one kernel's time depends on, as in ``Schedule.signatures``."""
    problem = schedule.problem
    digest = digest_of(problem.target.hash, problem.dtype, rules_at(schedule, step))
    template = np.frombuffer(step.template.digest, np.int64)
    resident, rows = np.asarray([step.weights_resident]), np.asarray([0, len(step.streams)])
    found = hash_kernels(digest[None], template[None], resident, rows, step.streams)
    return found.tobytes().hex()


def rules_at(schedule: Schedule, step: Step) -> InstructionRules:
    """How a kernel becomes instructions."""
    return schedule.rules_of(int(schedule.instances.subgraph[step.instance]))


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One part of a sub-graph, as in the arrays of an instance graph.

    Attributes:
        index: position in the list of instances (not in the order of execution).
        subgraph: index of its sub-graph.
        part: which part.
        shape: index of its class of equal extents.
        outputs: per output tensor of the sub-graph, the region made: array (rank, 2).
        inputs: per external input tensor, the region needed.
    """

    index: int
    subgraph: int
    part: int
    shape: int
    outputs: dict[int, Ints]
    inputs: dict[int, Ints]


def instance_of(graph: InstanceGraph, index: int) -> Instance:
    """One instance of a graph."""
    subgraph, part, shape = graph.subgraph[index], graph.part[index], graph.shape[index]
    return Instance(index, int(subgraph), int(part), int(shape), *graph.regions_of(index))


def instances_of(graph: InstanceGraph) -> tuple[Instance, ...]:
    """All instances of a graph, sub-graph by sub-graph."""
    return tuple(instance_of(graph, index) for index in range(graph.count))

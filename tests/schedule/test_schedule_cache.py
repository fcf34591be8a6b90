"""What is remembered of settings is bounded, and told apart as before."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from pathlib import Path

import pytest

from autoturbo.caches import BoundedCache
from autoturbo.schedule import pipeline
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import MIB, ModelScheduler, build_schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.plan import KernelStatistics
from tests.processes import started
from tests.schedule.schedule_samples import STCP920, workload


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    known: BoundedCache[str, str] = BoundedCache(8, 10, len)
    for key in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"):
        assert known.get(key, functools.partial(str, key)) == key
    assert (known.hits, known.misses, len(known), known.size) == (2, 4, 2, 8)


def test_the_newest_is_kept_whatever_it_takes() -> None:
    known: BoundedCache[int, bytes] = BoundedCache(8, 10, len)
    known.get(1, lambda: b"1")
    assert known.get(2, lambda: bytes(100)) is known.get(2, lambda: b"")
    assert (len(known), known.size) == (1, 100)


def test_a_cache_of_no_room_gives_the_same_schedules() -> None:
    settings = [Knobs(), Knobs(max_layers=3), Knobs(batches_per_cluster=1), Knobs(max_layers=3)]
    wide, narrow = (ModelScheduler(workload("resnet18"), STCP920, "float16") for _ in range(2))
    names = [name for name, store in vars(wide.cache).items() if isinstance(store, BoundedCache)]
    for name in names:
        setattr(narrow.cache, name, BoundedCache(1))
    texts = [
        [build_schedule(model_scheduler, k).text for k in settings]
        for model_scheduler in (wide, narrow)
    ]
    assert texts[0] == texts[1]
    assert (wide.cache.timelines.hits, wide.cache.timelines.misses) == (1, 3)
    assert [len(getattr(narrow.cache, name)) for name in names] == [1] * len(names)


def test_batch_sizes_share_one_bounded_cache() -> None:
    model_scheduler = ModelScheduler(workload("resnet18"), STCP920, "float16")
    numbers = []
    for batches in model_scheduler.batch_choices():
        build_schedule(model_scheduler, Knobs(batches_per_cluster=batches))
        numbers.append(model_scheduler.cache.plans.size)
    assert numbers == sorted(set(numbers))
    assert 0 < model_scheduler.cache.timelines.size <= 48 * MIB


def test_schedules_are_the_same_after_all_numbers_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = [Knobs(), Knobs(max_layers=3), Knobs()]
    wide, narrow = (ModelScheduler(workload("resnet18"), STCP920, "float16") for _ in range(2))
    found = [build_schedule(wide, knobs).text for knobs in settings]
    monkeypatch.setattr(pipeline, "BOOKS", 0)
    kept = [build_schedule(narrow, knobs) for knobs in settings]
    assert len({id(schedule.instances.book) for schedule in kept}) == len(settings)
    assert [schedule.text for schedule in kept] == found


def test_what_passes_remember_of_a_model_goes_with_it() -> None:
    evaluator = Evaluator(workload("resnet18"), STCP920, "float16")
    samples = evaluator.model_scheduler.batch_choices()[0]
    context = evaluator.model_scheduler.context(samples)
    book = evaluator.model_scheduler.parts(context)
    own = SubGraphKnobs(context.layers[0].name, cores=2, factor=2)
    for knobs in (Knobs(), Knobs(overrides=(own,)), Knobs(cluster_partitioning="spatial")):
        assert isinstance(evaluator.evaluate(knobs), Measurement)
    KernelStatistics(evaluator.model_scheduler).of_plan(Knobs())
    there = weakref.WeakSet[object]([context, book])
    del evaluator, context, book
    gc.collect()
    assert not there


@pytest.mark.full
def test_memory_of_a_long_chain_is_bounded(tmp_path: Path) -> None:
    script = (
        "import autoturbo; from bench_tools import peak_mib; from chains import chain;"
        "autoturbo.tune(chain(1000, 1), 'stcp920', trials=16, database='own.db', runs_folder='.');"
        "print(peak_mib())"
    )
    with started([sys.executable, "-c", script], cwd=tmp_path) as process:
        printed, told = process.communicate()
    assert process.returncode == 0, told
    assert float(printed.splitlines()[-1]) <= 600

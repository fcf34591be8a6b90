from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from autoturbo.datasets import workloads
from autoturbo.errors import UsageError

PAPER = {
    "resnet50": ("A", 64),
    "bert_base_s128": ("B", 32),
    "bert_base_s256": ("C", 16),
    "bert_large_s384": ("D", 8),
    "bert_base_s512": ("E", 8),
    "dlrm": ("F", 1024),
    "mobilenet_v2": ("G", 128),
    "vit_b16": ("H", 32),
    "densenet121": ("I", 32),
    "conformer": ("J", 12),
}

OTHERS = {
    "resnet18": 32,
    "vgg19": 16,
    "alexnet": 64,
    "googlenet": 32,
    "squeezenet1_1": 32,
    "zfnet": 16,
    "resnext50": 8,
    "shufflenet_v2": 64,
    "convnext_tiny": 16,
    "swin_t": 16,
    "efficientnet_b0": 32,
    "llama_prefill": 1,
    "llama_decode": 16,
    "unet": 2,
    "whisper_base_enc": 8,
    "yolov5s_like": 8,
}


def test_the_papers_ten_have_its_rows_and_batches() -> None:
    found = {name: workloads.get(name) for name in workloads.PAPER_TEN}
    assert {name: (w.paper_row, w.batch) for name, w in found.items()} == PAPER


def test_the_papers_ten_are_in_the_order_of_its_table() -> None:
    rows = [workloads.get(name).paper_row for name in workloads.PAPER_TEN]
    assert rows == list("ABCDEFGHIJ")


def test_names_list_the_papers_ten_first_and_then_the_others() -> None:
    assert workloads.names() == (*workloads.PAPER_TEN, *OTHERS)


def test_other_workloads_have_their_batch_and_no_row() -> None:
    found = {name: workloads.get(name) for name in OTHERS}
    assert {name: w.batch for name, w in found.items()} == OTHERS
    assert {w.paper_row for w in found.values()} == {None}


def test_names_are_unique_and_equal_the_entries_names() -> None:
    assert len(set(workloads.names())) == len(workloads.names())
    assert all(workloads.get(name).name == name for name in workloads.names())


def test_every_workload_says_its_source_and_family() -> None:
    for name in workloads.names():
        workload = workloads.get(name)
        assert workload.source
        assert workload.family


def test_a_workload_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        workloads.get("dlrm").batch = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("resnet-50", "resnet50"), ("ResNet50", "resnet50"), ("bert_base_128", "bert_base_s128")],
)
def test_an_unknown_name_offers_the_nearest(typo: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        workloads.get(typo)
    assert caught.value.hint == f"did you mean '{meant}'?"
    assert f"'{typo}'" in caught.value.message
    assert caught.value.exit_status == 2


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(UsageError) as caught:
        workloads.get("zzzzzz")
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in workloads.names())


def test_listing_workloads_imports_no_heavy_library() -> None:
    code = (
        "import sys; from autoturbo.datasets import workloads; workloads.names();"
        "print(sorted({'onnx', 'numpy', 'torch', 'onnxslim'} & set(sys.modules)))"
    )
    ran = subprocess.run(  # our own interpreter and code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"

"""Tables of measured times: what is read, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo.commands.loading import load_model
from autoturbo.errors import UsageError
from autoturbo.hardware import load_target
from autoturbo.tuning.measured_table import MeasuredTable, ProductCase, read_table

EDGE = load_target("examples/targets/edge.yaml")
GOOD = "m,k,n,dtype,latency_us\n8,16,16,int8,12.5\n"


def read(folder: Path, text: str) -> MeasuredTable:
    path = folder / "board.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path, EDGE, load_model)


def test_a_product(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    (one,) = found.cases
    assert isinstance(one, ProductCase)
    assert one.group == (1, 8, 16, 16)
    assert one.seconds == pytest.approx(12.5e-6)
    assert (found.name, len(found.sha256)) == ("board.csv", 64)


def test_optional_columns(tmp_path: Path) -> None:
    text = "batch,m,k,n,dtype,cores,input,output,rate_factor,time_ns,who\n"
    found = read(tmp_path, f"{text}2,8,16,16,int8,1,lb,ddr,0.5,900,me\n8,8,16,16,int8,,,,,90,me\n")
    first, second = found.cases
    assert isinstance(first, ProductCase)
    assert isinstance(second, ProductCase)
    assert found.unread == ("who",)
    assert first.machine(EDGE).cores == 1
    assert dict(first.machine(EDGE).matrix.rate) == {"int8": 1.0}
    assert not first.residence.input_in_ddr
    assert first.residence.output_in_ddr
    assert second.machine(EDGE) == EDGE
    assert min(first.simulated(EDGE), second.simulated(EDGE)) > EDGE.overheads.per_kernel


def test_a_batch_takes_longer(tmp_path: Path) -> None:
    text = "batch,m,k,n,dtype,time_ns\n8,64,256,256,int8,900\n1,64,256,256,int8,90\n"
    many, one = read(tmp_path, text).cases
    fixed = EDGE.overheads.per_kernel
    assert many.simulated(EDGE) - fixed > 5 * (one.simulated(EDGE) - fixed)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "board.csv:1: the table is empty; give a line of columns, then rows"),
        ("m,k,n,dtype,latency_us\n", "board.csv:1: the table has no rows; "),
        ("m,k,n,dtype\n", "board.csv:1: no column of times; give the measured times in one"),
        ("m,k,n,dtype,latency_s,time_ns\n", "board.csv:1: several columns of times; "),
        (GOOD.replace("k,", "", 1), "board.csv:1: k: no such column; a table has m,k,n,dtype or"),
        (GOOD.replace("12.5", "-1"), "board.csv:2: latency_us: '-1' is not a positive number; "),
        (GOOD.replace("12.5", "nan"), "board.csv:2: latency_us: 'nan' is not a positive number; "),
        (GOOD.replace("\n8,", "\n0,"), "board.csv:2: m: '0' is not an extent; whole numbers"),
        (GOOD.replace("int8", "int7"), "board.csv:2: dtype: 'int7' is no data type; did you"),
        (GOOD.replace("int8", "bfloat16"), "dtype: 'bfloat16' is not computed in by the target"),
        (GOOD + "8,16\n", "board.csv:3: too many or too few values; each row has 5"),
        (GOOD.replace("dtype", "dtype,cores").replace("int8", "int8,3"), "cores: the target has"),
        (GOOD.replace("dtype", "dtype,input").replace("int8", "int8,gb"), "'gb' is no memory"),
        ("schedule,latency_s\nbest.json,1\n", "board.csv:1: model: no such column"),
        ("schedule,model,latency_s\nno.json,no.onnx,1\n", "board.csv:2: schedule: "),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(tmp_path / "none.csv", EDGE, load_model)
    assert caught.value.at.file == tmp_path / "none.csv"

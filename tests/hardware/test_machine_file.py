"""Machines of several units: presets, and what is wrong with a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from autoturbo.errors import TargetError
from autoturbo.hardware import Target, load_target, scaffold
from autoturbo.hardware.document import Document, read_document
from autoturbo.hardware.machine import Machine
from autoturbo.hardware.machine_files import (
    find_target,
    load_machine,
    machine_from_dict,
    machine_names,
    machine_schema,
)
from tests.tiers import spread

PRESETS = Path(__file__).parents[2] / "autoturbo/hardware/presets/machines"


@pytest.mark.parametrize("name", spread(machine_names(), 3))
def test_presets_are_valid_and_say_where_every_figure_comes_from(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.dtypes
    assert not machine.units[0].takes
    for line in (PRESETS / f"{name}.yaml").read_text().splitlines():
        if re.match(r" *(- )?(?!kind|name|between)[a-z0-9_]+: *[^# ]", line):
            assert re.search(r"# .*(source|estimate):? ", line), line


def test_a_count_makes_alike_units() -> None:
    machine = load_machine("zcu102-vta4")
    assert [unit.name for unit in machine.units] == ["cpu", "npu0", "npu1", "npu2", "npu3"]
    assert len({unit.target.hash for unit in machine.units}) == 2
    assert machine.link(0, 3) is not None
    assert machine.link(1, 2) is None


def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PRESETS / "zcu102-vta.yaml").read_text())
    return found


def loaded(tmp_path: Path, value: dict[str, Any]) -> Machine:
    file = tmp_path / "machine.yaml"
    file.write_text(yaml.safe_dump(value, sort_keys=False))
    return load_machine(str(file))


def test_the_hash_holds_figures_and_not_the_name(tmp_path: Path) -> None:
    value = document()
    same = {**value, "name": "other", "description": "another"}
    assert loaded(tmp_path, same).hash == load_machine("zcu102-vta").hash
    assert loaded(tmp_path, {**value, "switch_us": 1}).hash != load_machine("zcu102-vta").hash


@pytest.mark.parametrize(
    ("change", "field"),
    spread(
        [
            ({"units": []}, "units"),
            ({"switch_us": -1}, "switch_us"),
            ({"swich_us": 3}, "swich_us"),
            ({"name": "No Good"}, "name"),
            (
                {"links": [{"between": ["cpu", "gpu"], "bandwidth_gb_s": 1}]},
                "links[0].between",
            ),
            (
                {"links": [{"between": ["cpu"], "bandwidth_gb_s": 1}]},
                "links[0].between",
            ),
            ({"schema_version": 9}, "schema_version"),
            ({"ddr": {"capacity_gib": 4}}, "ddr.bandwidth_gb_s"),
        ],
        3,
    ),
)
def test_what_is_wrong_is_said_where_it_stands(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(TargetError) as found:
        loaded(tmp_path, {**document(), **change})
    assert found.value.at.field == field
    assert "machine.yaml" in str(found.value)


def test_what_is_wrong_inside_a_unit_is_said_with_the_unit(tmp_path: Path) -> None:
    value = document()
    value["units"][1]["engines"][0]["rows"] = 0
    with pytest.raises(TargetError) as caught:
        loaded(tmp_path, value)
    assert caught.value.at.field == "units[1].engines[0].rows"
    value = document()
    value["units"][1]["takes"][0]["kind"] = ["Conv"]
    with pytest.raises(TargetError) as caught:
        loaded(tmp_path, value)
    assert caught.value.at.field == "units[1].takes[0].kind"


def test_the_first_unit_takes_everything(tmp_path: Path) -> None:
    value = document()
    value["units"].reverse()
    with pytest.raises(TargetError) as caught:
        loaded(tmp_path, value)
    assert caught.value.at.field == "units[0].takes"


def test_a_file_is_a_machines_or_a_targets_and_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(path: Path, shown: str) -> Document:
        read.append(shown)
        return read_document(path, shown)

    for module in ("presets", "machine_files"):
        monkeypatch.setattr(f"autoturbo.hardware.{module}.read_document", counted)
    machine, target = tmp_path / "machine.yaml", tmp_path / "target.yaml"
    machine.write_text((PRESETS / "zcu102-vta.yaml").read_text())
    target.write_text(scaffold())
    assert find_target(str(machine)) == load_machine("zcu102-vta")
    assert isinstance(find_target(target), Target)
    assert read == [str(machine), str(target)]
    assert find_target("zcu102-vta") == load_machine("zcu102-vta")
    assert find_target("stcp920") == load_target("stcp920")
    with pytest.raises(TargetError) as caught:
        find_target(str(tmp_path / "none.yaml"))
    assert str(caught.value.at.file) == str(tmp_path / "none.yaml")
    with pytest.raises(TargetError):
        find_target("nothing")


def test_an_unknown_name_is_met_with_the_known_ones() -> None:
    with pytest.raises(TargetError):
        load_machine("zcu102-vat")


@pytest.mark.parametrize("name", spread(machine_names(), 3))
def test_a_machine_written_down_is_read_back(name: str) -> None:
    machine = load_machine(name)
    again = machine_from_dict(machine.as_dict())
    assert again == machine
    assert again.hash == machine.hash
    assert json.loads(json.dumps(machine.as_dict())) == machine.as_dict()


def test_a_unit_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    assert [unit.memory for unit in load_machine("zcu102-vta").units] == [None, 512 << 20]
    value = document()
    value["units"][1]["memory_mib"] = 1.5
    assert loaded(tmp_path, value).units[1].memory == 3 << 19
    value["units"][1]["memory_mib"] = -1
    with pytest.raises(TargetError) as caught:
        loaded(tmp_path, value)
    assert caught.value.at.field == "units[1].memory_mib"


@pytest.mark.parametrize("name", spread(machine_names(), 3))
def test_presets_are_of_the_schema(name: str) -> None:
    value = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())
    jsonschema.Draft202012Validator(machine_schema()).validate(value)
    jsonschema.Draft202012Validator(machine_schema()).validate(load_machine(name).as_dict())


@pytest.mark.parametrize(
    "change",
    spread([
        {"units": []}, {"switch_us": -1}, {"swich_us": 3}, {"name": "No Good"},
        {"schema_version": 9},
        {"links": [{"between": ["cpu"], "bandwidth_gb_s": 1}]}, {"ddr": {"capacity_gib": 4}},
    ], 3),
)  # fmt: skip
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(machine_schema())
    assert not validator.is_valid({**document(), **change})

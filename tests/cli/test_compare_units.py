"""``compare`` on a machine of several processing units."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import Cli, cli_in

PRESET = Path(__file__).parents[2] / "autoturbo/hardware/presets/machines/zcu102-vta.yaml"
NAMES = {"cpu", "static", "profiled", "partition_tuner", "tuned"}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def machine(tmp_path: Path) -> str:
    """A machine of the user's own, whose units hand over for nothing."""
    text = PRESET.read_text().replace("switch_us: 2000", "switch_us: 0")
    file = tmp_path / "machine.yaml"
    file.write_text(text)
    return str(file)


def test_the_published_tuners_stand_beside_ours_which_is_the_fastest(
    cli: Cli, machine: str
) -> None:
    found = cli("--json", "compare", "alexnet", "--batch", "1", "--target", machine).object
    schedulers = found["schedulers"]
    assert set(schedulers) == NAMES
    seconds = {name: one["latency_s"] for name, one in schedulers.items()}
    assert min(seconds, key=lambda name: seconds[name]) == "tuned"
    assert schedulers["cpu"]["copied_bytes"] == 0
    assert schedulers["static"]["busy_s"]["npu"] > 0


def test_the_table_names_every_scheduler(cli: Cli) -> None:
    shown = cli("compare", "alexnet", "--batch", "1", "--target", "zcu102-vta").out
    assert all(name in shown for name in NAMES)


@pytest.mark.parametrize(
    "command",
    [
        ("space", "alexnet"),
        ("inspect", "alexnet"),
        ("dataset", "collect", "alexnet", "-o", "d"),
    ],
)
def test_commands_that_take_no_machine_say_so(cli: Cli, command: tuple[str, ...]) -> None:
    done = cli(*command, "--target", "zcu102-vta")
    assert done.status == 2
    assert "'zcu102-vta' is a machine of several processing units; tune, simulate" in done.err


def test_a_data_type_that_a_unit_lacks_is_refused(cli: Cli) -> None:
    done = cli("compare", "alexnet", "--target", "zcu102-vta", "--dtype", "float32")
    assert done.status == 2
    assert "not all units of zcu102-vta compute in 'float32'; one of int8" in done.err


def test_machines_are_listed_shown_and_checked(cli: Cli, machine: str) -> None:
    found = cli("--json", "targets", "list").object["machines"]
    assert [one["name"] for one in found] == ["kirin-970", "zcu102-vta", "zcu102-vta4"]
    assert [unit["name"] for unit in found[1]["units"]] == ["cpu", "npu"]
    assert "zcu102-vta4" in cli("targets", "list").out
    assert cli("targets", "show", "zcu102-vta").out.rstrip() == PRESET.read_text().rstrip()
    assert cli("--json", "targets", "show", "zcu102-vta").object["switch_us"] == 2000
    assert cli("targets", "validate", machine).status == 0
    schema = cli("--json", "targets", "schema", "--machine").object
    assert "memory_mib" in schema["$defs"]["Unit"]["properties"]
    cli.write("bad.yaml", Path(machine).read_text().replace("switch_us: 0", "switch_us: -1"))
    ran = cli("targets", "validate", "bad.yaml")
    assert ran.status == 2
    assert "bad.yaml:" in ran.err
    assert "switch_us: must be at least 0, not -1" in ran.err

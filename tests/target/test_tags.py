"""Tags: the field's names, boards with their hosts, machines for rent, variants."""

from __future__ import annotations

import pytest

from relaxish.target import Target, list_tags, register_tag
from relaxish.target.tags import list_tag_names, variants


def test_every_tag_and_every_variant_is_a_target() -> None:
    tags = list_tags()
    assert len(tags) >= 303
    for name, target in tags.items():
        assert target.tag == name
        assert Target(str(target)) == target, name
    for name in ("nvidia/jetson-nano", "nvidia/nvidia-a100", "aws/p4d.24xlarge", "aws/c4.4xlarge", "apple/m1-gpu"):
        for variant in variants(name):
            made = Target(f"{name}:{variant}")
            assert made.tag == f"{name}:{variant}"
            assert Target(str(made)) == made


@pytest.mark.parametrize(
    ("name", "arch", "registers"),
    [
        ("geforce-gtx-970m", "sm_52", 65536), ("geforce-gt-420m", "sm_21", 32768), ("geforce-gtx-480m", "sm_20", 32768),
        ("quadro-k6000m", "sm_30", 65536), ("quadro-m5500m", "sm_52", 65536), ("quadro-p3200", "sm_61", 65536),
        ("nvidia-nvs-315", "sm_21", 32768), ("nvs-4200m", "sm_21", 32768), ("rtx-3000", "sm_75", 65536),
        ("t2000", "sm_75", 65536), ("tegra-x1", "sm_53", 32768), ("geforce-gt-730-ddr3,128bit", "sm_21", 32768),
        ("geforce-gtx-860m-sm-30", "sm_30", 65536), ("geforce-gtx-860m-sm-50", "sm_50", 65536),
        ("geforce-gt-640m-le", "sm_30", 65536), ("quadro-plex-7000", "sm_20", 32768), ("p520", "sm_61", 65536),
    ],
)  # fmt: skip
def test_mobile_and_old_parts(name: str, arch: str, registers: int) -> None:
    target = Target("nvidia/" + name)
    assert target.arch == arch
    assert target.attrs["registers_per_block"] == registers
    assert target.host is None


@pytest.mark.parametrize(
    ("name", "mcpu", "cores"),
    [
        ("jetson-agx-xavier", "carmel", 8), ("jetson-orin-nano", "carmel", 6), ("jetson-agx-orin-32gb", "cortex-a78", 8),
        ("jetson-agx-orin-64gb", "cortex-a78", 12),
    ],
)  # fmt: skip
def test_boards_with_hosts(name: str, mcpu: str, cores: int) -> None:
    host = Target("nvidia/" + name).host
    assert host is not None
    assert (host.attrs["mtriple"], host.mcpu, host.attrs["num-cores"]) == ("aarch64-linux-gnu", mcpu, cores)
    assert Target("raspberry-pi/4b-aarch64").host == Target("raspberry-pi/4b-aarch64").without_host()


def test_variants_of_a_board() -> None:
    nano = Target("nvidia/jetson-nano")
    assert nano.kind.name == "cuda"
    assert nano.host is None, "the plain name is what it is in the field"
    board = Target("nvidia/jetson-nano:board")
    assert board.kind.name == "composite"
    assert board.leaves() == (nano,)
    assert (board.host.mcpu, board.host.attrs["num-cores"]) == ("cortex-a57", 4)
    assert Target("nvidia/jetson-nano:cuda") == Target(nano, board.host)
    assert Target("nvidia/jetson-nano:llvm") == board.host
    for runtime in ("vm", "cuda-graph", "aot"):
        assert Target(f"nvidia/jetson-nano:{runtime}").runtime == runtime
    with pytest.raises(ValueError, match='no variant "rocm"; it has cuda, llvm, board, vm'):
        Target("nvidia/jetson-nano:rocm")


def test_rented_machines() -> None:
    assert Target("aws/c4.4xlarge").mcpu == "haswell"
    assert Target("aws/c4.4xlarge").attrs["num-cores"] == 8
    assert Target("aws/c5.12xlarge").mcpu == "cascadelake"
    assert Target("aws/c7g.4xlarge").attrs["num-cores"] == 16
    inference = Target("aws/g4dn.xlarge")
    assert [leaf.tag for leaf in inference.leaves()] == ["nvidia/nvidia-t4"]
    assert inference.host.mcpu == "cascadelake"
    training = Target("aws/p4d.24xlarge")
    assert len(training) == 8
    assert {leaf.arch for leaf in training.leaves()} == {"sm_80"}
    assert Target("aws/g4dn.xlarge:cuda").host == inference.host
    assert Target("aws/p4d.24xlarge:llvm") == training.host


def test_near_names_are_offered() -> None:
    with pytest.raises(ValueError, match="did you mean aws/g4dn"):
        Target("aws/g4dn.huge")


def test_a_tag_may_carry_all_that_a_composition_does() -> None:
    config = {"kind": "composite", "host": "arm64", "devices": {"gpu": "nvidia/jetson-nano"}, "runtime": "cuda-graph",
              "libs": ["cublas"], "pool": {"kind": "rpc", "tracker": "127.0.0.1:9190", "key": "nano"}}  # fmt: skip
    made = register_tag("test/robot", config, override=True)
    assert made == Target("test/robot")
    assert (made.runtime, made.libs, made.pool["key"]) == ("cuda-graph", ["cublas"], "nano")
    assert Target("test/robot:cuda").host.attrs["mtriple"] == "aarch64-linux-gnu"
    assert Target({"tag": "test/robot", "runtime": "vm"}).runtime == "vm"
    assert Target("test/robot:aot").runtime == "aot"


def test_a_tag_that_makes_no_target_is_not_kept() -> None:
    with pytest.raises(ValueError, match="not defined"):
        register_tag("test/broken", {"kind": "no-such-kind"})
    assert "test/broken" not in list_tag_names()

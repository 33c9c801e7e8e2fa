"""Targets: parsing, printing, scopes, features, tags."""

from __future__ import annotations

import json
import pickle

import pytest

import relaxish
from relaxish.target import (
    Target,
    TargetKind,
    VirtualDevice,
    arm_cpu,
    codegen,
    cuda,
    list_tags,
    register_tag,
    x86,
)


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -mcpu=skylake-avx512 -num-cores 4",
        "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod",
        "cuda -arch=sm_80",
        "opencl -device=adreno",
        "c",
        "vulkan -supports_float16=1",
    ],
)
def test_text_dict_and_pickle_round_trip(text: str) -> None:
    target = Target(text)
    assert Target(str(target)) == target
    assert Target(target.export()) == target
    assert Target(json.dumps(target.export())) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert hash(Target(str(target))) == hash(target)


def test_attributes_are_typed_by_the_schema() -> None:
    target = Target("llvm -num-cores 4 -mattr=+avx2,+fma -fast-math=1")
    assert target.attrs["num-cores"] == 4
    assert target.mattr == ["+avx2", "+fma"]
    assert target.attrs["fast-math"] is True
    assert Target("cuda -arch=sm_75").max_num_threads == 1024
    assert Target("cuda -arch=sm_75").thread_warp_size == 32


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("llmv", "did you mean llvm"),
        ("llvm -mcpuu=x", "did you mean mcpu"),
        ("llvm -num-cores=many", "must be of type int"),
        ("", "empty"),
        ("nvidia/no-such-gpu", "not registered"),
        ("cuda -arch=80", "sm_80"),
        ({"keys": ["cpu"]}, "kind"),
        ("llvm -mcpu=a -mcpu=b", "twice"),
    ],
)
def test_bad_targets_say_what_is_wrong(spec: object, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Target(spec)  # type: ignore[arg-type]


def test_host_and_canonicalisers() -> None:
    target = Target({"kind": "cuda", "arch": "sm_80", "host": "llvm -mcpu=haswell"})
    assert target.host is not None and target.host.mcpu == "haswell"
    assert Target("cuda -arch=sm_80", host="llvm -mcpu=haswell") == target
    assert Target.canon_target_and_host("cuda -arch=sm_80", "llvm -mcpu=haswell")[0] == target
    multi = Target.canon_multi_target_and_host(["cuda -arch=sm_80", "llvm"], "llvm")
    assert [t.kind.name for t in multi] == ["cuda", "llvm"]


def test_scope_is_a_stack() -> None:
    assert Target.current() is None
    with pytest.raises(ValueError, match="context"):
        Target.current(allow_none=False)
    with Target("llvm") as outer:
        with Target("cuda -arch=sm_80"):
            assert Target.current().kind.name == "cuda"
        assert Target.current() is outer
    assert Target.current() is None


def test_tags() -> None:
    h100 = Target("nvidia/nvidia-h100")
    assert h100.arch == "sm_90a" and h100.l2_cache_size_bytes == 50 * 1024 * 1024
    assert h100.tag == "nvidia/nvidia-h100"
    assert "aws/cpu/c5.xlarge" in list_tags()
    register_tag("test/tag", {"kind": "llvm", "mcpu": "haswell"}, override=True)
    assert Target("test/tag").mcpu == "haswell"
    with pytest.raises(ValueError, match="previously defined"):
        register_tag("test/tag", {"kind": "llvm"})


def test_cpu_features_follow_the_model() -> None:
    skx = Target("llvm -mcpu=skylake-avx512")
    assert skx.features.has_avx512 and not skx.features.has_avx512vnni
    assert skx.vector_bits == 512
    assert Target("llvm -mcpu=haswell").vector_bits == 256
    assert Target("llvm -mcpu=cascadelake").features.has_avx512vnni
    assert Target("llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod").features.has_dotprod
    spr = Target("llvm -mcpu=sapphirerapids")
    assert spr.features.has_amx_bf16 and spr.features.has_amx_int8
    assert not Target("llvm -mcpu=sapphirerapids -mattr=-amx-int8").features.has_amx_int8
    with skx:
        assert x86.get_simd_32bit_lanes() == 16
        assert codegen.target_has_features("avx512f,avx512bw")


def test_keys_and_constructors() -> None:
    assert Target("opencl -device=adreno").keys == ("opencl", "gpu", "adreno")
    assert arm_cpu("rasp4b64").mcpu == "cortex-a72"
    assert cuda(arch="sm_86").arch == "sm_86"
    assert "num-cores" in TargetKind.options_from_name("llvm")
    composite = Target({"kind": "composite", "devices": ["llvm", "cuda -arch=sm_80"]})
    assert [d.kind.name for d in composite.attrs["devices"]] == ["llvm", "cuda"]


def test_libraries_are_a_list():
    with pytest.raises(ValueError, match="libs"):
        Target({"kind": "llvm", "libs": {"a": "b"}})


@pytest.mark.parametrize(
    ("text", "keys", "has_dsp", "has_mve"),
    [
        ("-mcpu=cortex-m3", ["arm_cpu", "cpu"], False, False),
        ("-mcpu=cortex-m7", ["arm_cpu", "cpu"], True, False),
        ("-mcpu=cortex-m55", ["arm_cpu", "cpu"], True, True),
        ("-mcpu=cortex-m55 -mattr=+nomve", ["arm_cpu", "cpu"], True, False),
        ("-mcpu=cortex-m55+nomve", ["arm_cpu", "cpu"], True, False),
        ("-mcpu=cortex-m55 -mattr=+nodsp", ["arm_cpu", "cpu"], False, False),
        ("-mcpu=cortex-m55 -keys=mine,cpu", ["arm_cpu", "cpu", "mine"], True, True),
    ],
)
@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_microcontrollers(kind, text, keys, has_dsp, has_mve):
    target = Target(f"{kind} {text}")
    assert list(target.keys) == keys
    assert (target.features.has_dsp, target.features.has_mve) == (has_dsp, has_mve)
    assert not target.features.has_asimd
    assert Target(str(target)) == target


def test_keys_of_arm_processors():
    for triple in ("aarch64-linux-gnu", "arm-linux-gnueabihf"):
        target = Target(f"llvm -mtriple={triple}")
        assert list(target.keys) == ["arm_cpu", "cpu"]
        assert target.features.is_aarch64 == triple.startswith("aarch64")
    assert list(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake").keys) == ["cpu"]


def test_virtual_devices():
    open_one = VirtualDevice()
    assert (open_one.device_type, open_one.virtual_device_id, open_one.target, open_one.memory_scope) == (
        -1,
        -1,
        None,
        "",
    )
    assert VirtualDevice(relaxish.cuda(1)).device_type == 2
    assert VirtualDevice("cuda").virtual_device_id == 0
    full = VirtualDevice(relaxish.cuda(1), Target("cuda"), "global")
    assert full == VirtualDevice(relaxish.cuda(1), "cuda", "global") and full != VirtualDevice(relaxish.cuda(1))
    assert len({full, VirtualDevice(relaxish.cuda(1), "cuda", "global"), open_one}) == 2
    with pytest.raises(ValueError, match="makes no code for"):
        VirtualDevice(relaxish.cpu(), Target("cuda"))


def test_maps_from_targets_to_anything():
    made, host = Target.canon_target_map_and_host({"cuda": "gpu part", "llvm": "cpu part"}, "llvm -mcpu=skylake")
    assert {t.kind.name: part for t, part in made.items()} == {"cuda": "gpu part", "llvm": "cpu part"}
    assert host == Target("llvm -mcpu=skylake") and all(t.host == host for t in made)
    one = Target("cuda", "llvm -mcpu=haswell")
    made, host = Target.canon_target_map_and_host({one: 3}, "llvm")
    assert made == {one: 3} and host == one.host
    with pytest.raises(AssertionError):
        Target.canon_multi_target_and_host(None)

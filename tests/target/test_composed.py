"""Targets made of targets: spellings, text, JSON, what is passed on from level to level, mistakes."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxish.target import Target, register_tag

X86, ARM = "x86_64-linux-gnu", "armv7l-linux-gnueabihf"

# ---- the property: text, JSON and pickle give the target back, however deep it is

_WORDS = st.text(alphabet="ab1 ,'\"\\{}[]:=-", min_size=1, max_size=6)
_NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,5}", fullmatch=True)
_CPUS = st.fixed_dictionaries(
    {"kind": st.just("llvm"), "mtriple": st.sampled_from([X86, "aarch64-linux-gnu"])},
    optional={"num-cores": st.integers(1, 64), "mattr": st.lists(_WORDS, max_size=3), "model": _WORDS,
              "fast-math": st.booleans()},
)  # fmt: skip
_GPUS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("cuda"), "arch": st.sampled_from(["sm_70", "sm_90a"])},
        optional={"model": _WORDS, "l2_cache_size_bytes": st.integers(0, 1 << 30)},
    ),
    st.fixed_dictionaries({"kind": st.sampled_from(["vulkan", "opencl", "rocm", "metal"])}),
)
_POOLS = st.one_of(
    st.sampled_from(["local", "ray", "emulator"]),
    st.fixed_dictionaries({"kind": st.just("rpc"), "tracker": st.just("127.0.0.1:9190"), "key": _WORDS}),
    st.lists(st.sampled_from(["local", "emulator"]), min_size=1, max_size=2, unique=True),
)
_COMMON = {
    "libs": st.lists(st.sampled_from(["cublas", "mkl", "tensor-rt", "a,b", "c d"]), max_size=2),
    "runtime": st.sampled_from(["vm", "cuda-graph", "aot", "graph"]),
    "pool": _POOLS,
    "host": st.one_of(_CPUS, st.sampled_from(["x86", "arm", "llvm -num-cores=3", "raspberry-pi/4b-aarch64"])),
}


def _with_common(specs: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda spec, common: {**spec, **common}, specs, st.fixed_dictionaries({}, optional=_COMMON))


def _composed(children: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    several = st.one_of(
        st.lists(children, min_size=1, max_size=3), st.dictionaries(_NAMES, children, min_size=1, max_size=3)
    )
    made = st.one_of(
        st.builds(lambda devices: {"kind": "composite", "devices": devices}, several),
        st.builds(lambda machines: {"kind": "machines", "machines": machines}, several),
    )
    return st.one_of(children, _with_common(made))


_LEAVES = _with_common(st.one_of(_CPUS, _GPUS))
_TARGETS = _composed(_composed(_composed(_LEAVES)))


@settings(max_examples=150, deadline=None)
@given(_TARGETS)
def test_text_json_and_pickle_give_an_equal_target(spec: dict[str, Any]) -> None:
    target = Target(spec)
    for again in (
        Target(str(target)),
        Target("{" + str(target) + "}"),
        Target(target.export()),
        Target(json.loads(json.dumps(target.export()))),
        Target(json.dumps(target.export())),
        pickle.loads(pickle.dumps(target)),
        copy.deepcopy(target),
    ):
        assert again == target
        assert hash(again) == hash(target)
        assert list(again.devices) == list(target.devices)
        assert str(again) == str(target)


@settings(max_examples=100, deadline=None)
@given(_TARGETS)
def test_resolving_twice_is_resolving_once_and_says_no_less(spec: dict[str, Any]) -> None:
    target = Target(spec)
    resolved = target.resolved()
    assert resolved.resolved() == resolved
    assert Target(str(resolved)) == resolved
    assert len(resolved.leaves()) == len(target.leaves())
    for before, after in zip(target.leaves(), resolved.leaves(), strict=True):
        given_attrs = {k: v for k, v in before.attrs.items() if k != "runtime"}
        assert given_attrs.items() <= {k: v for k, v in after.attrs.items() if k != "runtime"}.items() or "pool" in (
            given_attrs
        )
        assert after.runtime in ("vm", "cuda-graph", "aot", "graph")
        assert after.host is not None or after.get_target_device_type() == 1


# ---- spellings

_CUDA = "cuda -arch=sm_80"


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "composite", "host": "x86", "vdevice0": _CUDA, "vdevice1": "llvm -mcpu=haswell"},
        {"host": "x86", "vdevice1": {"kind": "llvm", "mcpu": "haswell"}, "vdevice0": {"kind": "cuda", "arch": "sm_80"}},
        {"kind": "composite", "host": "x86_64", "devices": [_CUDA, "llvm -mcpu=haswell"]},
        {"devices": {"vdevice0": _CUDA, "vdevice1": Target("llvm -mcpu=haswell")}, "host": {"kind": "llvm", "mtriple": X86}},
        '{"kind": "composite", "host": "x86", "vdevice0": "cuda -arch=sm_80", "vdevice1": "llvm -mcpu=haswell"}',
        "composite -host=x86 -vdevice0={cuda -arch=sm_80} -vdevice1={llvm -mcpu=haswell}",
        "composite -host=x86 -devices={cuda -arch=sm_80},{llvm -mcpu=haswell}",
        'composite -host=x86 -vdevice0="cuda -arch=sm_80" -vdevice1={"kind": "llvm", "mcpu": "haswell"}',
        f"composite -devices=vdevice0:{{cuda -arch=sm_80}},vdevice1:{{llvm -mcpu=haswell}} -host={{llvm -mtriple={X86}}}",
    ],
)  # fmt: skip
def test_all_spellings_mean_the_same(spec: Any) -> None:
    target = Target(spec)
    assert target == Target(
        {"kind": "composite", "host": f"llvm -mtriple={X86}", "devices": [_CUDA, "llvm -mcpu=haswell"]}
    )
    assert list(target.devices) == ["vdevice0", "vdevice1"]
    assert [d.kind.name for d in target] == ["cuda", "llvm"]
    assert target[0] == target["vdevice0"] == target.devices["vdevice0"]
    assert target[-1].mcpu == "haswell"
    assert len(target) == 2


def test_the_nested_example_of_a_strategy_with_its_own_host_and_libraries() -> None:
    target = Target(
        {
            "host": "x86",
            "vdevice0": {"host": "arm", "runtime": "cuda-graph", "vdevice0": _CUDA, "library": "tensor-rt"},
            "vdevice1": _CUDA,
            "runtime": "vm",
            "libs": ["cublas"],
        }
    )
    assert [leaf.arch for leaf in target.leaves()] == ["sm_80", "sm_80"]
    inner, outer = target.resolved().leaves()
    assert (inner.runtime, inner.libs, inner.host.attrs["mtriple"]) == ("cuda-graph", ["tensorrt"], ARM)
    assert (outer.runtime, outer.libs, outer.host.attrs["mtriple"]) == ("vm", ["cublas"], X86)
    # Nothing of it is in what was given.
    assert target[1].host is None
    assert target[1].libs == []
    assert "runtime" not in target[1].attrs


def test_machines_of_the_distributed_example() -> None:
    target = Target({"machine0": {"host": "x86", "vdevice0": _CUDA}, "machine1": {"host": "arm", "vdevice0": "vulkan"}})
    assert target.kind.name == "machines"
    assert target.host is None
    assert [machine.host.attrs["mtriple"] for machine in target] == [X86, ARM]
    assert [leaf.host.attrs["mtriple"] for leaf in target.resolved().leaves()] == [X86, ARM]
    assert [leaf.kind.name for leaf in target.leaves()] == ["cuda", "vulkan"]


def test_host_of_a_composition_that_names_none() -> None:
    assert Target({"devices": [_CUDA, "llvm -mcpu=haswell"]}).host == Target("llvm -mcpu=haswell")
    assert Target({"devices": [Target(_CUDA, "llvm -mcpu=haswell")]}).host == Target("llvm -mcpu=haswell")
    assert Target({"devices": [_CUDA]}).host == Target("llvm")
    assert "host" not in Target({"devices": [_CUDA]}).export()


def test_what_counts_for_equality() -> None:
    base = {"kind": "composite", "host": "x86", "devices": {"a": _CUDA, "b": "llvm"}}
    same = [
        {**base, "tag": "x/y"},
        dict(reversed(base.items())),
    ]
    other = [
        {**base, "devices": {"b": "llvm", "a": _CUDA}},
        {**base, "devices": {"a": _CUDA, "c": "llvm"}},
        {**base, "host": "arm"},
        {**base, "runtime": "vm"},
        {**base, "libs": ["cublas"]},
        {**base, "pool": "ray"},
    ]
    assert all(Target(s) == Target(base) and hash(Target(s)) == hash(Target(base)) for s in same)
    assert all(Target(o) != Target(base) for o in other)
    pools = [{"kind": "local"}, {"kind": "rpc", "tracker": "h:1", "key": "k"}]
    turned = [{"key": "k", "tracker": "h:1", "kind": "rpc"}, "local"]
    assert Target({**base, "pool": pools}) == Target({**base, "pool": turned})
    assert hash(Target({**base, "pool": pools})) == hash(Target({**base, "pool": turned}))


def test_pool_of_a_composition_is_that_of_its_leaves() -> None:
    board = {"kind": "rpc", "tracker": "127.0.0.1:9190", "key": "nano"}
    target = Target({"devices": [{"kind": "cuda", "arch": "sm_53", "pool": board}, "llvm"]})
    assert Target("llvm").pool == {"kind": "local"}
    assert sorted(target.pool, key=lambda pool: pool["kind"]) == [{"kind": "local"}, board]
    assert Target({"devices": ["llvm", "llvm"]}).pool == {"kind": "local"}
    assert Target({"devices": ["llvm"], "pool": "ray"}).pool == {"kind": "ray"}


def test_single_devices_print_as_ever() -> None:
    assert (
        str(Target("cuda -arch=sm_80")) == "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -thread_warp_size=32"
    )
    assert str(Target("llvm -mcpu=haswell -mattr=+avx2,+fma")) == "llvm -keys=cpu -mattr=+avx2,+fma -mcpu=haswell"
    assert str(Target({"kind": "llvm", "mcpu": "x", "model": "two words"})).endswith("-model='two words'")
    assert Target("cuda").leaves() == (Target("cuda"),)
    assert bool(Target("cuda")) and len(Target("cuda")) == 0
    with_host = Target("cuda -arch=sm_80", host="llvm -mcpu=haswell")
    assert Target(str(with_host)) == with_host


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "composite"}, "needs devices"),
        ({"kind": "composite", "devices": []}, "needs devices"),
        ("machines", "needs machines"),
        ({"vdevice1": "cuda"}, '"vdevice0" is missing'),
        ({"vdevice0": "cuda", "devices": ["cuda"]}, "not both"),
        ({"kind": "cuda", "vdevice0": "llvm"}, "single device"),
        ({"kind": "machines", "vdevice0": "cuda"}, "no machine"),
        ({"devices": {"a b": "cuda"}}, "cannot name a device"),
        ({"devices": {0: "cuda"}}, "cannot name a device"),
        ({"devices": [7]}, "vdevice0 has to be"),
        ({"devices": ["llvm"], "runtime": "cuda_graph"}, "known are vm, cuda-graph, aot, graph; did you mean cuda-graph"),
        ({"devices": ["llvm"], "pool": "cluster"}, "known are local, rpc, ray, emulator"),
        ({"devices": ["llvm"], "pool": {"kind": "rpc", "key": "x"}}, "needs tracker"),
        ({"devices": ["llvm"], "host": {"devices": ["llvm"]}}, "host is a single device"),
        ({"kind": "llvm", "library": "mkl", "libs": ["mkl"]}, "not both"),
        ("composite -devices={llvm", "not closed"),
        ("llvm -model='x", "not closed"),
        ("composite -devices=a:{llvm},{llvm}", "all of them have names"),
        ("composite -devices=a:{llvm},a:{llvm}", "name a"),
        ({"devices": ["nvidia/no-such-gpu"]}, "not registered"),
        ("x86", "not defined"),
    ],
)  # fmt: skip
def test_mistakes_say_what_to_do(spec: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Target(spec)


def test_missing_devices_are_named() -> None:
    target = Target({"devices": {"gpu": _CUDA, "cpu": "llvm"}})
    with pytest.raises(KeyError, match="gpu, cpu"):
        target["tpu"]
    with pytest.raises(IndexError, match="2 devices"):
        target[2]


def test_a_target_inside_itself_is_an_error_that_names_the_path() -> None:
    spec: dict[str, Any] = {"kind": "composite"}
    spec["devices"] = [spec]
    with pytest.raises(ValueError, match="composite -> vdevice0 -> composite"):
        Target(spec)
    register_tag("test/inner", {"kind": "llvm"}, override=True)
    register_tag("test/outer", {"kind": "composite", "devices": {"a": "test/inner"}}, override=True)
    with pytest.raises(ValueError, match="test/inner -> b -> test/outer -> a -> test/inner"):
        register_tag("test/inner", {"kind": "composite", "devices": {"b": "test/outer"}}, override=True)
    assert Target("test/inner") == Target("llvm"), "a tag that cannot be made leaves the old one"
    assert Target("test/outer").leaves() == (Target("llvm"),)

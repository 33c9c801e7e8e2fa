"""The builtins of ``RewriteCUDAGraph``: regions of a model captured once as a graph and replayed from then on.

A region runs once as it is (which loads modules, moves constants and fills memory pools); then it is gone through again
while its stream is captured, which computes nothing. What it allocated meanwhile belongs to the graph. On devices
without graphs its kernels run one by one each time.
"""

from __future__ import annotations

from collections.abc import Sequence
import sys
from typing import Any, TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..bytecode.builtins import VMClosure
from ..device import Device
from ..nvidia import providers
from ..nvidia.errors import CUDAError
from ..nvidia.state import CUDAState
from ..registry import register_func

if TYPE_CHECKING:
    pass
    from ..vm.machine import VirtualMachine

__all__ = ["get_cached_alloc", "run_or_capture"]


class _Graph:
    """A captured region: the driver's graph, its results, and the memory it works in."""

    def __init__(self, state: CUDAState, graph: object, outputs: object, memory: object) -> None:
        self.state = state
        self.graph = graph
        self.outputs = outputs
        self.memory = memory

    def launch(self, device: int) -> object:
        """Replay it on the current stream."""
        self.state.driver.launch_graph(self.graph, self.state.stream(device))
        return self.outputs

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.state.usable():
            try:
                self.state.driver.destroy_graph(self.graph)
            except CUDAError as error:
                if not error.sticky:  # with the context the graph is gone
                    raise


class _Kept:
    """What one machine keeps: storage by index, graphs by index and the dimensions captured."""

    def __init__(self) -> None:
        self.storage: dict[int, Any] = {}
        self.graphs: dict[Any, _Graph] = {}


_KEPT: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()


def get_cached_alloc(vm: VirtualMachine, allocate: VMClosure, index: int) -> Any:
    """The storage that ``allocate`` makes, made once for a machine, so that its addresses stay."""
    made = _KEPT.setdefault(vm, _Kept()).storage
    if index not in made:
        made[index] = vm.invoke_closure(allocate)
    return made[index]


def run_or_capture(
    vm: VirtualMachine, func: VMClosure, args: Sequence[Any], index: int, shape: Sequence[int] | None = None
) -> object:
    """Replay a region, capturing it first if this is its first run with these dimensions."""
    device = vm.devices[0]
    if device.device_type != Device.kDLCUDA or vm.is_watched():
        return vm.invoke_closure(func, *args)
    graphs = _KEPT.setdefault(vm, _Kept()).graphs
    key = index, None if shape is None else tuple(shape)
    found = graphs.get(key)
    if found is None:
        # What the region reads may be overwritten by it, so it must not run a second time on the same arguments.
        graphs[key], result = _capture(vm, device.device_id, func, args)
        return result
    return found.launch(device.device_id)


def _capture(vm: VirtualMachine, device: int, func: VMClosure, args: Sequence[Any]) -> tuple[_Graph, Any]:
    """The graph of a region, and the result of the one run that went before."""
    state = providers.current()
    driver = state.driver
    before = state.stream(device)
    stream = driver.create_stream(device)
    try:
        state.order(device, before, stream)
        state.set_stream(device, stream)
        result = vm.invoke_closure(func, *args)
        driver.synchronize_stream(device, stream)
        state.begin_capture(device, stream)
        try:
            outputs = vm.invoke_closure(func, *args)
        except BaseException:
            _give_up(state, device, stream)
            raise
        graph = state.end_capture(device, stream)
    finally:
        state.set_stream(device, before)
        memory = state.take_pools(device, stream)
        driver.destroy_stream(device, stream)
    return _Graph(state, graph, outputs, memory), result


def _give_up(state: CUDAState, device: int, stream: int) -> None:
    """End a capture that failed; why it failed is being reported already."""
    try:
        state.driver.destroy_graph(state.end_capture(device, stream))
    except CUDAError:
        pass


register_func("vm.builtin.cuda_graph.get_cached_alloc", get_cached_alloc, override=True)
register_func("vm.builtin.cuda_graph.run_or_capture", run_or_capture, override=True)

"""Runs WGSL modules through wgpu, where it and a Vulkan driver (llvmpipe will do) are installed."""

from __future__ import annotations

import struct

import numpy as np

from relaxish.runtime import cpu
from relaxish.runtime.devices.host_program import HostRuntime


def open_device():
    """A device, or None."""
    try:
        import wgpu
    except ImportError:
        return None
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except (RuntimeError, OSError, ImportError):
        return None
    if adapter is None:
        return None
    features = [f for f in ("shader-f16",) if f in adapter.features]
    return adapter.request_device_sync(required_features=features)


class WGPURuntime(HostRuntime):
    """Arrays stay in host memory; every launch copies them to the device and back."""

    def __init__(self, module, device, arrays):
        super().__init__(cpu(0), module.programs)
        self.gpu = device
        self.kinds = {name: info.kinds for name, info in module.infos.items()}
        self.shader = device.create_shader_module(code=module.get_source("wgsl"))
        self.memory = {a.ptr: np.frombuffer(a._host().data, np.uint8) for a in arrays}
        self.kept = []

    def allocate(self, nbytes):
        storage = super().allocate(nbytes)
        start = storage.ptr - storage.mem.__array_interface__["data"][0]
        self.memory[storage.ptr] = storage.mem[start : start + nbytes]
        self.kept.append(storage)
        return storage

    def launch(self, name, values, grid, block, shared, cluster=(1, 1, 1)):
        import wgpu

        flags = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        entries, written, scalars = [], [], b""
        for kind, value in zip(self.kinds[name], values):
            if kind == "pointer":
                host = self.memory[value]
                padded = np.zeros((len(host) + 3) // 4 * 4, np.uint8)
                padded[: len(host)] = host
                buffer = self.gpu.create_buffer_with_data(data=padded, usage=flags)
                entries.append(buffer)
                written.append((host, buffer))
            else:
                scalars += struct.pack("f" if kind.startswith("float") else "i", value)
        if scalars:
            scalars += b"\0" * (-len(scalars) % 16)
            entries.append(self.gpu.create_buffer_with_data(data=scalars, usage=wgpu.BufferUsage.UNIFORM))
        kinds = ["storage"] * len(written) + ["uniform"] * bool(scalars)
        layout = self.gpu.create_bind_group_layout(
            entries=[
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for i, kind in enumerate(kinds)
            ]
        )
        pipeline = self.gpu.create_compute_pipeline(
            layout=self.gpu.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": self.shader, "entry_point": name},
        )
        bound = [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}} for i, b in enumerate(entries)]
        group = self.gpu.create_bind_group(layout=layout, entries=bound)
        encoder = self.gpu.create_command_encoder()
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group)
        work.dispatch_workgroups(*grid)
        work.end()
        self.gpu.queue.submit([encoder.finish()])
        for host, buffer in written:
            host_view = np.frombuffer(self.gpu.queue.read_buffer(buffer), np.uint8)[: len(host)]
            host[:] = host_view

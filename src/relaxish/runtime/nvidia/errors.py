"""Errors of the CUDA driver: names of its codes, and what a user can do about each."""

from __future__ import annotations

from ...support.errors import RelaxishError

__all__ = ["CODES", "NAMES", "STICKY", "CUDAError", "DeviceMemoryError", "NoCUDAError", "failure"]

# The driver's own numbers.
NAMES: dict[int, str] = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    4: "CUDA_ERROR_DEINITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    218: "CUDA_ERROR_INVALID_PTX",
    221: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    400: "CUDA_ERROR_INVALID_HANDLE",
    500: "CUDA_ERROR_NOT_FOUND",
    600: "CUDA_ERROR_NOT_READY",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    702: "CUDA_ERROR_LAUNCH_TIMEOUT",
    709: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    710: "CUDA_ERROR_ASSERT",
    714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    715: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    716: "CUDA_ERROR_MISALIGNED_ADDRESS",
    717: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    718: "CUDA_ERROR_INVALID_PC",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    800: "CUDA_ERROR_NOT_PERMITTED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    901: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    904: "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
    906: "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
    908: "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
    912: "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    999: "CUDA_ERROR_UNKNOWN",
}
# By short name: CODES["INVALID_VALUE"] is 1.
CODES: dict[str, int] = {name.removeprefix("CUDA_ERROR_"): code for code, name in NAMES.items()}

# After one of these the device's context is lost: every later call fails with the same code.
STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})

_CRASHED = (
    "a kernel crashed and the context of the device is lost; restart the process, and run the program in the emulator "
    "(relaxish.testing.use_cuda_provider('emulator')), which names the kernel, the buffer and the index"
)
_HINTS: dict[int, str] = {
    1: "an argument is out of range: grid or block sizes, shared memory, or an address that is not device memory",
    2: "the device has no memory left: use a smaller batch, or free arrays of other libraries in this process",
    3: "CUDA cannot be used in a process forked after its parent used CUDA: start workers by 'spawn', or fork earlier",
    34: "the linker's stub of libcuda was loaded: take its folder (.../stubs) out of LD_LIBRARY_PATH",
    46: "the device is in exclusive mode and another process has it",
    100: "the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
    101: "there is no device of this number: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
    200: "the machine code is damaged: delete the cache folder and compile again",
    209: "the machine code is for another architecture: compile for this device, e.g. Target({'kind': 'cuda', 'arch': 'sm_90a'})",
    218: "the PTX does not compile: it may be for a newer architecture than this device",
    222: "the driver is older than the compiler: update the driver, or use an older nvidia-cuda-nvrtc",
    400: "a handle does not exist (any more) or belongs to another device",
    500: "the module has no function of this name",
    701: "too many registers or too much shared memory for so many threads a block",
    702: "the kernel ran longer than the display's watchdog allows; the context of the device is lost",
    801: "the device or the driver cannot do this: clusters and tensor maps need compute capability 9.0",
    802: "the driver is still starting up (fabric manager?): look at nvidia-smi",
    803: "kernel module and user libraries of the driver differ in version: reboot, or reinstall the driver",
    900: "this cannot be done while a stream is captured (allocating, freeing, waiting, copying to the host)",
    901: "the capture broke off because of an earlier forbidden call",
    906: "the default stream was used while another stream was captured",
    912: "the grid is not a multiple of the cluster, or the cluster is too large",
    **{code: _CRASHED for code in STICKY if code not in (214, 702)},
}


class CUDAError(RelaxishError):
    """A call of the CUDA driver failed; ``code`` is the driver's number."""

    def __init__(self, code: int, what: str, detail: str = "") -> None:
        self.code = int(code)
        self.what = what
        self.detail = detail
        name = NAMES.get(self.code, "unknown error")
        hint = _HINTS.get(self.code, "")
        parts = [f"CUDA: {what} failed: {name} ({self.code})", *([detail] if detail else []), *([hint] if hint else [])]
        super().__init__("; ".join(parts))

    @property
    def sticky(self) -> bool:
        """Whether the context is lost with it."""
        return self.code in STICKY

    def __reduce__(self) -> tuple[type, tuple[int, str, str]]:
        return type(self), (self.code, self.what, self.detail)


class DeviceMemoryError(CUDAError, MemoryError):
    """The device has no memory left."""


class NoCUDAError(RelaxishError):
    """CUDA cannot be used here: no provider, no driver library or no device."""


def failure(code: int, what: str, detail: str = "") -> CUDAError:
    """The error for a code of the driver."""
    kind = DeviceMemoryError if code == CODES["OUT_OF_MEMORY"] else CUDAError
    return kind(code, what, detail)

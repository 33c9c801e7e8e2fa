// A driver library without a GPU, for trying the real providers: device memory is host memory, work is done at once.
// Built against the toolkit's cuda.h, so that every structure and signature is the real one.
//
// Images begin with "FAKE"; every image has the kernels of the table at the end of this file.

#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, MAX_BLOCKS = 4096, MAX_STEPS = 256, MAX_ARGS = 16, DEPTH = 4096 };
static const size_t TOTAL = (size_t)1 << 28;

struct CUctx_st { int device; };
struct CUmod_st { CUcontext context; };
struct CUfunc_st { int kernel; int max_shared; CUcontext context; };
struct CUevent_st { int timing; double at; CUcontext context; };
struct Step { _Alignas(128) unsigned char values[1024]; struct CUfunc_st *function; unsigned shape[9]; unsigned shared; };
struct CUgraph_st { int count; struct Step steps[MAX_STEPS]; };
struct CUstream_st { CUcontext context; int capturing; int broken; struct CUgraph_st *graph; };

static struct CUctx_st contexts[DEVICES] = {{0}, {1}};
static struct { CUdeviceptr begin; size_t size; int device; } blocks[MAX_BLOCKS];
static size_t used[DEVICES];
static int initialised, lost, captures;
static double now_ms = 1;
static __thread CUcontext stack[DEPTH];
static __thread int depth;

static void *zeroed(size_t size) {
    size = (size + 127) / 128 * 128;
    return memset(aligned_alloc(128, size), 0, size);
}

static CUcontext current(void) { return depth ? stack[depth - 1] : NULL; }

#define ENTER()                                                                                                        \
    do {                                                                                                               \
        if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;                                                           \
        if (!current()) return CUDA_ERROR_INVALID_CONTEXT;                                                             \
        if (lost) return (CUresult)lost;                                                                               \
    } while (0)

static CUresult forbid_in_capture(void) { return captures ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS; }

// ---- devices and contexts

CUresult cuInit(unsigned flags) {
    if (getenv("FAKE_CUDA_NO_DEVICE")) return CUDA_ERROR_NO_DEVICE;
    initialised = 1;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) { *version = CUDA_VERSION; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = DEVICES; return CUDA_SUCCESS; }

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal < 0 || ordinal >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, size, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 52428800; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    default: *value = 0;
    }
    return device < 0 || device >= DEVICES ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) { *major = 9; *minor = 0; return CUDA_SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { *bytes = TOTAL; return CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return CUDA_SUCCESS; }
CUresult cuCtxDetach(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { ENTER(); *device = current()->device; return CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { ENTER(); return forbid_in_capture(); }

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == DEPTH) abort();
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    if (depth) stack[depth - 1] = context;
    else stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) { *context = current(); return CUDA_SUCCESS; }

// ---- memory

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER();
    *total = TOTAL;
    *free = TOTAL - used[current()->device];
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    ENTER();
    if (forbid_in_capture()) return forbid_in_capture();
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    int device = current()->device, i = 0;
    if (used[device] + size > TOTAL) return CUDA_ERROR_OUT_OF_MEMORY;
    while (i < MAX_BLOCKS && blocks[i].size) ++i;
    if (i == MAX_BLOCKS) abort();
    blocks[i].begin = (CUdeviceptr)aligned_alloc(512, (size + 511) / 512 * 512);
    blocks[i].size = size;
    blocks[i].device = device;
    used[device] += size;
    *address = blocks[i].begin;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER();
    if (forbid_in_capture()) return forbid_in_capture();
    for (int i = 0; i < MAX_BLOCKS; ++i)
        if (blocks[i].size && blocks[i].begin == address) {
            used[blocks[i].device] -= blocks[i].size;
            blocks[i].size = 0;
            free((void *)address);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static int inside(CUdeviceptr address, size_t size) {
    for (int i = 0; i < MAX_BLOCKS; ++i)
        if (blocks[i].size && blocks[i].begin <= address && address + size <= blocks[i].begin + blocks[i].size) return 1;
    return 0;
}

static CUresult known_stream(CUstream stream) {
    return stream && stream->context != current() ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    ENTER();
    if (forbid_in_capture()) return forbid_in_capture();
    if (!inside(to, size)) return CUDA_ERROR_INVALID_VALUE;
    memcpy((void *)to, from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    ENTER();
    if (forbid_in_capture()) return forbid_in_capture();
    if (!inside(from, size)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, (void *)from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    ENTER();
    return known_stream(stream) ? known_stream(stream) : cuMemcpyHtoD_v2(to, from, size);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    ENTER();
    return known_stream(stream) ? known_stream(stream) : cuMemcpyDtoH_v2(to, from, size);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    ENTER();
    if (known_stream(stream)) return known_stream(stream);
    if (!inside(to, size) || !inside(from, size)) return CUDA_ERROR_INVALID_VALUE;
    memmove((void *)to, (void *)from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size, CUstream stream
) {
    ENTER();
    if (there != current() || here == there) return CUDA_ERROR_INVALID_CONTEXT;
    return cuMemcpyDtoDAsync_v2(to, from, size, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream) {
    ENTER();
    if (known_stream(stream)) return known_stream(stream);
    if (!inside(to, size)) return CUDA_ERROR_INVALID_VALUE;
    memset((void *)to, value, size);
    return CUDA_SUCCESS;
}

// ---- kernels: what they do, and the sizes of their parameters

typedef CUresult (*Body)(void **args, const unsigned *shape, unsigned shared);

static CUresult add_scalar(void **args, const unsigned *shape, unsigned shared) {
    float *data = *(float **)args[0];
    for (int i = 0; i < *(int *)args[1]; ++i) data[i] += *(float *)args[2];
    return CUDA_SUCCESS;
}

static CUresult mixed(void **args, const unsigned *shape, unsigned shared) {
    double *out = *(double **)args[1];
    out[0] = *(signed char *)args[0];
    out[1] = *(double *)args[2];
    out[2] = *(short *)args[3];
    out[3] = (double)*(long long *)args[4];
    out[4] = *(unsigned char *)args[5];
    return CUDA_SUCCESS;
}

static CUresult launch_shape(void **args, const unsigned *shape, unsigned shared) {
    int *out = *(int **)args[0];
    for (int i = 0; i < 9; ++i) out[i] = (int)shape[i];
    out[9] = (int)shared;
    return CUDA_SUCCESS;
}

static CUresult copy_map(void **args, const unsigned *shape, unsigned shared) {
    if ((size_t)args[0] % 128) return CUDA_ERROR_MISALIGNED_ADDRESS;
    memcpy(*(void **)args[1], args[0], sizeof(CUtensorMap));
    return CUDA_SUCCESS;
}

static CUresult crash(void **args, const unsigned *shape, unsigned shared) { return CUDA_ERROR_ILLEGAL_ADDRESS; }

static const struct { const char *name; Body body; int sizes[MAX_ARGS]; } KERNELS[] = {
    {"add_scalar", add_scalar, {8, 4, 4}},
    {"mixed", mixed, {1, 8, 8, 2, 8, 1}},
    {"launch_shape", launch_shape, {8}},
    {"copy_map", copy_map, {128, 8}},
    {"crash", crash, {0}},
};
enum { KERNEL_COUNT = sizeof KERNELS / sizeof KERNELS[0] };

static CUresult run(const struct Step *step) {
    void *args[MAX_ARGS];
    size_t at = 0;
    const int *sizes = KERNELS[step->function->kernel].sizes;
    for (int i = 0; i < MAX_ARGS && sizes[i]; ++i) {
        size_t alignment = sizes[i] == 128 ? 128 : (size_t)sizes[i];
        at = (at + alignment - 1) / alignment * alignment;
        args[i] = (void *)(step->values + at);
        at += (size_t)sizes[i];
    }
    now_ms += 1;
    CUresult status = KERNELS[step->function->kernel].body(args, step->shape, step->shared);
    if (status == CUDA_ERROR_ILLEGAL_ADDRESS) lost = status;
    return CUDA_SUCCESS;
}

static CUresult start(CUfunction function, const unsigned *shape, unsigned shared, CUstream stream, void **params,
                      void **extra) {
    ENTER();
    if (known_stream(stream) || function->context != current()) return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 6; ++i)
        if (!shape[i]) return CUDA_ERROR_INVALID_VALUE;
    if (shape[3] * shape[4] * shape[5] > 1024 || shared > (unsigned)function->max_shared) return CUDA_ERROR_INVALID_VALUE;
    struct Step *step = aligned_alloc(128, (sizeof(struct Step) + 127) / 128 * 128);
    unsigned char *values = step->values;
    size_t at = 0, given = 0;
    const unsigned char *buffer = NULL;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) given = *(size_t *)extra[i + 1];
    }
    const int *sizes = KERNELS[function->kernel].sizes;
    for (int i = 0; i < MAX_ARGS && sizes[i]; ++i) {
        size_t alignment = sizes[i] == 128 ? 128 : (size_t)sizes[i];
        at = (at + alignment - 1) / alignment * alignment;
        if (buffer && at + (size_t)sizes[i] > given) return CUDA_ERROR_INVALID_VALUE;
        memcpy(values + at, buffer ? buffer + at : params[i], (size_t)sizes[i]);
        at += (size_t)sizes[i];
    }
    step->function = function;
    step->shared = shared;
    memcpy(step->shape, shape, sizeof step->shape);
    CUresult status = CUDA_SUCCESS;
    if (stream && stream->capturing) {
        if (stream->graph->count == MAX_STEPS) abort();
        stream->graph->steps[stream->graph->count++] = *step;
    } else if (!stream && captures) {
        status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else {
        status = run(step);
    }
    free(step);
    return status;
}

CUresult cuLaunchKernel(
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    CUstream stream, void **params, void **extra
) {
    unsigned shape[9] = {gx, gy, gz, bx, by, bz, 1, 1, 1};
    return start(function, shape, shared, stream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    unsigned shape[9] = {
        config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, 1, 1, 1
    };
    for (unsigned i = 0; i < config->numAttrs; ++i)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            shape[6] = config->attrs[i].value.clusterDim.x;
            shape[7] = config->attrs[i].value.clusterDim.y;
            shape[8] = config->attrs[i].value.clusterDim.z;
        }
    for (int i = 0; i < 3; ++i)
        if (!shape[6 + i] || shape[i] % shape[6 + i]) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return start(function, shape, config->sharedMemBytes, config->hStream, params, extra);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER();
    if (strncmp(image, "FAKE", 4)) return CUDA_ERROR_INVALID_IMAGE;
    *module = malloc(sizeof **module);
    (*module)->context = current();
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) { ENTER(); free(module); return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER();
    for (int i = 0; i < KERNEL_COUNT; ++i)
        if (!strcmp(KERNELS[i].name, name)) {
            *function = malloc(sizeof **function);
            (*function)->kernel = i;
            (*function)->max_shared = 49152;
            (*function)->context = module->context;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER();
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > 232448)
        return CUDA_ERROR_INVALID_VALUE;
    function->max_shared = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? function->max_shared : 0;
    return CUDA_SUCCESS;
}

// ---- streams and events

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER();
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = current();
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) { ENTER(); free(stream); return CUDA_SUCCESS; }

CUresult cuStreamSynchronize(CUstream stream) {
    ENTER();
    if (known_stream(stream)) return known_stream(stream);
    return stream && stream->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) { ENTER(); return CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER();
    *event = calloc(1, sizeof **event);
    (*event)->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    (*event)->context = current();
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) { ENTER(); free(event); return CUDA_SUCCESS; }

CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER();
    if (known_stream(stream) || event->context != current()) return CUDA_ERROR_INVALID_HANDLE;
    event->at = now_ms;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) { ENTER(); return forbid_in_capture(); }
CUresult cuEventQuery(CUevent event) { ENTER(); return CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) { ENTER(); return known_stream(stream); }

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end) {
    ENTER();
    if (!start->timing || !end->timing || !start->at || !end->at) return CUDA_ERROR_INVALID_HANDLE;
    *ms = (float)(end->at - start->at);
    return CUDA_SUCCESS;
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) { return cuEventElapsedTime_v2(ms, start, end); }

// ---- graphs

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    ENTER();
    if (!stream || stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capturing = 1;
    stream->graph = zeroed(sizeof *stream->graph);
    ++captures;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    ENTER();
    if (!stream || !stream->capturing) return CUDA_ERROR_INVALID_VALUE;
    stream->capturing = 0;
    --captures;
    *graph = stream->graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    ENTER();
    struct CUgraph_st *copy = zeroed(sizeof *copy);
    *copy = *graph;
    *made = (CUgraphExec)copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) { free(graph); return CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec graph) { free(graph); return CUDA_SUCCESS; }

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    ENTER();
    if (!graph || known_stream(stream)) return CUDA_ERROR_INVALID_VALUE;
    struct CUgraph_st *steps = (struct CUgraph_st *)graph;
    for (int i = 0; i < steps->count; ++i) run(&steps->steps[i]);
    return CUDA_SUCCESS;
}

// ---- tensor maps

CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
    const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill
) {
    if ((size_t)map % _Alignof(CUtensorMap) || (size_t)address % 16) return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    unsigned char *out = (unsigned char *)map;
    out[0] = (unsigned char)type;
    out[1] = (unsigned char)rank;
    out[2] = (unsigned char)swizzle;
    out[3] = (unsigned char)promotion;
    out[4] = (unsigned char)interleave;
    out[5] = (unsigned char)fill;
    memcpy(out + 8, &address, 8);
    memcpy(out + 16, dims, rank * 8);
    memcpy(out + 56, strides, (rank - 1) * 8);
    memcpy(out + 88, box, rank * 4);
    for (cuuint32_t i = 0; i < rank; ++i) out[108 + i] = (unsigned char)element_strides[i];
    return CUDA_SUCCESS;
}

// ---- errors, and finding functions by name

CUresult cuGetErrorString(CUresult error, const char **text) {
    switch (error) {
    case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
    case CUDA_ERROR_INVALID_IMAGE: *text = "device kernel image is invalid"; break;
    case CUDA_ERROR_NOT_FOUND: *text = "named symbol not found"; break;
    case CUDA_ERROR_INVALID_HANDLE: *text = "invalid resource handle"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *text = "invalid device context"; break;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: *text = "operation not permitted when stream is capturing"; break;
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: *text = "operation would make the legacy stream depend on a capturing blocking stream"; break;
    default: *text = "unknown error";
    }
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) { return cuGetErrorString(error, text); }

CUresult cuGetProcAddress_v2(
    const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status
) {
    static const char *const SUFFIXES[] = {"_v4", "_v3", "_v2", ""};
    char name[128];
    void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    *function = NULL;
    if (!strcmp(symbol, "cuGraphInstantiate")) symbol = "cuGraphInstantiateWithFlags";
    for (int i = 0; self && i < 4 && !*function; ++i) {
        snprintf(name, sizeof name, "%s%s", symbol, SUFFIXES[i]);
        *function = dlsym(self, name);
    }
    if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

"""Memory layout of the emulator's runtime: offsets in bytes of the fields of its structures.

The launcher (Python) fills them, the runtime (``runtime_code/``, compiled) works on them, and thread functions read
their indices from the fiber. Every field is a 64-bit word unless said otherwise.
"""

from __future__ import annotations

# ---- the grid: one launch
MAIN_SP = 0
"""The scheduler's own stack pointer while a fiber runs."""
READY_HEAD = 8
READY_TAIL = 16
LIVE = 24
"""Fibers of the running cluster that have not ended."""
EPOCH = 32
"""Counts block barriers over the whole launch; shadow memory orders accesses by it."""
FIRST_EPOCH = 40
"""The epoch in which the running cluster began."""
BUDGET = 48
SITES = 56
FUNCTION = 64
ARGUMENTS = 72
FIBERS = 80
FIBER_COUNT = 88
BLOCKS = 96
BLOCKS_PER_CLUSTER = 104
THREADS = 112
"""Threads of a block."""
BLOCK_DIM = 120
GRID_DIM = 144
CLUSTER_DIM = 168
STACKS = 192
STACK_BYTES = 200
FRAME_WORDS = 208
FRAME_FIBER = 216
FRAME_FUNCTION = 224
FRAME_ENTRY = 232
ENTRY = 240
FIBER_MAIN = 248
CHECKED = 256
"""1 while faults are looked for."""
ERROR = 264
"""The kind of the fault found, 0 while there is none; the words after it say more."""
ERROR_SITE = 272
ERROR_FIBER = 280
ERROR_INDEX = 288
ERROR_OTHER = 296
"""The other thread of a race, and the words after it its statement and how it accessed."""
ERROR_OTHER_SITE = 304
ERROR_HOW = 312
BARRIER_POOL = 320
"""Memory barriers of the running cluster, and the words after it how many there are and may be."""
BARRIERS_USED = 328
BARRIERS_MAX = 336
STATIC_START = 344
"""Where static shared memory begins, after the dynamic one."""
VECTOR_WORDS = 352
"""32-bit words of a vector of clocks: one for each thread, twice that many where proxies count (see ``clocks``)."""
LAUNCH_REGISTERS = 360
"""Registers that each thread is launched with; 0 where the launch bounds do not say."""
REGISTER_CELLS = 368
"""Registers of a thread that have a shadow, because products use them."""
RESIDENT = 376
"""Blocks that run together: those of a cluster, or the whole grid where its blocks wait for each other."""
GRID_COMMON = 384
"""The epoch that began when the grid's barrier last opened, the threads that wait there, and what they know."""
GRID_ARRIVED = 392
GRID_HEAD = 400
GRID_VECTOR = 408
ATOMIC_PLACES = 416
"""Places of atomic updates, where threads wait for each other by them."""
GRID_BYTES = 448

# ---- a place that is updated atomically
PLACE_VECTOR = 0
PLACE_BYTES = 8
PLACE_COUNT = 64
"""So many, found by address; others share one, so that threads may seem to know more than they do."""

# ---- a block of the running cluster
BLOCK_EPOCH = 0
BLOCK_LIVE = 8
BLOCK_WARPS = 16
BLOCK_BARRIERS = 24
BLOCK_MEMORIES = 32
BLOCK_SHARED = 40
BLOCK_SHARED_BYTES = 48
BLOCK_FIRST = 56
"""The first fiber."""
BLOCK_RANK = 64
BLOCK_INDEX = 72
"""blockIdx x, y, z."""
BLOCK_COMMON = 96
"""The epoch that began when the cluster's barrier last opened."""
BLOCK_POOL = 104
"""Registers that threads have given back (setmaxnreg), and those who wait for some."""
BLOCK_POOL_HEAD = 112
BLOCK_REMOTE = 120
"""For each thread when it last used this block's shared memory from another block of the cluster, and the sites of that.

32-bit words, as in vectors of clocks; 0 where there is no cluster."""
BLOCK_REMOTE_SITES = 128
BLOCK_KNOWN = 136
"""What those threads of the block knew that have ended, a vector of clocks."""
BLOCK_SHOWN = 144
"""What other blocks of the cluster have published to this one: a vector of clocks."""
BLOCK_BYTES = 152

# ---- a warp
WARP_LANES = 0
"""The lanes that exist, as a mask."""
WARP_SCRATCH = 8
WARP_FIRST = 16
WARP_LIVE = 24
WARP_VECTOR = 32
WARP_REGISTERS = 40
"""Registers that each thread of the warp has now, how often that changed, and where last."""
WARP_ADJUSTED = 48
WARP_ADJUSTED_SITE = 56
WARP_PRODUCTS = 64
"""Products of the warpgroup that the warp took part in, and the site of the last."""
WARP_PRODUCT_SITE = 72
WARP_MEETINGS = 80
"""32 meetings, found by the lowest lane that takes part."""
MEETING_MASK = 0
MEETING_ARRIVED = 8
MEETING_SITE = 16
MEETING_HEAD = 24
MEETING_BYTES = 32
WARP_BYTES = WARP_MEETINGS + 32 * MEETING_BYTES
SCRATCH_BYTES = 65536
"""Room of a warp for one collective operation; there are two rooms, used in turns."""

# ---- barriers of a block (bar.sync 0 to 15)
BAR_ARRIVED = 0
BAR_EXPECTED = 8
BAR_HEAD = 16
BAR_SITE = 24
BAR_VECTOR = 32
BAR_PASSED = 40
"""Of the threads that have arrived: those that do not wait. The block's epoch does not end what they do meanwhile."""
BAR_BYTES = 48
BAR_COUNT = 16
BARS = 18
"""Behind the numbered ones that of the cluster, and what it showed when it last opened; the first block's count."""

# ---- memory barriers (mbarrier)
MBAR_EXPECTED = 0
MBAR_PENDING = 8
MBAR_BYTES_LEFT = 16
MBAR_PHASE = 24
MBAR_HEAD = 32
MBAR_VECTOR = 40
MBAR_DONE = 48
"""What the barrier showed when its last phase ended; what comes after it belongs to the next one."""
MBAR_COPIES = 56
"""The first bulk copy that completes on this barrier."""
MBAR_MAKER = 64
"""1 + the thread that made the barrier (0: nobody asks), when, and in which epoch."""
MBAR_MADE = 72
MBAR_MADE_EPOCH = 80
MBAR_FENCED = 88
"""1 + how often the cluster's barrier had opened when its maker's fence published it; 0 before that."""
MBAR_PROXY = 96
"""Whether bulk copies may complete on it, because its maker has fenced since."""
MBAR_BYTES = 104
MBAR_MOST = 0xFFFFF
"""The largest count of arrivals, and of bytes that a phase may wait for at a time."""
MBAR_MAGIC = 0x5EBA0000

# ---- bulk copies under way
BULK_NEXT = 0
BULK_TARGET = 8
BULK_SOURCE = 16
BULK_SIZE = 24
BULK_FIBER = 32
BULK_SITE = 40
BULK_MEMORY = 48
BULK_AT = 56
BULK_INSIDE = 64
"""Bytes that are copied; the others become zero."""
BULK_BYTES = 72

# ---- a tensor map
MAP_ADDRESS = 0
MAP_ELEMENT = 8
MAP_RANK = 16
MAP_SWIZZLE = 24
MAP_SIZES = 32
"""Innermost first, as strides (in bytes) and the box, five words each."""
MAP_STRIDES = 72
MAP_BOX = 112
MAP_BYTES = 152

# ---- a fiber: one thread
FIBER_SP = 0
FIBER_NEXT = 8
FIBER_GRID = 16
FIBER_BLOCK = 24
FIBER_THREAD = 32
"""The thread's number in its cluster."""
FIBER_LANE = 40
FIBER_WARP = 48
FIBER_STATE = 56
FIBER_SITE = 64
FIBER_ROOM = 72
FIBER_DEPOSIT = 80
"""What the thread shows the others of its warp, and the lane whose deposit it wants (32: its own)."""
FIBER_SOURCE = 88
FIBER_ANSWER = 96
FIBER_CLOCK = 104
FIBER_VECTOR = 112
"""The clocks of all threads that this one knows; 0 in kernels whose only synchronisation is of whole blocks."""
FIBER_COPIES = 120
FIBER_COPY_COUNT = 128
FIBER_COPY_ROOM = 136
FIBER_GROUPS = 144
SUSPECT_ADDRESS = 152
"""A store that overwrote another thread's: it is a race unless it leaves memory as it was."""
SUSPECT_SIZE = 160
SUSPECT_SITE = 168
SUSPECT_OTHER = 176
SUSPECT_OTHER_SITE = 184
SUSPECT_INDEX = 192
SUSPECT_OLD = 200
SUSPECT_ROOM = 64
FIBER_BLOCK_IDX = 264
FIBER_THREAD_IDX = 288
FIBER_RANK_IDX = 336
"""The block's place in its cluster."""
FIBER_CANARY = 360
"""The lowest word of the stack, which nobody writes."""
FIBER_PHASE = 368
"""1 + how often the cluster's barrier had opened when this thread arrived at it; 0 where it has waited since."""
FIBER_COORDINATES = 376
FIBER_FENCES = 416
"""How often the thread ordered its registers for products (wgmma.fence)."""
FIBER_REGISTERS = 424
"""The shadow of registers that products use."""
FIBER_SEEN = 432
"""What atomic updates have shown the thread, which counts from its next memory fence on (__threadfence)."""
FIBER_FENCED = 440
"""What the thread knew at its last memory fence, which its atomic updates show others."""
FIBER_MADE = 448
"""Memory barriers that the thread has made and not published by a fence."""
FIBER_QUEUES = 456
"""One for each kind of asynchronous operation whose groups a thread waits for."""
QUEUE_COMMITTED = 0
"""Groups that have been closed; the number of the open one."""
QUEUE_DONE = 8
"""Groups that have been waited for."""
QUEUE_STARTED = 16
"""1 + the number of the last group that has an operation in it, and the site of that."""
QUEUE_SITE = 24
QUEUE_CLOCKS = 32
"""When the last groups were seen to be complete: 32-bit clocks, a ring."""
QUEUE_RING = 64
QUEUE_BYTES = 32 + 4 * QUEUE_RING
QUEUES = 3
FIBER_BYTES = FIBER_QUEUES + QUEUES * QUEUE_BYTES
PRODUCTS, STORES_READ, STORES_WRITE = 0, 1, 2
"""Products of warpgroups; bulk stores reading shared memory; bulk stores writing global memory."""

SPIN_STEPS = 100
"""What a turn of a loop without known end is charged: it lets all others run."""
READY, WAITING, ASKING, ENDED = 0, 1, 2, 3
"""States of a fiber; ASKING is in ``activemask``."""
CANARY = 0x5AFE57AC

# ---- asynchronous copies of a thread (cp.async)
COPY_TARGET = 0
COPY_SOURCE = 8
COPY_SIZE = 16
COPY_GROUP = 24
COPY_SITE = 32
COPY_MEMORY = 40
COPY_AT = 48
COPY_BYTES = 56

# ---- a memory that statements access, one table a block
MEM_BASE = 0
MEM_SIZE = 8
MEM_SHADOW = 16
MEM_SHIFT = 24
MEM_SHARED = 32
MEM_FINE = 40
"""1 where each half of a byte has a cell of its own."""
MEM_BYTES = 48

# ---- a site: one access or synchronisation in the program
SITE_MEMORY = 0
"""The number of the memory; -1 for a thread's own, whose size is in SITE_SIZE."""
SITE_UNIT = 8
SITE_ALIGN = 16
SITE_KIND = 24
SITE_SIZE = 32
SITE_BYTES = 40
SITE_LOAD, SITE_STORE, SITE_ATOMIC, SITE_PRODUCT, SITE_BULK_READ = 0, 1, 2, 3, 4
"""The last two read asynchronously, until their group is complete."""

# ---- a cell of shadow memory: 32-bit words
CELL_W_EPOCH = 0
CELL_W_CLOCK = 4
CELL_W_THREAD = 8
CELL_W_SITE = 12
CELL_R_EPOCH = 16
CELL_R_THREAD = 20
CELL_R_CLOCK = 24
CELL_R_SITE = 28
CELL_R2_THREAD = 32
CELL_R2_CLOCK = 36
CELL_R2_SITE = 40
CELL_HOW = 44
"""How it was written last."""
CELL_BYTES = 48
WROTE_PLAIN, WROTE_ATOMIC, WROTE_ASYNC = 0, 1, 2
NOBODY = 0xFFFFFFFF
PENDING = 0xFFFFFFFF
"""The clock of a write that an asynchronous copy has yet to make."""
TICKET = 0x80000000
"""Instead of a clock: an access that ends when a group of its thread does. The queue and the group are in the ticket."""
TICKET_QUEUE = 28
TICKET_GROUP = 0x0FFFFFFF

# ---- the shadow of a register that products use: 32-bit words
REG_TOUCHED = 0
"""1 + the number of fences before the last access by ordinary code, and where that was."""
REG_TOUCHED_SITE = 4
REG_GROUP = 8
"""1 + the group of the last product that uses it, where that is, its form, and the number of fences before it."""
REG_SITE = 12
REG_FORM = 16
REG_FENCES = 20
REG_BYTES = 24

# ---- kinds of faults
FAULT_BOUNDS = 1
FAULT_ALIGNMENT = 2
FAULT_RACE = 3
FAULT_UNINITIALISED = 4
FAULT_DIVERGENCE = 5
FAULT_DEADLOCK = 6
FAULT_STEPS = 7
FAULT_BARRIER = 8
FAULT_STACK = 9
FAULT_PENDING = 10
FAULT_OTHER_BLOCK = 11
FAULT_READING = 12
"""A write to what an asynchronous operation may still read."""
FAULT_PROXY = 13
FAULT_UNFINISHED = 14
FAULT_REGISTER = 15
FAULT_NO_FENCE = 16
FAULT_BAD_COUNT = 17
FAULT_PART = 18
FAULT_POOL = 19
FAULT_NO_BOUNDS = 20
FAULT_METADATA = 21
FAULT_EXITED = 22
"""A block ends although threads of other blocks may still use its shared memory."""
FAULT_LOADING = 23
"""A block ends while a bulk copy may still be writing its shared memory."""
FAULT_UNPUBLISHED = 24
FAULT_UNSEEN_BARRIER = 25
FAULT_UNFENCED_BARRIER = 26
FAULT_TURNS = 27
"""Arrivals at the cluster's barrier and waits that do not take turns."""
FAULT_GLOBAL_PROXY = 28
FAULT_PARTIAL_PRODUCT = 29
FAULT_PATTERN = 30
"""An operand of a product does not begin where its swizzle pattern does."""
FAULT_BAR_NUMBER = 31
ACTION_NONE, ACTION_SHUFFLE, ACTION_BALLOT = 0, 1, 2
"""What the last lane that comes to a meeting does for all."""
HOW_LOAD, HOW_STORE = 0, 1
HOW_CLOSED = 8
"""Beside the number of the queue: the group is closed."""

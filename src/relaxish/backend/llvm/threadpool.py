"""The thread pool behind parallel loops, written in LLVM text so that it travels with every library.

Workers spin for about a millisecond between regions and then sleep on a futex: a launch on two threads costs about
half a microsecond while the model is busy, and an idle program uses no CPU. A region started while another runs
(nested, or from a second thread) runs in order on the calling thread. After ``fork`` the child starts its own workers.

A region is cut into a few chunks for each thread, and threads draw them by adding one to the ticket word, which holds
the number of chunks and the next one. So a thread that the system holds up delays a region by no more than the chunk
it is in, and the caller never waits for a worker that has not begun. A worker that comes late may draw from the region
after the one that woke it: task and environment are those of the ticket, because they do not change before all chunks
of a region are done.

How many threads there are is asked once, when first needed: the environment variable ``RELAXISH_NUM_THREADS``, else the
CPUs this process may run on. ``void rx_set_num_threads(int32_t n)``, which every library exports, sets it (0: ask again).
"""

from __future__ import annotations

from ...runtime.kernels.failures import FAIL, RECORD, RECORDED, RECORDS
from ...runtime.kernels.packed_calls import CALL, NO_HOST
from ...runtime.kernels.packed_calls import SETTER as SET_PACKED

SET_THREADS = "rx_set_num_threads"
LAUNCH = "rx_parallel_launch"
_MAX_THREADS = 128
_SPINS = 30000
# Chunks drawn by each thread, if there are enough iterations.
_SHARES = 4
_BITS = 20

_STATE = """
@rx_gen = internal global i32 0, align 64
@rx_ticket = internal global i64 0, align 64
@rx_done = internal global i32 0, align 64
@rx_busy = internal global i32 0, align 64
@rx_sleepers = internal global i32 0, align 64
@rx_workers = internal global i32 0
@rx_threads = internal global i32 0
@rx_pid = internal global i32 0
@rx_code = internal global i32 0
@rx_task = internal global ptr null
@rx_env = internal global ptr null
@rx_begin = internal global i64 0
@rx_count = internal global i64 0
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @getpid()
declare i32 @sched_yield()
"""

_DRAIN = """
define internal void @rx_drain() nounwind {
entry:
  br label %take
take:
  %t = atomicrmw add ptr @rx_ticket, i64 1 acq_rel
  %i = and i64 %t, FIELD
  %t1 = lshr i64 %t, BITS
  %n = and i64 %t1, FIELD
  %left = icmp ult i64 %i, %n
  br i1 %left, label %run, label %out
run:
  %task = load ptr, ptr @rx_task
  %env = load ptr, ptr @rx_env
  %first = load i64, ptr @rx_begin
  %count = load i64, ptr @rx_count
  %i1 = add i64 %i, 1
  %x = mul i64 %count, %i
  %y = mul i64 %count, %i1
  %lo = udiv i64 %x, %n
  %hi = udiv i64 %y, %n
  %b = add i64 %first, %lo
  %e = add i64 %first, %hi
  %code = call i32 %task(ptr %env, i64 %b, i64 %e)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %fail, label %ran
fail:
  store atomic i32 %code, ptr @rx_code monotonic, align 4
  br label %ran
ran:
  %d = atomicrmw add ptr @rx_done, i32 1 release
  br label %take
out:
  ret void
}
"""

_WORKER = """
define internal ptr @rx_worker(ptr %arg) nounwind {
entry:
  %a = ptrtoint ptr %arg to i64
  %index = trunc i64 %a to i32
  %high = lshr i64 %a, 32
  %start = trunc i64 %high to i32
  br label %wait
wait:
  %last = phi i32 [ %start, %entry ], [ %g, %next ]
  br label %spin
spin:
  %n = phi i32 [ 0, %wait ], [ %n1, %pause ], [ 0, %sleep ]
  %g = load atomic i32, ptr @rx_gen acquire, align 4
  %new = icmp ne i32 %g, %last
  br i1 %new, label %work, label %pause
pause:
  PAUSE
  %n1 = add i32 %n, 1
  %more = icmp ult i32 %n1, SPINS
  br i1 %more, label %spin, label %sleep
sleep:
  %s0 = atomicrmw add ptr @rx_sleepers, i32 1 seq_cst
  SLEEP
  %s1 = atomicrmw sub ptr @rx_sleepers, i32 1 seq_cst
  br label %spin
work:
  %threads = load i32, ptr @rx_threads
  %mine = icmp ult i32 %index, %threads
  br i1 %mine, label %run, label %next
run:
  call void @rx_drain()
  br label %next
next:
  br label %wait
}
"""

_THREADS = """
@rx_env_name = private constant [21 x i8] c"RELAXISH_NUM_THREADS\\00"
declare ptr @getenv(ptr)
declare i64 @strtol(ptr, ptr, i32)

define void @rx_set_num_threads(i32 %n) nounwind {
  %small = icmp ult i32 %n, MAX
  %c = select i1 %small, i32 %n, i32 MAX
  store i32 %c, ptr @rx_threads
  ret void
}

define internal i32 @rx_thread_count() nounwind {
entry:
  %n = load i32, ptr @rx_threads
  %set = icmp ne i32 %n, 0
  br i1 %set, label %done, label %ask
ask:
  %text = call ptr @getenv(ptr @rx_env_name)
  %absent = icmp eq ptr %text, null
  br i1 %absent, label %cpus, label %read
read:
  %long = call i64 @strtol(ptr %text, ptr null, i32 10)
  %positive = icmp sgt i64 %long, 0
  %large = icmp sgt i64 %long, MAX
  %cut = select i1 %large, i64 MAX, i64 %long
  %wanted = trunc i64 %cut to i32
  br i1 %positive, label %keep, label %cpus
cpus:
  %counted = call i32 @rx_count_cpus()
  br label %keep
keep:
  %found = phi i32 [ %wanted, %read ], [ %counted, %cpus ]
  call void @rx_set_num_threads(i32 %found)
  br label %done
done:
  %r = phi i32 [ %n, %entry ], [ %found, %keep ]
  ret i32 %r
}
"""

_LINUX_CPUS = """
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i64 @llvm.ctpop.i64(i64)
declare i64 @syscall(i64, ...)

define internal i32 @rx_count_cpus() nounwind {
entry:
  %set = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 128, i1 false)
  %rc = call i32 @sched_getaffinity(i32 0, i64 128, ptr %set)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum1, %loop ]
  %p = getelementptr i64, ptr %set, i64 %i
  %v = load i64, ptr %p
  %c = call i64 @llvm.ctpop.i64(i64 %v)
  %sum1 = add i64 %sum, %c
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 16
  br i1 %more, label %loop, label %out
out:
  %none = icmp eq i64 %sum1, 0
  %n = select i1 %none, i64 1, i64 %sum1
  %r = trunc i64 %n to i32
  ret i32 %r
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_POSIX_CPUS = """
declare i64 @sysconf(i32)
declare i32 @usleep(i32)
define internal i32 @rx_count_cpus() nounwind {
  %n = call i64 @sysconf(i32 58)
  %bad = icmp slt i64 %n, 1
  %m = select i1 %bad, i64 1, i64 %n
  %r = trunc i64 %m to i32
  ret i32 %r
}
"""

_LAUNCH_TEXT = """
define i32 @rx_parallel_launch(ptr %task, ptr %env, i64 %begin, i64 %count) nounwind {
entry:
  %none = icmp sle i64 %count, 0
  br i1 %none, label %nothing, label %some
nothing:
  ret i32 0
some:
  %threads = call i32 @rx_thread_count()
  %t64 = zext i32 %threads to i64
  %fewer = icmp slt i64 %count, %t64
  %want64 = select i1 %fewer, i64 %count, i64 %t64
  %want = trunc i64 %want64 to i32
  %alone = icmp ule i32 %want, 1
  br i1 %alone, label %serial, label %try
try:
  %pid = call i32 @getpid()
  %known = load i32, ptr @rx_pid
  %forked = icmp ne i32 %pid, %known
  br i1 %forked, label %reset, label %lock
reset:
  store i32 0, ptr @rx_workers
  store atomic i32 0, ptr @rx_busy seq_cst, align 4
  store atomic i32 0, ptr @rx_sleepers seq_cst, align 4
  store i32 %pid, ptr @rx_pid
  br label %lock
lock:
  %pair = cmpxchg ptr @rx_busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %staff, label %serial
serial:
  %end = add i64 %begin, %count
  %r = call i32 %task(ptr %env, i64 %begin, i64 %end)
  ret i32 %r
staff:
  %have = load i32, ptr @rx_workers
  %have1 = add i32 %have, 1
  %enough = icmp uge i32 %have1, %want
  br i1 %enough, label %start, label %hire
hire:
  %gen0 = load atomic i32, ptr @rx_gen monotonic, align 4
  %g64 = zext i32 %gen0 to i64
  %ghigh = shl i64 %g64, 32
  %i64 = zext i32 %have1 to i64
  %arg64 = or i64 %ghigh, %i64
  %arg = inttoptr i64 %arg64 to ptr
  %handle = alloca i64, align 8
  %rc = call i32 @pthread_create(ptr %handle, ptr null, ptr @rx_worker, ptr %arg)
  %hired = icmp eq i32 %rc, 0
  br i1 %hired, label %count.up, label %start
count.up:
  %h = load i64, ptr %handle
  %d = call i32 @pthread_detach(i64 %h)
  store i32 %have1, ptr @rx_workers
  br label %staff
start:
  %w = load i32, ptr @rx_workers
  %w1 = add i32 %w, 1
  %short = icmp ult i32 %w1, %want
  %active = select i1 %short, i32 %w1, i32 %want
  store ptr %task, ptr @rx_task
  store ptr %env, ptr @rx_env
  store i64 %begin, ptr @rx_begin
  store i64 %count, ptr @rx_count
  store atomic i32 0, ptr @rx_code monotonic, align 4
  store atomic i32 0, ptr @rx_done monotonic, align 4
  %a64 = zext i32 %active to i64
  %many = mul i64 %a64, SHARES
  %few = icmp slt i64 %count, %many
  %chunks = select i1 %few, i64 %count, i64 %many
  %chunks32 = trunc i64 %chunks to i32
  %ticket = shl i64 %chunks, BITS
  store atomic i64 %ticket, ptr @rx_ticket release, align 8
  %gen = load atomic i32, ptr @rx_gen monotonic, align 4
  %nextgen = add i32 %gen, 1
  store atomic i32 %nextgen, ptr @rx_gen seq_cst, align 4
  %asleep = load atomic i32, ptr @rx_sleepers seq_cst, align 4
  %wake = icmp ne i32 %asleep, 0
  br i1 %wake, label %rouse, label %mine
rouse:
  WAKE
  br label %mine
mine:
  call void @rx_drain()
  br label %join
join:
  %n = phi i32 [ 0, %mine ], [ %n1, %pause ], [ 0, %yield ]
  %ran = load atomic i32, ptr @rx_done acquire, align 4
  %done = icmp eq i32 %ran, %chunks32
  br i1 %done, label %finish, label %pause
pause:
  PAUSE
  %n1 = add i32 %n, 1
  %again = icmp ult i32 %n1, SPINS
  br i1 %again, label %join, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %join
finish:
  %code = load atomic i32, ptr @rx_code monotonic, align 4
  store atomic i32 0, ptr @rx_busy release, align 4
  ret i32 %code
}
"""


# What a kernel that must give up leaves behind: each failure has a record of its own, whose number is in its code.
_FAILURES = f"""
@rx_records = internal global [{RECORDS} x {{{{ i64, i64, i64, i64 }}}}] zeroinitializer, align 64
@rx_failed = internal global i32 0

define i32 @{FAIL}(ptr %site, i64 %value, i64 %bound) nounwind cold {{{{
  %n = atomicrmw add ptr @rx_failed, i32 1 monotonic
  %number = and i32 %n, {RECORDED - 1}
  %code = or i32 %number, {RECORDED}
  %record = call ptr @{RECORD}(i32 %code)
  %where = ptrtoint ptr %site to i64
  %code64 = zext i32 %code to i64
  %p1 = getelementptr i64, ptr %record, i64 1
  %p2 = getelementptr i64, ptr %record, i64 2
  %p3 = getelementptr i64, ptr %record, i64 3
  store i64 %where, ptr %p1
  store i64 %value, ptr %p2
  store i64 %bound, ptr %p3
  store atomic i64 %code64, ptr %record release, align 8
  ret i32 %code
}}}}

define ptr @{RECORD}(i32 %code) nounwind {{{{
  %slot = and i32 %code, {RECORDS - 1}
  %wide = zext i32 %slot to i64
  %record = getelementptr {{{{ i64, i64, i64, i64 }}}}, ptr @rx_records, i64 %wide
  ret ptr %record
}}}}
""".replace("{{", "{").replace("}}", "}")


# What a waiting thread does, by the start of the architecture's name: no inline assembly, which LLVM could only read for
# the machine it runs on.
_PAUSES = (
    (("x86", "amd", "i"), "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()\n"),
    (("aarch64", "arm64"), "call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)\n"),
    (("arm", "thumb"), "call void @llvm.arm.hint(i32 1)", "declare void @llvm.arm.hint(i32)\n"),
)
_NO_PAUSE = ('fence syncscope("singlethread") seq_cst', "")


# Calls of functions that the process registers: what serves them is told by the host, and without it they fail.
_PACKED = f"""
@rx_packed_server = internal global ptr null, align 8

define void @{SET_PACKED}(ptr %server) nounwind {{{{
  store atomic ptr %server, ptr @rx_packed_server release, align 8
  ret void
}}}}

define i32 @{CALL}(ptr %name, ptr %kinds, ptr %words, i32 %wanted, ptr %result) {{{{
  %server = load atomic ptr, ptr @rx_packed_server acquire, align 8
  %none = icmp eq ptr %server, null
  br i1 %none, label %alone, label %call
alone:
  ret i32 {NO_HOST}
call:
  %code = call i32 %server(ptr %name, ptr %kinds, ptr %words, i32 %wanted, ptr %result)
  ret i32 %code
}}}}
""".replace("{{", "{").replace("}}", "}")


def pool_text(triple: str) -> str:
    """The pool's module for one triple."""
    arch = triple.split("-")[0]
    linux = "linux" in triple
    # Numbers of the system call: x86-64 has its own, 32-bit x86 and ARM another, later architectures share one.
    futex = 202 if arch.startswith(("x86", "amd")) else 240 if arch.startswith(("i", "armv", "thumb")) else 98
    pause, declared = next((p for starts, *p in _PAUSES if arch.startswith(starts)), _NO_PAUSE)
    if linux:
        sleep = f"%sl = call i64 (i64, ...) @syscall(i64 {futex}, ptr @rx_gen, i32 128, i32 %last, ptr null)"
        wake = f"%wk = call i64 (i64, ...) @syscall(i64 {futex}, ptr @rx_gen, i32 129, i32 {_MAX_THREADS})"
    else:
        sleep = "%sl = call i32 @usleep(i32 100)"
        wake = ""
    text = _STATE + (_LINUX_CPUS if linux else _POSIX_CPUS) + _THREADS + _DRAIN + _WORKER + _LAUNCH_TEXT + _FAILURES
    text += _PACKED
    for key, value in (("SLEEP", sleep), ("WAKE", wake), ("PAUSE", pause), ("SPINS", str(_SPINS)),
                       ("SHARES", str(_SHARES)), ("FIELD", str((1 << _BITS) - 1)), ("BITS", str(_BITS))):  # fmt: skip
        text = text.replace(key, value)
    text = text.replace("i32 MAX", f"i32 {_MAX_THREADS}").replace("i64 MAX", f"i64 {_MAX_THREADS}")
    text = text.replace("%n, MAX", f"%n, {_MAX_THREADS}").replace("%long, MAX", f"%long, {_MAX_THREADS}")
    return f'target triple = "{triple}"\n' + text + declared

/* CUDA's words for a C++ compiler of the CPU: the threads of a block are coroutines, run one at a time, each until it
 * waits for the others. What is not ordered by a barrier shows, because the threads run in two orders (run.h). */
#pragma once
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __host__
#define __launch_bounds__(most_threads)

struct place_t {
    unsigned x, y, z;
};
static place_t threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
enum { STACK = 1 << 16, MOST = 1024, WARP = 32 };

struct thread_t {
    jmp_buf at;
    ucontext_t start;
    bool done, begun;
    int waits; /* barriers reached: of the block, and of the warp */
    int warp_waits;
    double word;
    char *stack;
};

static thread_t threads[MOST];
static jmp_buf scheduler;
static int running, count;
static void (*body)(void **);
static void **arguments;

static void yield() {
    if (!_setjmp(threads[running].at)) _longjmp(scheduler, 1);
}

static void entry() {
    for (;;) {
        body(arguments);
        threads[running].done = true;
        yield();
    }
}

static void resume(int number) {
    running = number;
    threadIdx = {number % blockDim.x, number / blockDim.x, 0};
    thread_t &it = threads[number];
    if (_setjmp(scheduler)) return;
    if (it.begun) _longjmp(it.at, 1);
    it.begun = true;
    if (!it.stack) it.stack = (char *)malloc(STACK);
    getcontext(&it.start);
    it.start.uc_stack.ss_sp = it.stack;
    it.start.uc_stack.ss_size = STACK;
    makecontext(&it.start, entry, 0);
    setcontext(&it.start);
}

/* Wait until threads from..to have all waited as often as this one. A thread that has ended waits no more. */
static void wait(int from, int to, int thread_t::*waits) {
    const int mine = ++(threads[running].*waits);
    for (;;) {
        bool all = true;
        for (int i = from; i < to; i++) all = all && (threads[i].done || threads[i].*waits >= mine);
        if (all) return;
        yield();
    }
}

static double exchanged[MOST];

/* Runs the block; `backwards`: the last thread first. */
static void run_block(bool backwards) {
    for (int i = 0; i < count; i++) threads[i].done = false, threads[i].waits = threads[i].warp_waits = 0;
    for (int left = count; left;) {
        left = 0;
        for (int i = 0; i < count; i++) {
            const int number = backwards ? count - 1 - i : i;
            if (!threads[number].done) resume(number);
            left += !threads[number].done;
        }
    }
}
} // namespace emulated

static inline void __syncthreads() { emulated::wait(0, emulated::count, &emulated::thread_t::waits); }

template <class T> static T __shfl_down_sync(unsigned mask, T value, int by) {
    using namespace emulated;
    if (mask != 0xFFFFFFFFu || count % WARP) abort(); /* whole warps only */
    const int me = running, first = me / WARP * WARP;
    std::memcpy(&exchanged[me], &value, sizeof value);
    wait(first, first + WARP, &thread_t::warp_waits);
    T found = value;
    if (me % WARP + by < WARP) std::memcpy(&found, &exchanged[me + by], sizeof found);
    wait(first, first + WARP, &thread_t::warp_waits);
    return found;
}

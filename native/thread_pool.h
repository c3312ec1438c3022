/* Threads for kernels: a small pool that lives as long as the process and survives fork. */
#ifndef SAMERUN_THREAD_POOL_H
#define SAMERUN_THREAD_POOL_H

#include <stdint.h>

/* Call work(job, from, to) for pieces of at least `grain` that together make 0..n-1, and return when all are
 * done. Pieces run in any order on any thread, so work must not depend on how 0..n-1 is cut. May be called
 * from several threads at once and from inside work: whoever finds the pool busy works alone.
 * Inside work, rounding is to nearest and subnormals are kept, whatever the caller's thread is set to. */
void samerun_parallel_for(int64_t n, int64_t grain, void (*work)(void *job, int64_t from, int64_t to), void *job);

/* Run the jobs of the main thread on the threads of this GOMP_parallel instead, until the process forks; NULL: no more.
 * omp_get_thread_num numbers them. The child has its own pool. Call it while no job runs. */
typedef void samerun_gomp_parallel(void (*work)(void *), void *job, unsigned threads, unsigned flags);
typedef int samerun_omp_get_thread_num(void);
void samerun_use_openmp_team(samerun_gomp_parallel *gomp_parallel, samerun_omp_get_thread_num *omp_get_thread_num);

/* How many threads share a job, the caller's included. At least 1, at most 256; others are moved in between. */
void samerun_set_num_threads(int threads);
int samerun_get_pool_num_threads(void);
/* The same, or 1 inside work: a job that is started there gets no others. */
int samerun_get_num_threads_for_new_job(void);

#endif

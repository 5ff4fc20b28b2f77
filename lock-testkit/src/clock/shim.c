/*
 * Preloaded into a program: its wall clock shows what a shared file says, which may change while the
 * program runs. Clocks that nobody can set stay as they are.
 *
 * It calls nothing of the C library that allocates: the first call may come from the allocator.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

/* As `clock/mod.rs` writes it. The sequence is odd while the rest changes. */
struct shift {
    uint64_t sequence;
    int64_t offset;      /* ns */
    int64_t drift;       /* ns per second of the boot clock since the anchor */
    int64_t anchor;      /* ns of the boot clock */
};

static const volatile struct shift *shared;

/* What the real clock says; neither the library nor the vDSO, which would be found by dlsym. */
static int64_t now(clockid_t clock)
{
    struct timespec time = {0};
    syscall(SYS_clock_gettime, clock, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static int64_t shift(void)
{
    if (!shared)
        return 0;
    for (;;) {
        uint64_t before = __atomic_load_n(&shared->sequence, __ATOMIC_ACQUIRE);
        int64_t offset = shared->offset, drift = shared->drift, anchor = shared->anchor;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before % 2 || before != __atomic_load_n(&shared->sequence, __ATOMIC_RELAXED))
            continue;
        if (!drift)
            return offset;
        return offset + (int64_t)((__int128)(now(CLOCK_BOOTTIME) - anchor) * drift / SECOND);
    }
}

static struct timespec timespec(int64_t ns)
{
    struct timespec time = {ns / SECOND, ns % SECOND};
    if (time.tv_nsec < 0) {
        time.tv_sec -= 1;
        time.tv_nsec += SECOND;
    }
    return time;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return (int)failed;
    *time = timespec(time->tv_sec * SECOND + time->tv_nsec + shift());
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    struct timespec wall = timespec(now(CLOCK_REALTIME) + shift());
    time->tv_sec = wall.tv_sec;
    time->tv_usec = wall.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    time_t wall = timespec(now(CLOCK_REALTIME) + shift()).tv_sec;
    if (seconds)
        *seconds = wall;
    return wall;
}

/* The kernel waits by the real wall clock for a moment that the program has taken from ours. */
static struct timespec real(const struct timespec *wall)
{
    struct timespec time = timespec(wall->tv_sec * SECOND + wall->tv_nsec - shift());
    if (time.tv_sec < 0)
        time = (struct timespec){0, 0};
    return time;
}

typedef int wait_function(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
typedef int clock_wait_function(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                                const struct timespec *);
static wait_function *cond_timedwait;
static clock_wait_function *cond_clockwait;

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
#ifdef __GLIBC__
    /* Bit 1 says that it waits by the monotonic clock. */
    if (cond->__data.__wrefs & 2)
        return cond_timedwait(cond, mutex, until);
#endif
    struct timespec time = real(until);
    return cond_timedwait(cond, mutex, &time);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    struct timespec time = clock == CLOCK_REALTIME ? real(until) : *until;
    return cond_clockwait(cond, mutex, clock, &time);
}

static void give_up(const char *reason, size_t length)
{
    ssize_t ignored = write(STDERR_FILENO, reason, length);
    (void)ignored;
    _exit(127);
}
#define GIVE_UP(reason) give_up(reason, sizeof reason - 1)

/* Before any thread of the program. */
__attribute__((constructor)) static void start(void)
{
    /* Without a version, dlsym may return the wait of before glibc 2.3.2 on some machines. */
    cond_timedwait = (wait_function *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!cond_timedwait)
        cond_timedwait = (wait_function *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    cond_clockwait = (clock_wait_function *)dlsym(RTLD_NEXT, "pthread_cond_clockwait");

    const char *path = getenv("POLYLOCK_CLOCK");
    if (!path)
        GIVE_UP("POLYLOCK_CLOCK is not set\n");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        GIVE_UP("the file of POLYLOCK_CLOCK cannot be opened\n");
    void *place = mmap(NULL, sizeof(struct shift), PROT_READ, MAP_SHARED, file, 0);
    if (place == MAP_FAILED)
        GIVE_UP("the file of POLYLOCK_CLOCK cannot be mapped\n");
    close(file);
    shared = place;
}

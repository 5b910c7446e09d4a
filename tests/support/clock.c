/* Preloaded into a process: its wall clock is wrong by as many seconds as the file CLOCK_FILE has as an int64_t.

   libfaketime breaks clock_nanosleep() until a time of the monotonic clock, which is Python's sleep. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);

    if (found != MAP_FAILED)
        seconds = found;
    if (file >= 0)
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int) syscall(SYS_clock_gettime, clock, now);

    if (result == 0 && clock == CLOCK_REALTIME && seconds)
        now->tv_sec += *seconds;
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;

    (void) zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (also)
        *also = now.tv_sec;
    return now.tv_sec;
}

/* Preloaded library that moves the wall clock of a process once the file named by AHEAD exists: by the number of seconds in the file, or
   by two days if it is empty. The monotonic clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    const char *mark = getenv("AHEAD");
    int before = errno;
    int file = mark ? open(mark, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        errno = before;
        return 0;
    }
    char text[32];
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    errno = before;
    if (length <= 0) return 2 * 24 * 60 * 60;
    text[length] = 0;
    return atol(text);
}

int gettimeofday(struct timeval *now, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    now->tv_sec += ahead();
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += ahead();
    return result;
}

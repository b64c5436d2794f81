/* The work that is measured: it opens, reads and closes the file $2 $1 times, and starts a program every 50 times. It stops first, and once
 * it is let go on, works $3 times and prints the nanoseconds of each. Without arguments, it is the program that is started. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void start(const char *program) {
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, (char *)0);
        _exit(1);
    }
    if (child < 0 || waitpid(child, 0, 0) != child)
        exit(1);
}

static void work(long times, const char *path) {
    for (long n = 0; n < times; n++) {
        char bytes[4096];
        int file = open(path, O_RDONLY);
        if (file < 0 || read(file, bytes, sizeof bytes) < 0 || close(file) < 0)
            exit(1);
        if (n % 50 == 0)
            start("/proc/self/exe");
    }
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 0;
    raise(SIGSTOP);
    for (long repeat = atol(argv[3]); repeat > 0; repeat--) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        work(atol(argv[1]), argv[2]);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%lld\n", (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec);
    }
    return 0;
}

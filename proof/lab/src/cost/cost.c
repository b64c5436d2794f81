/* The work that is measured: it opens, reads and closes the file $2 $1 times, and starts a program every 50 times. It stops first, and
 * prints the nanoseconds that the work took once it was let go on. Without arguments, it is the program that is started. */
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

int main(int argc, char **argv) {
    if (argc < 3)
        return 0;
    long times = atol(argv[1]);
    raise(SIGSTOP);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long n = 0; n < times; n++) {
        char bytes[4096];
        int file = open(argv[2], O_RDONLY);
        if (file < 0 || read(file, bytes, sizeof bytes) < 0 || close(file) < 0)
            return 1;
        if (n % 50 == 0)
            start("/proc/self/exe");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%lld\n", (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec);
    return 0;
}

/*
 * Threads record on two CPUs while children of `vfork` record in the same memory. Each event has its recorder and a number that
 * counts. Prints the folder of the session, the events of each thread, and the children's. The argument is how each child is
 * made: `vfork`, or `fork` for comparison.
 */
#include <lastwords.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 200000
#define CHILDREN 1500
#define EACH 3

static volatile int stop;
static uint64_t counts[2];

static void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *record(void *number)
{
    uint64_t thread = (uint64_t)(uintptr_t)number, i = 0;

    pin((int)thread);
    for (; !stop && i < MOST; i++)
        LW_EVENT("v", "thread", lw_u64(who, thread), lw_u64(i));
    counts[thread] = i;
    return NULL;
}

int main(int argc, char **argv)
{
    struct lw_builder *builder = lw_builder_new("vfork");
    struct lw_channel channel;
    struct lw_session *session;
    pthread_t threads[2];
    uint64_t done = 0;
    int child, status;

    memset(&channel, 0, sizeof channel);
    channel.name = "m";
    channel.sub_buffer_size = 4 << 20;
    channel.sub_buffers = 4;
    channel.discard = 1;
    lw_builder_channel(builder, &channel);
    session = lw_builder_start(builder);
    if (argc < 2 || !session) {
        fprintf(stderr, "vfork: %s\n", lw_error());
        return 1;
    }
    pin(0);
    LW_EVENT("v", "main", lw_u64(who, 9), lw_u64(i, 0));
    for (child = 0; child < 2; child++)
        if (pthread_create(&threads[child], NULL, record, (void *)(uintptr_t)child) != 0)
            return 1;
    for (child = 0; child < CHILDREN; child++) {
        int is_fork = strcmp(argv[1], "fork") == 0;
        pid_t pid = is_fork ? fork() : vfork();

        if (pid < 0)
            return 1;
        if (pid == 0) {
            uint64_t i;

            /* A child on another CPU than its parent, and one that shares the CPU with a thread. */
            pin(child & 1);
            for (i = 0; i < EACH; i++)
                LW_EVENT("v", "child", lw_u64(who, 100), lw_u64(i, (uint64_t)child * EACH + i));
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
        done += EACH;
        LW_EVENT("v", "parent", lw_u64(who, 9), lw_u64(i, (uint64_t)child + 1));
    }
    stop = 1;
    for (child = 0; child < 2; child++)
        pthread_join(threads[child], NULL);
    printf("%s\n%llu %llu %llu %d\n", lw_session_folder(session), (unsigned long long)counts[0], (unsigned long long)counts[1],
           (unsigned long long)done, CHILDREN + 1);
    fflush(stdout);
    kill(getpid(), SIGKILL);
    return 1;
}

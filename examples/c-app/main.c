/*
 * A C program that keeps its last words: threads work, every piece of work is an event. Kill it whenever you like, then
 * `lastwords report c-app`.
 *
 *     cc main.c $(pkg-config --cflags --libs lastwords) -lpthread -o c-app
 *
 * Each thread numbers its events and prints how many recording calls have returned, so that examples/run.sh can compare
 * what was recovered with what was recorded.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <lastwords.h>

#define THREADS 3
/* Events between two reports. */
#define BATCH 100

static void one(uint64_t thread, uint64_t sequence)
{
    if (sequence % 2)
        LW_EVENT("worker", "step", lw_u64(thread), lw_u64(sequence), lw_f64(share, 0.25));
    else
        LW_EVENT("worker", "file", lw_u64(thread), lw_u64(sequence), lw_str(path, "/etc/hosts"));
}

static void *work(void *argument)
{
    uint64_t thread = *(const uint64_t *)argument;
    uint64_t sequence = 0;

    for (;;) {
        int i;
        for (i = 0; i < BATCH; i++)
            one(thread, sequence++);
        if (printf("committed %" PRIu64 " %" PRIu64 "\n", thread, sequence) < 0 || fflush(stdout) != 0)
            return NULL;
        usleep(20000);
    }
}

int main(void)
{
    struct lw_session *session = lw_session_begin("c-app");
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    int i;

    if (!session || lw_install_signal_handlers(NULL, 0) != 0) {
        fprintf(stderr, "c-app: %s\n", lw_error());
        return 1;
    }
    for (i = 0; i < THREADS; i++) {
        numbers[i] = (uint64_t)i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0)
            return 1;
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    lw_session_end(session);
    return 0;
}

/*
 * Loads the library that the first argument names into a process that runs, with what it is linked with, and calls its
 * `payloads` in a thread that was there before. Then closes it: what it left behind goes on. The other arguments go to it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*entry_t)(int, char **);

static pthread_barrier_t loaded;
static entry_t entry;
static int arguments;
static char **values;

static void *run(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&loaded);
    return entry(arguments, values) == 0 ? &loaded : NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *library, *done;

    if (argc < 2 || pthread_barrier_init(&loaded, NULL, 2) != 0 || pthread_create(&thread, NULL, run, NULL) != 0)
        return 2;
    library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "late: %s\n", dlerror());
        return 1;
    }
    *(void **)&entry = dlsym(library, "payloads");
    if (!entry)
        return 1;
    arguments = argc - 1;
    values = argv + 1;
    pthread_barrier_wait(&loaded);
    pthread_join(thread, &done);
    dlclose(library);
    usleep(50000);
    return done ? 0 : 1;
}

/*
 * Loads the libraries that the arguments name, in their order, into a process that runs. With OTHER it is such a library: one whose
 * variables of threads have to be in the memory that the C library reserves for late libraries.
 */
#ifdef OTHER
static __thread char storage[1024] __attribute__((tls_model("initial-exec")));

char *other(int place);
char *other(int place)
{
    return &storage[place];
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int i;

    for (i = 1; i < argc; i++) {
        if (!dlopen(argv[i], RTLD_NOW | RTLD_LOCAL)) {
            fprintf(stderr, "beside: %s\n", dlerror());
            return 1;
        }
    }
    return 0;
}
#endif

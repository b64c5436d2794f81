/* Loads the application, and with it the recorder, when it runs already: as a program does whose plugin records. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char self[PATH_MAX] = "", path[PATH_MAX + 16];
    int (*app)(int, char **);
    void *library;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    snprintf(path, sizeof path, "%s/app.so", dirname(self));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&app = dlsym(library, "app_main");
    return app ? app(argc, argv) : 1;
}

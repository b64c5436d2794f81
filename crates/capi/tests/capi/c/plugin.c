/*
 * A program and, with PLUGIN, a library that it loads, lets record, and closes, before it goes on. Prints its session's
 * folder. The argument is the library.
 */
#include <dlfcn.h>
#include <stdio.h>

#include <lastwords.h>

#ifdef PLUGIN
void run(void);
void run(void)
{
    LW_EVENT("plugin", "run", lw_u32(7));
}
#else
int main(int argc, char **argv)
{
    struct lw_channel channel = { "main", 65536, 8, LW_CONTEXT_NONE, 0, 0, 0, 0, NULL, 0, 0 };
    struct lw_builder *builder = lw_builder_new("host");
    struct lw_session *session;
    void *library;
    void (*run)(void);

    if (argc < 2 || lw_builder_channel(builder, &channel) != 0 || !(session = lw_builder_start(builder)))
        return 2;
    library = dlopen(argv[1], RTLD_NOW);
    if (!library)
        return 3;
    *(void **)&run = dlsym(library, "run");
    run();
    dlclose(library);
    LW_EVENT("host", "closed", lw_u32(8));
    if (lw_session_disable(session, "host:none") != 0)
        return 4;
    LW_EVENT("host", "end", lw_u32(9));
    printf("%s\n", lw_session_folder(session));
    lw_session_end(session);
    return 0;
}
#endif

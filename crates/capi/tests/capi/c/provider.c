/*
 * A program and, with PLUGIN, a library that gives it a context and is closed before anything is recorded. Prints its
 * session's folder. The argument is the library.
 */
#include <dlfcn.h>
#include <stdio.h>

#include <lastwords.h>

#ifdef PLUGIN
static void read_answer(void *to, void *data)
{
    (void)data;
    *(uint32_t *)to = 42;
}

static const struct lw_context answer = LW_USER_CONTEXT(lw_u32(answer), read_answer, NULL);

const struct lw_context *context(void);
const struct lw_context *context(void)
{
    return &answer;
}
#else
int main(int argc, char **argv)
{
    struct lw_channel channel = { "main", 65536, 8, LW_CONTEXT_NONE, 0, 0, 0, 1, NULL, 0, 0 };
    struct lw_builder *builder = lw_builder_new("host");
    struct lw_session *session;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const struct lw_context *(*context)(void);

    if (!library)
        return 2;
    *(void **)&context = dlsym(library, "context");
    channel.user_contexts = context();
    if (lw_builder_channel(builder, &channel) != 0 || !(session = lw_builder_start(builder)))
        return 3;
    dlclose(library);
    LW_EVENT("host", "closed", lw_u32(n, 8));
    printf("%s\n", lw_session_folder(session));
    lw_session_end(session);
    return 0;
}
#endif

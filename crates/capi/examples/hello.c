/*
 * Records a few events and dies; `lastwords recover FOLDER` has them all.
 *
 *     cc hello.c $(pkg-config --cflags --libs lastwords) -o hello && ./hello kill
 *
 * Prints the session's folder, a line for each event recorded, then dies as the argument says: kill, abort, segv, or not at all.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <lastwords.h>

static void crash(void)
{
    volatile uintptr_t nowhere = 16;
    *(volatile int *)nowhere = 1;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    struct lw_session *session = lw_session_begin("hello");
    uint16_t samples[3] = { 1, 2, 3 };
    uint64_t i;

    if (!session || lw_install_signal_handlers(NULL, 0) != 0) {
        fprintf(stderr, "hello: %s\n", lw_error());
        return 1;
    }
    printf("%s\n", lw_session_folder(session));
    for (i = 0; i < 1000; i++) {
        LW_EVENT("hello", "step", lw_u64(i), lw_u32(square, i * i), lw_str(name, "a text of more than eight bytes"));
        printf("step %" PRIu64 "\n", i);
    }
    LW_EVENT("hello", "types", lw_i8(minus, -1), lw_x32(hex, 0xbeef), lw_f64(half, 0.5), lw_bool(yes, 1),
             lw_ptr(where, (void *)samples), lw_u16s(samples, samples, 3), lw_bytes(raw, "\1\2\3", 3));
    LW_EVENT_AT(LW_LEVEL_ERROR, "hello", "failed", lw_i32(code, -5));
    LW_EVENT("hello", "nothing");
    LW_MARK("about to die by {} after {}", lw_str(how), lw_u64(i));
    fflush(stdout);
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "segv"))
        crash();
    lw_session_end(session);
    return 0;
}

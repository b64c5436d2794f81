// Tries forbidden calls from inside the part of the core helper that reads a dying process's memory, to see what forbids them. Root starts the
// part as the helper does, traces it, and has it make the calls: when it is `nobody`, after Landlock, and after seccomp.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

// Bytes below the stack pointer from which on the calls' arguments lie: not in the 128 that a function may use.
#define BELOW 1024
// Has a process that has just returned from a system call make another one. Returns its result.
static long inject(pid_t pid, long number, long first, long second, long third, const void *data, size_t len) {
    struct user_regs_struct kept, regs;
    must(ptrace(PTRACE_GETREGS, pid, 0, &kept) == 0, "registers");
    regs = kept;
    unsigned long at = (kept.rsp - BELOW) & ~15UL;
    for (size_t done = 0; done < len; done += sizeof(long)) {
        long word = 0;
        memcpy(&word, (const char *)data + done, len - done < sizeof word ? len - done : sizeof word);
        must(ptrace(PTRACE_POKEDATA, pid, at + done, word) == 0, "arguments");
    }
    // The instruction of the call that it has just made.
    regs.rip -= 2;
    regs.rax = number;
    regs.orig_rax = -1;
    regs.rdi = first;
    regs.rsi = data ? (long)at : second;
    regs.rdx = third;
    must(ptrace(PTRACE_SETREGS, pid, 0, &regs) == 0, "registers");
    for (int stop = 0; stop < 2; stop++) {
        int status;
        must(ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0 && waitpid(pid, &status, __WALL) == pid, "the call");
        must(WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80), "it does not stop at its call");
    }
    must(ptrace(PTRACE_GETREGS, pid, 0, &regs) == 0 && ptrace(PTRACE_SETREGS, pid, 0, &kept) == 0, "registers");
    return (long)regs.rax;
}

// The error of a call, 0 if it succeeds.
static int error_of(long result) { return result < 0 ? (int)-result : 0; }

// Tries to open a file that all may read, to make a socket, and to connect it. Returns true if the errors are those that are expected;
// -1 expects any but EACCES.
static int try(pid_t pid, const char *when, int of_open, int of_socket, int of_connect) {
    static const char file[] = "/etc/passwd";
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    long opened = inject(pid, SYS_openat, AT_FDCWD, 0, O_RDONLY, file, sizeof file);
    long made = inject(pid, SYS_socket, AF_INET, SOCK_STREAM, 0, NULL, 0);
    int connected = 0;
    if (made >= 0) {
        connected = error_of(inject(pid, SYS_connect, made, 0, sizeof port, &port, sizeof port));
        inject(pid, SYS_close, made, 0, 0, NULL, 0);
    }
    if (opened >= 0) inject(pid, SYS_close, opened, 0, 0, NULL, 0);
    printf("%s: open %d socket %d connect %d\n", when, error_of(opened), error_of(made), connected);
    return error_of(opened) == of_open && error_of(made) == of_socket && (of_connect < 0 ? connected != EACCES : connected == of_connect);
}

// Prints what the kernel says of its rights and of its open files. Returns true if it has none but those that it needs.
static int show(pid_t pid) {
    char path[64], line[256];
    int rights = 0, files = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *status = fopen(path, "r");
    must(status != NULL, path);
    while (fgets(line, sizeof line, status)) {
        static const char *const wanted[] = {"Uid:\t65534\t65534\t65534\t65534\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
                                             "NoNewPrivs:\t1\n", "Seccomp:\t2\n"};
        for (unsigned at = 0; at < sizeof wanted / sizeof *wanted; at++) rights += strcmp(line, wanted[at]) == 0;
    }
    fclose(status);
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    must(folder != NULL, path);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char name[320];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        ssize_t len = readlink(name, line, sizeof line - 1);
        line[len < 0 ? 0 : len] = 0;
        printf("file %s: %s\n", entry->d_name, line);
        // Its socket (twice: as stdin and as what it answers through), /dev/null, and what it reads.
        int is_needed = strncmp(line, "socket:", 7) == 0 || strcmp(line, "/dev/null") == 0;
        const char *end = strrchr(line, '/');
        is_needed = is_needed || (strncmp(line, "/proc/", 6) == 0 && end && (!strcmp(end, "/mem") || !strcmp(end, "/maps")));
        files += !is_needed;
    }
    closedir(folder);
    printf("rights: %d of 5 are as they must be; files that it does not need: %d\n", rights, files);
    return rights == 5 && files == 0;
}

// Gives the part its task and the files of this process, as part.rs does.
static void give(int socket) {
    static const char task[] = "{\"pid\":1,\"pid_namespace\":0,\"signal\":11,\"most_read\":0}";
    unsigned long len = sizeof task - 1;
    int files[2] = {open("/proc/self/mem", O_RDONLY | O_CLOEXEC), open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof files)]; } control = {0};
    struct iovec bytes = {&len, sizeof len};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof files)};
    memcpy(CMSG_DATA(&control.head), files, sizeof files);
    must(sendmsg(socket, &message, 0) == sizeof len && write(socket, task, len) == (ssize_t)len, "the task");
}

int probe(char **words) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1), call = 0, argument = 0;
    int sockets[2], status, before = 0, landlock = abi < 0, seccomp = 0;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "a socket");
    give(sockets[0]);
    pid_t pid = fork();
    if (pid == 0) {
        int none = open("/dev/null", O_RDWR);
        must(dup2(sockets[1], 0) == 0 && dup2(none, 1) == 1 && dup2(none, 2) == 2, "files");
        must(syscall(SYS_close_range, 3, ~0U, 0) == 0 && ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0, "to be traced");
        execvp(words[0], words);
        _exit(3);
    }
    close(sockets[1]);
    must(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the start");
    must(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL) == 0, "the options");
    for (int signal = 0; ptrace(PTRACE_SYSCALL, pid, 0, signal) == 0 && waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status);) {
        signal = WSTOPSIG(status);
        if (signal != (SIGTRAP | 0x80)) {
            if (signal == SIGTRAP) signal = 0;
            continue;
        }
        signal = 0;
        struct __ptrace_syscall_info info;
        must(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0, "the call");
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY) call = (long)info.entry.nr, argument = (long)info.entry.args[0];
        if (info.op != PTRACE_SYSCALL_INFO_EXIT || info.exit.is_error) continue;
        // The last call before the sandbox.
        if (call == SYS_prctl && argument == PR_SET_PDEATHSIG) before = try(pid, "nobody", 0, 0, -1);
        // Connections are forbidden from version 4 on (Linux 6.7).
        if (call == SYS_landlock_restrict_self) landlock = try(pid, "Landlock", EACCES, 0, abi >= 4 ? EACCES : -1);
        if (call == SYS_seccomp) seccomp = try(pid, "seccomp", EPERM, EPERM, 0) && show(pid);
    }
    int ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("version of Landlock: %ld; the part ended with %d\n", abi, ended);
    return !(before && landlock && seccomp && ended == 0);
}

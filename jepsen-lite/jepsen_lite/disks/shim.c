/* Between a process and its data directory: slow syncs, and what a power cut would take.

   Loaded with LD_PRELOAD. It keeps, outside the data directory, what each write since the last sync
   of its file overwrote, and each name that was made, replaced or removed since the last sync of
   its directory. undo.py reads that after the process was killed. The process itself sees its files
   as ever, and the boot id of a machine of its own, which a power cut changes.

   It takes what comes through libc's own functions, as Python and LMDB do. Not seen, and therefore
   durable at once: stdio's writes, writable maps, sendfile, copy_file_range, directories that are
   made, renamed or removed, links. */

/* Contents */

static void wait_for_disk(void) {
    struct timespec begun, now, moment = {0, 5000000};
    int error = errno;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (uint32_t delay; (delay = control->delay_ms);) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t left = delay - (now.tv_sec - begun.tv_sec) * 1000
                     - (now.tv_nsec - begun.tv_nsec) / 1000000;
        if (left <= 0) break;
        moment.tv_nsec = (left < 5 ? left : 5) * 1000000;
        nanosleep(&moment, NULL);  /* in steps, so that a disk that is healed is so at once */
    }
    errno = error;
}

/* Take the lock and keep what is overwritten from `offset` on; false if the file is not ours.
   A write through O_DSYNC is durable, also against what older writes would bring back. */
static int before_write(int fd, int64_t offset, size_t length) {
    struct stat st;
    char path[PATH_LIMIT], undo[PATH_MAX];
    if (belongs(fd, &st, path) != S_IFREG) return 0;
    int flags = fcntl(fd, F_GETFL), durable = flags & O_DSYNC;
    if (durable) wait_for_disk();
    take();
    if (fstat(fd, &st) != 0) trouble();
    if (flags & O_APPEND) offset = st.st_size;
    else if (offset < 0) offset = lseek(fd, 0, SEEK_CUR);
    undo_path(undo, st.st_ino);
    if (durable && !control->swallow) {
        if (access(undo, F_OK) == 0) keep(fd, &st, WRITTEN_DURABLY, (uint64_t)offset, length);
        control->syncs++;
    } else if (length) {
        keep(fd, &st, WRITTEN, (uint64_t)offset, length);
    }
    return 1;
}

static size_t total(const struct iovec *parts, int count) {
    size_t length = 0;
    for (int part = 0; part < count; part++) length += parts[part].iov_len;
    return length;
}

#define WRITE(offset, length, call)                                    \
    int ours = before_write(fd, offset, length);                       \
    ssize_t result = (ssize_t)(call);                                  \
    if (ours) give();                                                  \
    return result

ssize_t write(int fd, const void *from, size_t length) {
    WRITE(-1, length, syscall(SYS_write, fd, from, length));
}
ssize_t pwrite(int fd, const void *from, size_t length, off_t offset) {
    WRITE(offset, length, syscall(SYS_pwrite64, fd, from, length, offset));
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    WRITE(-1, total(parts, count), syscall(SYS_writev, fd, parts, count));
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    WRITE(offset, total(parts, count), syscall(SYS_pwritev, fd, parts, count, offset, 0L));
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    WRITE(offset, total(parts, count),
          syscall(SYS_pwritev2, fd, parts, count, offset, 0L, flags));
}

int ftruncate(int fd, off_t size) {
    struct stat st;
    char path[PATH_LIMIT];
    int ours = belongs(fd, &st, path) == S_IFREG;
    if (ours) {
        take();
        if (fstat(fd, &st) != 0) trouble();
        if (st.st_size != size) keep(fd, &st, CUT, (uint64_t)size, 0);
    }
    int result = (int)syscall(SYS_ftruncate, fd, size);
    if (ours) give();
    return result;
}

int truncate(const char *path, off_t size) {
    int fd = open_raw(path, O_WRONLY);
    if (fd < 0) return -1;
    int result = ftruncate(fd, size), error = errno;
    close(fd);
    errno = error;
    return result;
}

/* Names */

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_LIMIT];
    struct stat before, after;
    if (control && boot_file && !strcmp(path, "/proc/sys/kernel/random/boot_id")) path = boot_file;
    if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE
        || !absolute(folder, path, full))
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    take();
    int error = errno, was = fstatat(AT_FDCWD, full, &before, AT_SYMLINK_NOFOLLOW) == 0;
    if (was && S_ISREG(before.st_mode) && (flags & O_TRUNC) && before.st_size) {
        int reading = open_raw(full, O_RDONLY);
        if (reading >= 0) keep(reading, &before, CUT, 0, 0), close(reading);
        else trouble();
    }
    errno = error;
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && !was && fstat(fd, &after) == 0 && S_ISREG(after.st_mode)) {
        forget(after.st_ino);  /* of a file that had this number before */
        note_name(MADE, after.st_ino, 0, full, full);
    }
    give();
    return fd;
}

#define MODE_OF(flags, mode)                                                   \
    mode_t mode = 0;                                                           \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {               \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode = va_arg(rest, mode_t);                                           \
        va_end(rest);                                                          \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return opened(folder, path, flags, mode);
}
int creat(const char *path, mode_t mode) {
    return opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

static int removed(int folder, const char *path, int flags) {
    char full[PATH_LIMIT];
    struct stat st;
    if ((flags & AT_REMOVEDIR) || !absolute(folder, path, full))
        return (int)syscall(SYS_unlinkat, folder, path, flags);
    take();
    int error = errno;
    uint64_t grave = 0;
    int kept = fstatat(AT_FDCWD, full, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    if (kept && drop_names(NULL, full, st.st_ino)) kept = 0;  /* no crash would bring it back */
    if (kept) grave = bury(full, &st);
    errno = error;
    int result = (int)syscall(SYS_unlinkat, folder, path, flags);
    if (grave && result == 0) note_name(REMOVED, st.st_ino, grave, full, full);
    else if (grave) close_grave(grave);
    give();
    return result;
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return removed(folder, path, flags); }
int remove(const char *path) {
    int result = removed(AT_FDCWD, path, 0);
    return result && errno == EISDIR ? removed(AT_FDCWD, path, AT_REMOVEDIR) : result;
}

int renameat2(int folder, const char *from, int target, const char *to, unsigned flags) {
    char full_from[PATH_LIMIT], full_to[PATH_LIMIT];
    struct stat moved, replaced;
    if (flags || !absolute(folder, from, full_from) || !absolute(target, to, full_to)
        || fstatat(AT_FDCWD, full_from, &moved, AT_SYMLINK_NOFOLLOW) != 0
        || !S_ISREG(moved.st_mode))
        return (int)syscall(SYS_renameat2, folder, from, target, to, flags);
    take();
    int error = errno;
    uint64_t grave = 0;
    int replaces = fstatat(AT_FDCWD, full_to, &replaced, AT_SYMLINK_NOFOLLOW) == 0;
    if (replaces) grave = bury(full_to, &replaced);
    errno = error;
    int result = (int)syscall(SYS_renameat2, folder, from, target, to, flags);
    if (result == 0 && (grave || !replaces))
        note_name(RENAMED, moved.st_ino, grave, full_from, full_to);
    else if (grave) close_grave(grave);
    give();
    return result;
}
int renameat(int folder, const char *from, int target, const char *to) {
    return renameat2(folder, from, target, to, 0);
}
int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Syncs */

static int synced(int fd, long number) {
    struct stat st;
    char path[PATH_LIMIT], undo[PATH_MAX];
    mode_t type = belongs(fd, &st, path);
    if (!type) return (int)syscall(number, fd);
    wait_for_disk();
    take();
    int result = 0;
    if (control->swallow) {
        struct undo mark = {.magic = MAGIC, .kind = SYNC_SWALLOWED, .size_before = st.st_size};
        struct iovec part = {&mark, sizeof mark};
        undo_path(undo, st.st_ino);
        if (type == S_IFREG) append(undo, &part, 1);
        control->swallowed++;
    } else if ((result = (int)syscall(number, fd)) == 0) {
        if (type == S_IFREG) forget(st.st_ino);
        else drop_names(path, NULL, 0);
        control->syncs++;
    }
    give();
    return result;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* The names that programs with large offsets use; the same on 64-bit machines. */
ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec *, int, off_t) __attribute__((alias("pwritev")));
ssize_t pwritev64v2(int, const struct iovec *, int, off_t, int) __attribute__((alias("pwritev2")));
int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
int truncate64(const char *, off_t) __attribute__((alias("truncate")));
int open64(const char *, int, ...) __attribute__((alias("open")));
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));
int creat64(const char *, mode_t) __attribute__((alias("creat")));

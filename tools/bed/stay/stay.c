/*
 * Keeps whatever a program on a bed starts on the same bed. Preloaded by tools/bed/bed, never by libzeroute.
 *
 * Two jobs, both at the hook of exec:
 *  - a child gets the bed's preloads back when its parent set LD_PRELOAD anew (`env LD_PRELOAD=...`);
 *  - where tools/bed/bed could not put the bed's C library in the place of the system's (no mount namespace),
 *    a child that is a dynamic x86-64 program is started through the bed's ld-linux.
 * What to do stands in the environment, so `env -i` is the way out of the bed. Nothing here allocates:
 * exec may be called after vfork, or in a signal handler.
 *
 *   ZEROUTE_BED_PRELOAD  libraries every program of the bed preloads
 *   ZEROUTE_BED_LD       the bed's ld-linux; unset where the system's own will do
 *   ZEROUTE_BED_LIBC     the folder of its C library
 *   ZEROUTE_BED_EXE      the program that runs through ZEROUTE_BED_LD: what /proc/self/exe should say
 */
#include <alloca.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXTRA_ENV 4
#define EXTRA_ARGV 12
#define SELF_EXE "/proc/self/exe"

extern char **environ;
ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t bufsize);

static const char *look_up(char *const *env, const char *name) {
    size_t n = strlen(name);

    for (; env && *env; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    }
    return NULL;
}

static bool listed(const char *list, const char *item, size_t n) {
    while (list && *list) {
        size_t m = strcspn(list, ": ");

        if (m == n && memcmp(list, item, n) == 0)
            return true;
        list += m + (list[m] != '\0');
    }
    return false;
}

static size_t count(char *const *list) {
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* Room for one start: the caller provides it on its stack. */
struct start {
    const char *path;
    char **argv;
    char **env;
    char preload[2 * PATH_MAX];
    char exe[PATH_MAX + 32];
    char library_path[4 * PATH_MAX];
    char shebang[256];
    char real[PATH_MAX];
};

static void set_env(char **env, char *entry) {
    size_t n = strcspn(entry, "=") + 1, i = 0;

    for (; env[i]; i++) {
        if (strncmp(env[i], entry, n) == 0) {
            env[i] = entry;
            return;
        }
    }
    env[i] = entry;
    env[i + 1] = NULL;
}

static void keep_preloads(struct start *s) {
    const char *ours = look_up(s->env, "ZEROUTE_BED_PRELOAD");
    const char *theirs = look_up(s->env, "LD_PRELOAD");
    size_t used;

    if (!ours || strlen(ours) + (theirs ? strlen(theirs) : 0) + 16 > sizeof(s->preload))
        return;
    strcpy(s->preload, "LD_PRELOAD=");
    if (theirs)
        strcat(s->preload, theirs);
    used = strlen(s->preload);
    while (*ours) {
        size_t n = strcspn(ours, ":");

        if (!listed(theirs, ours, n)) {
            if (s->preload[used - 1] != '=' && s->preload[used - 1] != ':')
                s->preload[used++] = ':';
            memcpy(s->preload + used, ours, n);
            used += n;
            s->preload[used] = '\0';
        }
        ours += n + (ours[n] != '\0');
    }
    set_env(s->env, s->preload);
}

static bool is_dynamic_elf(const unsigned char *head, ssize_t n) {
    Elf64_Ehdr h;

    if (n < (ssize_t)sizeof(h))
        return false;
    memcpy(&h, head, sizeof(h));
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_machine != EM_X86_64 ||
        h.e_phentsize != sizeof(Elf64_Phdr))
        return false;
    for (unsigned i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        size_t at = h.e_phoff + i * sizeof(p);

        if (at + sizeof(p) > (size_t)n)
            return false;
        memcpy(&p, head + at, sizeof(p));
        if (p.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static void push_front(char **argv, char *arg) {
    memmove(argv + 1, argv, (count(argv) + 1) * sizeof(*argv));
    argv[0] = arg;
}

/* A script: what the kernel would do with its first line, but through our eyes. */
static bool unfold_script(struct start *s, const unsigned char *head, ssize_t n) {
    char *line = s->shebang, *arg;
    size_t len = 0;

    if (n < 3 || head[0] != '#' || head[1] != '!')
        return false;
    for (ssize_t i = 2; i < n && head[i] != '\n' && len + 1 < sizeof(s->shebang); i++)
        line[len++] = (char)head[i];
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    line[len] = '\0';
    line += strspn(line, " \t");
    if (!*line)
        return false;
    arg = line + strcspn(line, " \t");
    if (*arg) {
        *arg++ = '\0';
        arg += strspn(arg, " \t");
    }
    if (s->argv[0])
        s->argv[0] = (char *)s->path;
    else
        push_front(s->argv, (char *)s->path);
    if (*arg)
        push_front(s->argv, arg);
    push_front(s->argv, line);
    s->path = line;
    return true;
}

static ssize_t read_head(const char *path, unsigned char *head, size_t size) {
    struct statx st;
    ssize_t n;
    int fd;

    if (statx(AT_FDCWD, path, 0, STATX_MODE, &st) != 0 || !S_ISREG(st.stx_mode) ||
        (st.stx_mode & (S_ISUID | S_ISGID)) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) != 0)
        return -1;
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    n = read(fd, head, size);
    syscall(SYS_close, fd);
    return n;
}

static void go_through_ld(struct start *s) {
    const char *ld = look_up(s->env, "ZEROUTE_BED_LD"), *libc = look_up(s->env, "ZEROUTE_BED_LIBC");
    const char *own = look_up(environ, "ZEROUTE_BED_EXE"), *libs = look_up(s->env, "LD_LIBRARY_PATH");
    unsigned char head[1024];
    ssize_t n;

    if (!ld || !libc)
        return;
    if (own && strcmp(s->path, SELF_EXE) == 0)
        s->path = own;
    n = read_head(s->path, head, sizeof(head));
    if (unfold_script(s, head, n))
        n = read_head(s->path, head, sizeof(head));
    if (!is_dynamic_elf(head, n) || strcmp(s->path, ld) == 0)
        return;
    if (strlen(libc) + (libs ? strlen(libs) : 0) + 2 > sizeof(s->library_path))
        return;
    strcpy(s->library_path, libc);
    if (libs && *libs) {
        strcat(s->library_path, ":");
        strcat(s->library_path, libs);
    }
    if (!realpath(s->path, s->real))
        return;
    strcpy(s->exe, "ZEROUTE_BED_EXE=");
    strcat(s->exe, s->real);
    set_env(s->env, s->exe);
    if (s->argv[0])
        push_front(s->argv + 1, (char *)s->path);
    else
        push_front(s->argv, (char *)s->path);
    if (s->argv[1]) {
        push_front(s->argv, (char *)"--argv0");
    }
    push_front(s->argv, s->library_path);
    push_front(s->argv, (char *)"--library-path");
    push_front(s->argv, (char *)ld);
    s->path = ld;
}

/* The start that is really made; a macro, since the copies live on the caller's stack. */
#define PREPARE(s, path_, argv_, env_)                                                                                 \
    do {                                                                                                               \
        size_t argc_ = count(argv_), envc_ = count(env_);                                                              \
        (s)->path = (path_);                                                                                           \
        (s)->argv = alloca((argc_ + EXTRA_ARGV) * sizeof(char *));                                                     \
        (s)->env = alloca((envc_ + EXTRA_ENV) * sizeof(char *));                                                       \
        memcpy((s)->argv, (argv_), argc_ * sizeof(char *));                                                            \
        (s)->argv[argc_] = NULL;                                                                                       \
        if (envc_)                                                                                                     \
            memcpy((s)->env, (env_), envc_ * sizeof(char *));                                                          \
        (s)->env[envc_] = NULL;                                                                                        \
        keep_preloads(s);                                                                                              \
        go_through_ld(s);                                                                                              \
    } while (0)

int execve(const char *path, char *const argv[], char *const envp[]) {
    struct start s;

    PREPARE(&s, path, argv, envp);
    return (int)syscall(SYS_execve, s.path, s.argv, s.env);
}

int execv(const char *path, char *const argv[]) {
    return execve(path, argv, environ);
}

/* The next place where PATH would look for file; NULL at the end. */
static const char *next_place(const char *list, const char *file, char *buf) {
    size_t n = strcspn(list, ":"), m = strlen(file);

    if (n + m + 2 > PATH_MAX)
        buf[0] = '\0';
    else if (n == 0)
        memcpy(buf, file, m + 1);
    else {
        memcpy(buf, list, n);
        buf[n] = '/';
        memcpy(buf + n + 1, file, m + 1);
    }
    return list[n] ? list + n + 1 : NULL;
}

static int exec_or_shell(const char *path, char *const argv[], char *const envp[]) {
    char **shell;
    size_t n = count(argv);

    execve(path, argv, envp);
    if (errno != ENOEXEC)
        return -1;
    shell = alloca((n + 3) * sizeof(*shell));
    shell[0] = (char *)"/bin/sh";
    shell[1] = (char *)path;
    for (size_t i = 1; i <= n; i++)
        shell[i + 1] = argv[i];
    shell[n < 1 ? 2 : n + 1] = NULL;
    return execve(shell[0], shell, envp);
}

int execvpe(const char *file, char *const argv[], char *const envp[]) {
    const char *list = getenv("PATH");
    char buf[PATH_MAX];
    bool denied = false;

    if (!*file) {
        errno = ENOENT;
        return -1;
    }
    if (strchr(file, '/'))
        return exec_or_shell(file, argv, envp);
    for (list = list ? list : "/bin:/usr/bin"; list;) {
        list = next_place(list, file, buf);
        exec_or_shell(buf, argv, envp);
        if (errno == EACCES)
            denied = true;
        else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV)
            return -1;
    }
    errno = denied ? EACCES : ENOENT;
    return -1;
}

int execvp(const char *file, char *const argv[]) {
    return execvpe(file, argv, environ);
}

#define GATHER(argv, first, ap)                                                                                        \
    do {                                                                                                               \
        size_t n_ = 1;                                                                                                 \
        va_start(ap, first);                                                                                           \
        while (va_arg(ap, char *))                                                                                     \
            n_++;                                                                                                      \
        va_end(ap);                                                                                                    \
        (argv) = alloca((n_ + 1) * sizeof(char *));                                                                    \
        va_start(ap, first);                                                                                           \
        (argv)[0] = (char *)(first);                                                                                   \
        for (size_t i_ = 1; i_ <= n_; i_++)                                                                            \
            (argv)[i_] = va_arg(ap, char *);                                                                           \
    } while (0)

int execl(const char *path, const char *arg, ...) {
    char **argv;
    va_list ap;

    GATHER(argv, arg, ap);
    va_end(ap);
    return execve(path, argv, environ);
}

int execlp(const char *file, const char *arg, ...) {
    char **argv;
    va_list ap;

    GATHER(argv, arg, ap);
    va_end(ap);
    return execvpe(file, argv, environ);
}

int execle(const char *path, const char *arg, ...) {
    char **argv, **envp;
    va_list ap;

    GATHER(argv, arg, ap);
    envp = va_arg(ap, char **);
    va_end(ap);
    return execve(path, argv, envp);
}

int fexecve(int fd, char *const argv[], char *const envp[]) {
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return execve(path, argv, envp);
}

typedef int spawn_fn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                     char *const[], char *const[]);

static spawn_fn *real_spawn;

__attribute__((constructor)) static void find_spawn(void) {
    *(void **)&real_spawn = dlvsym(RTLD_NEXT, "posix_spawn", "GLIBC_2.15");
}

int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const envp[restrict]) {
    struct start s;

    if (!real_spawn)
        return ENOSYS;
    PREPARE(&s, path, argv, envp);
    return real_spawn(pid, s.path, actions, attr, s.argv, s.env);
}

int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const envp[restrict]) {
    const char *list = getenv("PATH");
    char buf[PATH_MAX];

    if (strchr(file, '/'))
        return posix_spawn(pid, file, actions, attr, argv, envp);
    for (list = list ? list : "/bin:/usr/bin"; list;) {
        list = next_place(list, file, buf);
        if (faccessat(AT_FDCWD, buf, X_OK, AT_EACCESS) == 0)
            return posix_spawn(pid, buf, actions, attr, argv, envp);
    }
    return ENOENT;
}

ssize_t readlink(const char *restrict path, char *restrict buf, size_t size) {
    const char *exe = look_up(environ, "ZEROUTE_BED_EXE");

    if (exe && look_up(environ, "ZEROUTE_BED_LD") && strcmp(path, SELF_EXE) == 0) {
        size_t n = strlen(exe);

        memcpy(buf, exe, n < size ? n : size);
        return (ssize_t)(n < size ? n : size);
    }
    return syscall(SYS_readlink, path, buf, size);
}

ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t bufsize) {
    return readlink(path, buf, size < bufsize ? size : bufsize);
}

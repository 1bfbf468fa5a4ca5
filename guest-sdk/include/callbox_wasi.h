/* Versions of WASI's functions for kernels that use wasi-libc and need no grant.
 *
 * Code that asserts, prints or reads the environment imports functions of WASI, and a module that
 * imports them loads only with a grant. One source file of such a kernel has
 *
 *     #include "callbox_wasi.h"
 *     CALLBOX_DEFINE_INERT_WASI
 *
 * Then the linker takes these functions in place of the imports, and the module needs no grant:
 *
 * - A failed `assert`, and `exit`, fail the call with ABORTED and say why. `abort` traps.
 * - Lines that are written to `stdout` and `stderr` go to the call's log.
 * - There are no arguments and no environment. Files, clocks and random bytes fail with ENOSYS.
 *
 * Code that needs files, a clock or random bytes does without this header: its module gets the
 * grants of docs/policy.md.
 */
#ifndef CALLBOX_WASI_H
#define CALLBOX_WASI_H

#include <stddef.h>
#include <stdint.h>

#include "callbox.h"

/* WASI's error numbers. */
enum { CALLBOX_WASI_SUCCESS = 0, CALLBOX_WASI_EBADF = 8, CALLBOX_WASI_ENOSYS = 52 };

/* Text that is cut to its capacity. */
typedef struct callbox_wasi_text {
  char bytes[256];
  size_t size;
} callbox_wasi_text;

static inline void callbox_wasi_append(callbox_wasi_text *text, const char *more) {
  while (*more != '\0' && text->size < sizeof text->bytes) text->bytes[text->size++] = *more++;
}

static inline void callbox_wasi_append_number(callbox_wasi_text *text, uint32_t number) {
  char digits[11];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do digits[--at] = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  callbox_wasi_append(text, digits + at);
}

/* Fails the call with ABORTED and this message, and ends it. */
__attribute__((noreturn)) static inline void callbox_wasi_abort(const callbox_wasi_text *text) {
  callbox_set_failure(CALLBOX_ABORTED, text->bytes, text->size, 0);
  __builtin_trap();
}

/* Adds bytes to a line of output, and logs it at its end. */
static inline void callbox_wasi_print(callbox_wasi_text *line, uint32_t level, const char *bytes,
                                      size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != '\n' && line->size < sizeof line->bytes) line->bytes[line->size++] = bytes[i];
    if (bytes[i] == '\n' || line->size == sizeof line->bytes) {
      callbox_log(level, line->bytes, line->size);
      line->size = 0;
    }
  }
}

#define CALLBOX_WASI_I32 __attribute__((unused)) int32_t
#define CALLBOX_WASI_I64 __attribute__((unused)) int64_t
#define CALLBOX_WASI_FUNCTION(name, ...) \
  CALLBOX_EXTERN_C int32_t __imported_wasi_snapshot_preview1_##name(__VA_ARGS__)
/* A function that only fails. */
#define CALLBOX_WASI_FAILS(error, name, ...) \
  CALLBOX_WASI_FUNCTION(name, __VA_ARGS__);                                                      \
  CALLBOX_WASI_FUNCTION(name, __VA_ARGS__) { return error; }

#define CALLBOX_DEFINE_INERT_WASI                                                                \
  /* Before the trap of `abort`, a failed assertion says what failed. */                         \
  CALLBOX_EXTERN_C void __assert_fail(const char *condition, const char *file, int line,         \
                                      const char *function) {                                    \
    callbox_wasi_text text = {{0}, 0};                                                           \
    callbox_wasi_append(&text, "assertion failed: ");                                            \
    callbox_wasi_append(&text, condition);                                                       \
    callbox_wasi_append(&text, " (");                                                            \
    callbox_wasi_append(&text, file);                                                            \
    callbox_wasi_append(&text, ":");                                                             \
    callbox_wasi_append_number(&text, (uint32_t)line);                                           \
    callbox_wasi_append(&text, ", ");                                                            \
    callbox_wasi_append(&text, function);                                                        \
    callbox_wasi_append(&text, ")");                                                             \
    callbox_wasi_abort(&text);                                                                   \
  }                                                                                              \
  CALLBOX_EXTERN_C void __imported_wasi_snapshot_preview1_proc_exit(int32_t code);               \
  CALLBOX_EXTERN_C void __imported_wasi_snapshot_preview1_proc_exit(int32_t code) {              \
    callbox_wasi_text text = {{0}, 0};                                                           \
    callbox_wasi_append(&text, "the kernel called exit(");                                       \
    callbox_wasi_append_number(&text, (uint32_t)code);                                           \
    callbox_wasi_append(&text, ")");                                                             \
    callbox_wasi_abort(&text);                                                                   \
  }                                                                                              \
  CALLBOX_WASI_FUNCTION(fd_write, int32_t fd, int32_t lists, int32_t count, int32_t written);    \
  CALLBOX_WASI_FUNCTION(fd_write, int32_t fd, int32_t lists, int32_t count, int32_t written) {   \
    static callbox_wasi_text lines[2];                                                           \
    if (fd != 1 && fd != 2) return CALLBOX_WASI_EBADF;                                           \
    const uint32_t *list = (const uint32_t *)(uintptr_t)(uint32_t)lists;                         \
    uint32_t total = 0;                                                                          \
    for (int32_t i = 0; i < count; i++, list += 2) {                                             \
      callbox_wasi_print(&lines[fd - 1], fd == 1 ? CALLBOX_LOG_INFO : CALLBOX_LOG_WARN,          \
                         (const char *)(uintptr_t)list[0], list[1]);                             \
      total += list[1];                                                                          \
    }                                                                                            \
    *(uint32_t *)(uintptr_t)(uint32_t)written = total;                                           \
    return CALLBOX_WASI_SUCCESS;                                                                 \
  }                                                                                              \
  CALLBOX_WASI_EMPTY(args) CALLBOX_WASI_EMPTY(environ)                                           \
  /* No directories are open: wasi-libc expects EBADF at the end of its list. */                 \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, clock_res_get, CALLBOX_WASI_I32 a,                     \
                     CALLBOX_WASI_I32 b)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, clock_time_get, CALLBOX_WASI_I32 a,                    \
                     CALLBOX_WASI_I64 b, CALLBOX_WASI_I32 c)                                     \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, random_get, CALLBOX_WASI_I32 a, CALLBOX_WASI_I32 b)    \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_close, CALLBOX_WASI_I32 a)                          \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_fdstat_get, CALLBOX_WASI_I32 a,                     \
                     CALLBOX_WASI_I32 b)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_fdstat_set_flags, CALLBOX_WASI_I32 a,               \
                     CALLBOX_WASI_I32 b)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_filestat_get, CALLBOX_WASI_I32 a,                   \
                     CALLBOX_WASI_I32 b)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_EBADF, fd_prestat_get, CALLBOX_WASI_I32 a,                     \
                     CALLBOX_WASI_I32 b)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_prestat_dir_name, CALLBOX_WASI_I32 a,               \
                     CALLBOX_WASI_I32 b, CALLBOX_WASI_I32 c)                                     \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_read, CALLBOX_WASI_I32 a, CALLBOX_WASI_I32 b,       \
                     CALLBOX_WASI_I32 c, CALLBOX_WASI_I32 d)                                     \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, fd_seek, CALLBOX_WASI_I32 a, CALLBOX_WASI_I64 b,       \
                     CALLBOX_WASI_I32 c, CALLBOX_WASI_I32 d)                                     \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, path_filestat_get, CALLBOX_WASI_I32 a,                 \
                     CALLBOX_WASI_I32 b, CALLBOX_WASI_I32 c, CALLBOX_WASI_I32 d,                 \
                     CALLBOX_WASI_I32 e)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, path_open, CALLBOX_WASI_I32 a, CALLBOX_WASI_I32 b,     \
                     CALLBOX_WASI_I32 c, CALLBOX_WASI_I32 d, CALLBOX_WASI_I32 e,                 \
                     CALLBOX_WASI_I64 f, CALLBOX_WASI_I64 g, CALLBOX_WASI_I32 h,                 \
                     CALLBOX_WASI_I32 i)                                                         \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, path_unlink_file, CALLBOX_WASI_I32 a,                  \
                     CALLBOX_WASI_I32 b, CALLBOX_WASI_I32 c)                                     \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, path_remove_directory, CALLBOX_WASI_I32 a,             \
                     CALLBOX_WASI_I32 b, CALLBOX_WASI_I32 c)                                     \
  CALLBOX_WASI_FAILS(CALLBOX_WASI_ENOSYS, path_rename, CALLBOX_WASI_I32 a,                       \
                     CALLBOX_WASI_I32 b, CALLBOX_WASI_I32 c, CALLBOX_WASI_I32 d,                 \
                     CALLBOX_WASI_I32 e, CALLBOX_WASI_I32 f)

#define CALLBOX_WASI_EMPTY(of)                                                                   \
  CALLBOX_WASI_FUNCTION(of##_get, int32_t list, int32_t bytes);                                  \
  CALLBOX_WASI_FUNCTION(of##_get, int32_t list, int32_t bytes) {                                 \
    (void)list, (void)bytes;                                                                     \
    return CALLBOX_WASI_SUCCESS;                                                                 \
  }                                                                                              \
  CALLBOX_WASI_FUNCTION(of##_sizes_get, int32_t count, int32_t size);                            \
  CALLBOX_WASI_FUNCTION(of##_sizes_get, int32_t count, int32_t size) {                           \
    *(uint32_t *)(uintptr_t)(uint32_t)count = *(uint32_t *)(uintptr_t)(uint32_t)size = 0;        \
    return CALLBOX_WASI_SUCCESS;                                                                 \
  }

#endif

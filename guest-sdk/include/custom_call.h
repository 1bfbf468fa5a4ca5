/* Registers custom calls from before typed FFI: what XLA has in xla/service/custom_call_target_registry.h.
 *
 *     void do_custom_call(void* out, const void** in) { ... }
 *     XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "Host");
 *
 * The function is exported under its name, with the type that it has. It must not be static.
 */
#ifndef CALLBOX_CUSTOM_CALL_H
#define CALLBOX_CUSTOM_CALL_H

#include "callbox.h"
#include "xla_custom_call_status.h"

#define XLA_REGISTER_CUSTOM_CALL_TARGET(function, platform) XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(#function, function, platform)

/* Registers a function under another name. A guest runs on the host's processor, so that a target of another platform in its source is a
 * mistake: it is compiled and registered for its own platform. */
#define XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(symbol, function, platform)                                              \
  CALLBOX_STATIC_ASSERT_(__builtin_strcmp(platform, "Host") == 0,                                                         \
                         "a WebAssembly guest has targets of the platform \"Host\" only: compile those of others apart"); \
  CALLBOX_EXPORT(function, symbol)

#ifdef __cplusplus
#define CALLBOX_STATIC_ASSERT_ static_assert
#else
#define CALLBOX_STATIC_ASSERT_ _Static_assert
#endif

#endif

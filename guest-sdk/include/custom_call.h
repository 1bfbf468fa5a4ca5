/* Registration of custom calls from before typed FFI, as in XLA's
 * xla/service/custom_call_target_registry.h.
 *
 *     void do_custom_call(void* out, const void** in) { ... }
 *     XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "Host");
 *
 * The function is exported under its name, with its own type. It must not be static.
 */
#ifndef CALLBOX_CUSTOM_CALL_H
#define CALLBOX_CUSTOM_CALL_H

#include "callbox.h"
#include "xla_custom_call_status.h"

#define XLA_REGISTER_CUSTOM_CALL_TARGET(function, platform) \
  XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(#function, function, platform)

/* Registers a function under another name. A guest runs on the host's processor, so that a target
 * for another platform is a mistake: such targets are compiled and registered for their own
 * platform. */
#define XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(symbol, function, platform)                  \
  CALLBOX_STATIC_ASSERT(                                                                      \
      __builtin_strcmp(platform, "Host") == 0,                                                \
      "a WebAssembly guest has targets of the platform \"Host\" only: compile others apart"); \
  CALLBOX_EXPORT(function, symbol)

#endif

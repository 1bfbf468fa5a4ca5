/* The status of custom calls before typed FFI: what XLA has in xla/service/custom_call_status.h. */
#ifndef CALLBOX_XLA_CUSTOM_CALL_STATUS_H
#define CALLBOX_XLA_CUSTOM_CALL_STATUS_H

#include "callbox.h"

/* Opaque: there is one status for each call, and the host has it. */
typedef struct XlaCustomCallStatus_ XlaCustomCallStatus;

/* Fails the call with the message's first `message_len` bytes, or those before its first NUL. Nothing behind either is read. */
static inline void XlaCustomCallStatusSetFailure(XlaCustomCallStatus *status, const char *message, size_t message_len) {
  size_t size = 0;
  (void)status;
  while (size < message_len && message[size] != 0) size++;
  callbox_set_failure(CALLBOX_INTERNAL, message, size, false);
}

/* A call succeeds if it says nothing. */
static inline void XlaCustomCallStatusSetSuccess(XlaCustomCallStatus *status) {
  (void)status;
  callbox_set_success();
}

#endif

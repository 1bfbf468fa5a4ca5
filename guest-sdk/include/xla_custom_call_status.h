/* The status of custom calls before typed FFI, as in XLA's xla/service/custom_call_status.h. */
#ifndef CALLBOX_XLA_CUSTOM_CALL_STATUS_H
#define CALLBOX_XLA_CUSTOM_CALL_STATUS_H

#include "callbox.h"

/* The status of the call. It is opaque: the host keeps it. */
typedef struct XlaCustomCallStatus_ XlaCustomCallStatus;

/* Fails the call with the first `message_len` bytes of the message, up to its first NUL. Nothing
 * after that is read. */
static inline void XlaCustomCallStatusSetFailure(XlaCustomCallStatus *status, const char *message,
                                                 size_t message_len) {
  size_t size = 0;
  (void)status;
  while (size < message_len && message[size] != 0) size++;
  callbox_set_failure(CALLBOX_INTERNAL, message, size, false);
}

/* Sets the status to success, which is the initial status. */
static inline void XlaCustomCallStatusSetSuccess(XlaCustomCallStatus *status) {
  (void)status;
  callbox_set_success();
}

#endif

// The documents' example "Signalling an error". The includes differ, and code takes the place of
// some comments. It is C: in C++ a `char*` cannot point to a literal.
#include "custom_call.h"
#include "strlen.h"
#include "xla_custom_call_status.h"

#define bad_condition (*(const float*)in[0] < 0)

void do_custom_call(void* out, const void** in, XlaCustomCallStatus* status) {
  // ... do some work.
  *(float*)out = *(const float*)in[0];

  if (bad_condition) {
    char* error_message = "An error occurred";
    XlaCustomCallStatusSetFailure(status, error_message, strlen(error_message));
    return;
  }

  // ... continue.
  *(float*)out += 1;
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "Host");

// "For custom calls that cannot fail, simply add the new XlaCustomCallStatus* parameter and ignore
// it."
void ignores_status(void* out, const void** in, XlaCustomCallStatus* status) {
  (void)status;
  *(float*)out = *(const float*)in[0];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(ignores_status, "Host");

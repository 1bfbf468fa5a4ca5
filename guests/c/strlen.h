/* The function of <string.h> that the examples use, for guests without a C library. */
#ifndef GUESTS_C_STRLEN_H
#define GUESTS_C_STRLEN_H

#if __has_include(<string.h>)
#include <string.h>
#else
#include "callbox.h"
#define strlen callbox_size
#endif

#endif

// Third-party code that allocates, unchanged: the JPEG decoder of stb_image.h, which Debian's
// package libstb-dev installs. Its licence is MIT or public domain, as the end of the file says.
#include <string.h>

#include "callbox.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STBI_NO_THREAD_LOCALS
#define STBI_ASSERT(condition) ((void)0)
#include "stb_image.h"

CALLBOX_DEFINE_REALLOC

CALLBOX_METADATA({
  "name": "stb_decode_jpeg",
  "ffi_version": "1.0",
  "api_versions": ["API_VERSION_TYPED_FFI"],
  "doc": "Decodes a JPEG file to pixels of 8 bits, row by row. size is [height, width, channels]. Pixels behind the image are 0.",
  "operands": [{"name": "file", "element_types": ["U8"], "dimensions": ["n"]}],
  "results": [
    {"name": "pixels", "element_types": ["U8"], "dimensions": ["k"]},
    {"name": "size", "element_types": ["S32"], "dimensions": [3]}
  ],
  "traits": ["pure"]
})

// The result is as large as the caller allows, and `size` says how much of it the image has.
CALLBOX_TARGET(stb_decode_jpeg) {
  if (!callbox_check_counts(frame, 1, 2)) return CALLBOX_INVALID_ARGUMENT;
  const callbox_buffer *file = &frame->operands.data[0];
  const callbox_buffer *pixels = &frame->results.data[0], *size = &frame->results.data[1];
  if (!callbox_check_buffer(file, CALLBOX_U8, 1) || !callbox_check_buffer(pixels, CALLBOX_U8, 1) ||
      !callbox_check_buffer(size, CALLBOX_S32, 1) || size->size != 3 * sizeof(int32_t))
    return CALLBOX_INVALID_ARGUMENT;
  int width, height, channels;
  const stbi_uc *bytes = (const stbi_uc *)file->data;
  if (!stbi_info_from_memory(bytes, (int)file->size, &width, &height, &channels))
    return callbox_fail(CALLBOX_INVALID_ARGUMENT, stbi_failure_reason());
  // Before anything is allocated for it. stb_image takes 2^24 pixels in a row or a column at most.
  uint64_t length = (uint64_t)width * (uint64_t)height * (uint64_t)channels;
  if (length > pixels->size)
    return callbox_fail(CALLBOX_OUT_OF_RANGE, "the image is larger than the result");
  stbi_uc *image = stbi_load_from_memory(bytes, (int)file->size, &width, &height, &channels, 0);
  if (image == NULL) return callbox_fail(CALLBOX_INVALID_ARGUMENT, stbi_failure_reason());
  memcpy(pixels->data, image, (size_t)length);
  memset((stbi_uc *)pixels->data + length, 0, pixels->size - (size_t)length);
  stbi_image_free(image);
  int32_t *sizes = (int32_t *)size->data;
  sizes[0] = height, sizes[1] = width, sizes[2] = channels;
  return CALLBOX_OK;
}

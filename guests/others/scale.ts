// `y = n * x` in AssemblyScript, from wit/callbox-ffi.wit alone. README.md has the commands.

const INVALID_ARGUMENT: u32 = 3;

// @ts-ignore: decorator
@external("callbox:ffi/api@1.0.0", "set-failure")
declare function setFailure(code: u32, message: usize, size: u32, recoverable: u32): void;

function fail(code: u32, message: string): u32 {
  const bytes = String.UTF8.encode(message);
  setFailure(code, changetype<usize>(bytes), bytes.byteLength, 0);
  return code;
}

// The fields of the call frame and of its records, by the offsets of the contract.
const OPERANDS: usize = 8;
const RESULTS: usize = 16;
const ATTRIBUTES: usize = 24;
/// After a list's offset, the number of its elements.
const COUNT: usize = 4;
/// The bytes of an attribute's value.
const VALUE: usize = 8;

/// The host checks types and dimensions by the declaration in targets.json. A module cannot rely on
/// it: another host may not.
export function scale(frame: usize): u32 {
  const counts = load<u32>(frame, OPERANDS + COUNT) | load<u32>(frame, RESULTS + COUNT) | load<u32>(frame, ATTRIBUTES + COUNT);
  if (counts != 1) return fail(INVALID_ARGUMENT, "expected an operand, a result and an attribute");
  const operand = load<usize>(frame, OPERANDS);
  const result = load<usize>(frame, RESULTS);
  const attribute = load<usize>(frame, ATTRIBUTES);
  const size = load<u32>(operand, COUNT);
  if (load<u32>(result, COUNT) != size || load<u32>(attribute, VALUE + COUNT) != 4) {
    return fail(INVALID_ARGUMENT, "expected a result like the operand, and n of f32");
  }
  const n = load<f32>(load<usize>(attribute, VALUE));
  if (n < 0) return fail(INVALID_ARGUMENT, "expected n of at least 0");
  let x = load<usize>(operand);
  let y = load<usize>(result);
  const end = x + size;
  // The compiler makes no vectors of its own.
  const factor = f32x4.splat(n);
  for (; x + 16 <= end; x += 16, y += 16) v128.store(y, f32x4.mul(factor, v128.load(x)));
  for (; x < end; x += 4, y += 4) store<f32>(y, n * load<f32>(x));
  return 0;
}

/// The canonical ABI's allocator, through which the host allocates the call's memory: the module's
/// own allocator takes all memory for its own.
export function cabi_realloc(old: usize, oldSize: u32, align: u32, size: u32): usize {
  const block = heap.alloc(size + align);
  const aligned = (block + align) & ~(<usize>align - 1);
  if (old) memory.copy(aligned, old, min(oldSize, size));
  return aligned;
}

//! The guest's memory and the host's functions inside a WebAssembly module.

use alloc::alloc::{Layout, alloc, realloc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Buffer, List, State};
use crate::{AnyOperand, AnyResult, ElementType, LogLevel, Shape, StatusCode};

/// The functions of version 1.0. Every guest imports some of them.
mod api {
    #[link(wasm_import_module = "callbox:ffi/api@1.0.0")]
    unsafe extern "C" {
        pub(crate) safe fn version() -> u32;
        #[link_name = "set-failure"]
        pub(crate) fn set_failure(code: u32, message: *const u8, len: usize, recoverable: u32);
        #[link_name = "set-success"]
        pub(crate) safe fn set_success();
        pub(crate) fn log(level: u32, message: *const u8, len: usize);
    }
}

/// The functions of version 1.1. A guest that uses none of them runs on a host of version 1.0.
mod api_1_1 {
    use super::Buffer;

    #[link(wasm_import_module = "callbox:ffi/api@1.1.0")]
    unsafe extern "C" {
        #[link_name = "call-function"]
        pub(crate) fn call_function(
            function: u32,
            operands: *const Buffer,
            operand_count: usize,
            results: *const Buffer,
            result_count: usize,
        ) -> u32;
        #[link_name = "function-message"]
        pub(crate) fn function_message(into: *mut u8, len: usize) -> u32;
        #[link_name = "user-data"]
        pub(crate) fn user_data(name: *const u8, name_len: usize, into: *mut u8, len: usize)
        -> i64;
    }
}

pub(crate) use api::{set_success, version};

/// The import `set-failure`.
pub(crate) fn set_failure(code: StatusCode, message: &str, recoverable: bool) {
    // SAFETY: the message is a slice of this memory, which the host only reads.
    unsafe {
        api::set_failure(
            code as u32,
            message.as_ptr(),
            message.len(),
            u32::from(recoverable),
        );
    }
}

/// The import `log`.
pub(crate) fn log(level: LogLevel, message: &str) {
    // SAFETY: the message is a slice of this memory, which the host only reads.
    unsafe { api::log(level as u32, message.as_ptr(), message.len()) }
}

/// The import `call-function`.
pub(crate) fn call_function(
    function: u32,
    operands: &[AnyOperand<'_>],
    results: &mut [AnyResult<'_>],
) -> u32 {
    let operands: Vec<Buffer> = operands
        .iter()
        .map(|operand| {
            let bytes = operand.bytes();
            let data = list(bytes.as_ptr().expose_provenance(), bytes.len());
            buffer(operand.element_type(), operand.shape(), data, true)
        })
        .collect();
    let results: Vec<Buffer> = results
        .iter_mut()
        .map(|result| {
            let (element_type, shape) = (result.element_type(), result.shape());
            let bytes = result.bytes_mut();
            let data = list(bytes.as_mut_ptr().expose_provenance(), bytes.len());
            buffer(element_type, shape, data, false)
        })
        .collect();
    // SAFETY: the host reads the records and their lists, all of them slices of this memory. It
    // writes to the results' data only, which are borrowed exclusively, and at most the size in
    // their records.
    unsafe {
        api_1_1::call_function(
            function,
            operands.as_ptr(),
            operands.len(),
            results.as_ptr(),
            results.len(),
        )
    }
}

fn buffer(element_type: ElementType, shape: Shape<'_>, data: List, read_only: bool) -> Buffer {
    let numbers = |numbers: &[i64]| list(numbers.as_ptr().expose_provenance(), numbers.len());
    Buffer {
        data,
        dimensions: numbers(shape.dimensions()),
        minor_to_major: numbers(shape.minor_to_major()),
        element_type: element_type as u8,
        read_only: u8::from(read_only),
        padding: [0; 2],
        aliased_operand: None.into(),
    }
}

fn list(address: usize, count: usize) -> List {
    List {
        offset: address as u32,
        count: count as u32,
    }
}

/// The import `function-message`.
pub(crate) fn function_message(into: &mut [u8]) -> usize {
    // SAFETY: the host writes to this slice only, which is borrowed exclusively.
    unsafe { api_1_1::function_message(into.as_mut_ptr(), into.len()) as usize }
}

/// The import `user-data`.
pub(crate) fn user_data(name: &str, into: &mut [u8]) -> Option<usize> {
    // SAFETY: the host reads the name, and writes to the slice only, which is borrowed exclusively.
    let len =
        unsafe { api_1_1::user_data(name.as_ptr(), name.len(), into.as_mut_ptr(), into.len()) };
    usize::try_from(len).ok()
}

static FUNCTION_CALLS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the last function call.
#[inline]
pub(crate) fn function_call_count() -> u32 {
    FUNCTION_CALLS.load(Ordering::Relaxed)
}

/// Counts a function call, and returns its number, which is never 0.
pub(crate) fn count_function_call() -> u32 {
    let number = function_call_count().wrapping_add(1).max(1);
    FUNCTION_CALLS.store(number, Ordering::Relaxed);
    number
}

/// The module's one memory, in which offsets are addresses.
#[derive(Clone, Copy)]
pub(crate) struct Memory;

impl Memory {
    /// Returns a pointer to this offset.
    #[inline]
    pub(super) fn at<T>(self, offset: u32) -> *mut T {
        core::ptr::with_exposed_provenance_mut(offset as usize)
    }
}

/// Stores a state, and returns its word, which is never zero.
pub(super) fn state_to_word(state: State) -> u32 {
    Box::into_raw(Box::new(state)).expose_provenance() as u32
}

/// Returns the state with this word.
///
/// # Safety
/// The word must be zero or from [`state_to_word`], and its state must outlive `'a`.
pub(super) unsafe fn state_from_word<'a>(word: u32) -> Option<&'a State> {
    let state = Memory.at::<State>(word);
    // SAFETY: the caller guarantees that the word is a pointer from `state_to_word` to a live
    // state.
    (word != 0).then(|| unsafe { &*state })
}

/// Drops the state with this word.
///
/// # Safety
/// The word must be zero or from [`state_to_word`], and must not be used again.
pub(super) unsafe fn drop_state(word: u32) {
    if word != 0 {
        // SAFETY: the caller guarantees that the word is a pointer from `Box::into_raw`, used for
        // the last time.
        drop(unsafe { Box::from_raw(Memory.at::<State>(word)) });
    }
}

/// A state word that the host hands back. Only the host creates one, and passes it as the export's
/// parameter.
#[derive(Debug)]
#[repr(transparent)]
pub struct StateWord(u32);

/// Drops the state of a stage: the body of the exports `NAME.instantiate.drop` and so on.
pub fn take_back_state(word: StateWord) {
    // SAFETY: the host hands each word back once, when no stage that could use the state runs any
    // more.
    unsafe { drop_state(word.0) };
}

/// Allocates or moves a block of this memory: the canonical ABI's `realloc`. The host allocates its
/// arena here, so that it and the guest's allocator do not overlap.
///
/// # Safety
/// `old` must be null, or a block from an earlier call with `old_size` and `align`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cabi_realloc(
    old: *mut u8,
    old_size: usize,
    align: usize,
    new_size: usize,
) -> *mut u8 {
    if new_size == 0 {
        return core::ptr::without_provenance_mut(align);
    }
    let Ok(layout) = Layout::from_size_align(new_size, align) else {
        refuse(new_size);
    };
    let block = if old.is_null() || old_size == 0 {
        allocate(layout)
    } else if old == FIRST_BLOCK.start() {
        let block = allocate(layout);
        if !block.is_null() {
            // SAFETY: both blocks have at least that many bytes. The new one is not the first
            // block, because that one is taken.
            unsafe { core::ptr::copy_nonoverlapping(old, block, old_size.min(new_size)) };
        }
        block
    } else {
        // SAFETY: the caller guarantees that `old` has this layout. `align` was checked together
        // with the new size, and an earlier call checked it together with the old size.
        unsafe {
            realloc(
                old,
                Layout::from_size_align_unchecked(old_size, align),
                new_size,
            )
        }
    };
    if block.is_null() {
        refuse(new_size);
    }
    block
}

/// A block in the module's own data. It holds the arena of a small call site, so that the instance
/// need not grow its memory, the slowest step of setting up a fresh instance.
#[repr(align(64))]
struct FirstBlock(UnsafeCell<[MaybeUninit<u8>; Self::SIZE]>);

// SAFETY: nothing accesses the bytes through this type, and `TAKEN` allows one caller to get their
// address.
unsafe impl Sync for FirstBlock {}

impl FirstBlock {
    const SIZE: usize = 8 << 10;

    fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }
}

static FIRST_BLOCK: FirstBlock =
    FirstBlock(UnsafeCell::new([MaybeUninit::uninit(); FirstBlock::SIZE]));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Allocates a block of this layout, whose size must not be zero. Returns null if memory is
/// exhausted.
fn allocate(layout: Layout) -> *mut u8 {
    let fits = layout.size() <= FirstBlock::SIZE && layout.align() <= align_of::<FirstBlock>();
    if fits && !TAKEN.swap(true, Ordering::Relaxed) {
        return FIRST_BLOCK.start();
    }
    // SAFETY: every caller passes a size other than zero.
    unsafe { alloc(layout) }
}

/// Aborts the call. `cabi_realloc` has no result that means failure.
#[cold]
fn refuse(size: usize) -> ! {
    let mut message = crate::panics::Message::new();
    message.push("cannot allocate ");
    message.push_number(size as u32);
    message.push(" bytes of the guest's memory");
    set_failure(StatusCode::ResourceExhausted, message.as_str(), false);
    core::arch::wasm32::unreachable()
}

//! The guest's own memory and the host's functions, inside a WebAssembly module.

use alloc::alloc::{Layout, alloc, realloc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::record::{List, OptionU32};
use super::{Buffer, State};
use crate::{AnyOperand, AnyResult, ElementType, LogLevel, Shape, StatusCode};

/// What version 1.0 of the contract has. Every guest imports some of it.
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

/// What version 1.1 added. A guest that uses none of it imports none, and runs on a host of version 1.0.
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
    // SAFETY: the host reads the records and what they lead to, all of it slices of this memory. It writes to nothing but the
    // results' data, which are borrowed alone, and no more than the records say.
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
        aliased_operand: OptionU32 {
            is_some: 0,
            padding: [0; 3],
            value: 0,
        },
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
    // SAFETY: the host writes to this slice only, which is borrowed alone.
    unsafe { api_1_1::function_message(into.as_mut_ptr(), into.len()) as usize }
}

/// The import `user-data`.
pub(crate) fn user_data(name: &str, into: &mut [u8]) -> Option<usize> {
    // SAFETY: the host reads the name, and writes to the slice only, which is borrowed alone.
    let len =
        unsafe { api_1_1::user_data(name.as_ptr(), name.len(), into.as_mut_ptr(), into.len()) };
    usize::try_from(len).ok()
}

static FUNCTION_CALLS: AtomicU32 = AtomicU32::new(0);

/// The number of the last call of a function.
#[inline]
pub(crate) fn function_call_count() -> u32 {
    FUNCTION_CALLS.load(Ordering::Relaxed)
}

/// Counts a call of a function, and returns its number, which is not 0.
pub(crate) fn count_function_call() -> u32 {
    let number = function_call_count().wrapping_add(1).max(1);
    FUNCTION_CALLS.store(number, Ordering::Relaxed);
    number
}

/// The module's one memory: offsets count from its beginning.
#[derive(Clone, Copy)]
pub(crate) struct Memory;

impl Memory {
    /// What lies at this offset.
    #[inline]
    pub(super) fn at<T>(self, offset: u32) -> *mut T {
        core::ptr::with_exposed_provenance_mut(offset as usize)
    }
}

/// Makes a state into a word that is not zero.
pub(super) fn state_to_word(state: State) -> u32 {
    Box::into_raw(Box::new(state)).expose_provenance() as u32
}

/// The state that a word stands for.
///
/// # Safety
/// The word is zero or from [`state_to_word`], and its state outlives `'a`.
pub(super) unsafe fn state_from_word<'a>(word: u32) -> Option<&'a State> {
    let state = Memory.at::<State>(word);
    // SAFETY: the caller's promise.
    (word != 0).then(|| unsafe { &*state })
}

/// Drops the state that a word stands for.
///
/// # Safety
/// The word is zero or from [`state_to_word`], and nothing uses its state any more.
pub(super) unsafe fn drop_state(word: u32) {
    if word != 0 {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(Memory.at::<State>(word)) });
    }
}

/// The state word that a host hands back. The one in a call's parameter is the only one: nothing but a host makes it.
#[derive(Debug)]
#[repr(transparent)]
pub struct StateWord(u32);

/// Drops the state that a stage left: what the exports `NAME.instantiate.drop` and so on do.
pub fn take_back_state(word: StateWord) {
    // SAFETY: the host hands each word back once, when no stage that could use the state runs any more.
    unsafe { drop_state(word.0) };
}

/// Gives the host a block of this memory, or moves one: what the canonical ABI calls `realloc`. The host asks for its
/// arena here, so that the guest's own allocator keeps clear of it.
///
/// # Safety
/// `old` is null, or a block from an earlier call with `old_size` and `align`.
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
            // SAFETY: both blocks have that many bytes, and the new one is not the first block, which is taken.
            unsafe { core::ptr::copy_nonoverlapping(old, block, old_size.min(new_size)) };
        }
        block
    } else {
        // SAFETY: the caller's promise; `align` was checked with the new size, and the old size was smaller or checked then.
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

/// A block that lies in the module's own data. The arena of a small call site fits, and then an instance need not let its memory
/// grow, which takes longer than all else that a fresh instance does.
#[repr(align(64))]
struct FirstBlock(UnsafeCell<[MaybeUninit<u8>; Self::SIZE]>);

// SAFETY: nothing reads or writes the bytes through this type, and their address is given out once, as `TAKEN` says.
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

/// A block of this layout, whose size is not zero: null if there is none.
fn allocate(layout: Layout) -> *mut u8 {
    let fits = layout.size() <= FirstBlock::SIZE && layout.align() <= align_of::<FirstBlock>();
    if fits && !TAKEN.swap(true, Ordering::Relaxed) {
        return FIRST_BLOCK.start();
    }
    // SAFETY: the size is not zero.
    unsafe { alloc(layout) }
}

/// Ends the call, because there is no answer that a host could tell from a block.
#[cold]
fn refuse(size: usize) -> ! {
    let mut message = crate::panics::Message::new();
    // It writes as much as fits, and has no other error.
    let _ = core::fmt::write(
        &mut message,
        format_args!("cannot allocate {size} bytes of the guest's memory"),
    );
    set_failure(StatusCode::ResourceExhausted, message.as_str(), false);
    core::arch::wasm32::unreachable()
}

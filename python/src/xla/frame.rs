//! Reads XLA's call frames, whose pointers XLA keeps valid during the call.
#![allow(unsafe_code, reason = "follows the pointers of XLA's C structs")]

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use callbox::{ArrayShape, ElementType, Status};

use super::abi::{
    ATTRIBUTE_STRING, Api, ApiWithRuns, Attributes, Buffer, Buffers, ByteSpan, CallFrame,
    ERROR_CREATE_ARGS_SIZE, EXTENSION_METADATA, Error, ErrorCreateArgs, ErrorDestroyArgs,
    KIND_BUFFER, MetadataExtension, RunIdGetArgs, STAGE_EXECUTE, StreamGetArgs,
};
use crate::buffers::RawArray;

/// A call frame, borrowed for one call.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a>(&'a CallFrame);

/// The operands or the results of a frame.
#[derive(Clone, Copy)]
pub(super) struct Arrays<'a>(&'a [*const Buffer]);

impl<'a> Frame<'a> {
    /// # Safety
    /// `frame` must be null or a call frame of XLA's C API, unchanged during `'a`.
    pub(super) unsafe fn new(frame: *const CallFrame) -> Option<Self> {
        // SAFETY: the caller guarantees that it is null or a call frame.
        unsafe { frame.as_ref() }.map(Self)
    }

    /// Answers XLA's request for the handler's metadata, and returns whether it was one.
    ///
    /// The answer is the lowest API version with all that the handler uses, because a framework
    /// refuses versions newer than its own, and the traits.
    pub(super) fn answer_metadata(self, traits: u32) -> bool {
        let mut extension = self.0.extension;
        // SAFETY: extensions are a linked list that ends with null and is alive during the call.
        while let Some(found) = unsafe { extension.as_ref() } {
            if found.kind == EXTENSION_METADATA {
                // SAFETY: the kind determines the type of the extension, and XLA reads the answer
                // after the call.
                let metadata = unsafe { (*extension.cast::<MetadataExtension>()).metadata };
                // SAFETY: as above; every version of XLA has all members of `Metadata`.
                if let Some(metadata) = unsafe { metadata.as_mut() } {
                    metadata.api_version.major = 0;
                    metadata.api_version.minor = 1;
                    metadata.traits = traits;
                }
                return true;
            }
            extension = found.next;
        }
        false
    }

    /// Whether the stage is the execution of the call.
    pub(super) fn is_execute(self) -> bool {
        self.0.stage == STAGE_EXECUTE
    }

    pub(super) fn operands(self) -> callbox::Result<Arrays<'a>> {
        Arrays::new(&self.0.operands, "operand")
    }

    pub(super) fn results(self) -> callbox::Result<Arrays<'a>> {
        Arrays::new(&self.0.results, "result")
    }

    /// The names and values of the attributes, in the order of names. All must be strings.
    #[inline]
    pub(super) fn attributes(
        self,
    ) -> impl ExactSizeIterator<Item = callbox::Result<(&'a [u8], &'a [u8])>> {
        let attributes: &'a Attributes = &self.0.attributes;
        // SAFETY: each list has `count` elements, which XLA guarantees.
        let (kinds, names, values) = unsafe {
            (
                list(attributes.kinds, attributes.count),
                list(attributes.names, attributes.count),
                list(attributes.values, attributes.count),
            )
        };
        kinds
            .iter()
            .zip(names)
            .zip(values)
            .map(|((kind, name), value)| {
                // SAFETY: a name points to a span of bytes.
                let name = unsafe { span(*name) };
                match *kind {
                    // SAFETY: the value of a string points to a span of bytes.
                    ATTRIBUTE_STRING => Ok((name, unsafe { span(value.cast()) })),
                    kind => Err(Status::invalid_argument(format!(
                        "attribute {:?}: expected a string, found an attribute of kind {kind}",
                        String::from_utf8_lossy(name)
                    ))),
                }
            })
    }

    /// A hint that is usually the same for all calls of one instruction.
    #[inline]
    pub(super) fn hint(self) -> usize {
        self.0.attributes.values.addr()
    }

    /// Makes an error of XLA, by the functions of this frame or of an earlier one.
    pub(super) fn error(self, status: &Status) -> *mut Error {
        // SAFETY: XLA's functions are valid until the process ends.
        match unsafe { self.api().as_ref() } {
            Some(api) => create_error(api, status),
            // No framework of XLA came without its functions, not even with the request for
            // metadata. Null would mean success: the error is memory that is never freed.
            None => Box::into_raw(Box::new([0_usize; 8])).cast(),
        }
    }

    /// XLA's functions, which are the same in all frames. Null if no frame had them yet.
    fn api(self) -> *const Api {
        static KNOWN: AtomicPtr<Api> = AtomicPtr::new(ptr::null_mut());
        let own = self.0.api.cast_mut();
        let known = KNOWN.load(Ordering::Relaxed);
        if own.is_null() {
            return known;
        }
        if own != known {
            KNOWN.store(own, Ordering::Relaxed);
        }
        own
    }

    /// Notes XLA's functions for frames without them.
    ///
    /// # Errors
    /// INTERNAL if this frame has none.
    pub(super) fn check_api(self) -> callbox::Result<()> {
        self.api();
        if self.0.api.is_null() {
            return Err(Status::internal("the call frame has no functions of XLA"));
        }
        Ok(())
    }

    /// The stream for the call's work.
    pub(super) fn stream(self) -> callbox::Result<*mut c_void> {
        // SAFETY: every frame points to XLA's functions.
        let Some(api) = (unsafe { self.0.api.as_ref() }) else {
            return Err(Status::internal("the call frame has no functions of XLA"));
        };
        let mut arguments = StreamGetArgs {
            struct_size: size_of::<StreamGetArgs>(),
            extension: ptr::null_mut(),
            context: self.0.context,
            stream: ptr::null_mut(),
        };
        // SAFETY: the arguments have the function's type, with the frame's own context.
        let error = unsafe { (api.stream_get)(&raw mut arguments) };
        if error.is_null() {
            return Ok(arguments.stream);
        }
        // SAFETY: the caller of XLA's function owns the error, and destroys it once.
        unsafe { destroy_error(api, error) };
        Err(Status::internal("XLA gave no stream for the call"))
    }

    /// The number of the program's run, if XLA's version tells it. No two runs have the same.
    #[inline]
    pub(super) fn run(self) -> Option<i64> {
        // SAFETY: every frame points to XLA's functions.
        let api = unsafe { self.0.api.as_ref() }?;
        if api.struct_size < size_of::<ApiWithRuns>() {
            return None;
        }
        let mut arguments = RunIdGetArgs {
            struct_size: size_of::<RunIdGetArgs>(),
            extension: ptr::null_mut(),
            context: self.0.context,
            run_id: 0,
        };
        let with_runs = self.0.api.cast::<ApiWithRuns>();
        // SAFETY: the struct's size shows that it has this function. The arguments have the
        // function's type, with the frame's own context.
        let error = unsafe { ((*with_runs).run_id_get)(&raw mut arguments) };
        if error.is_null() {
            return Some(arguments.run_id);
        }
        // SAFETY: the caller of XLA's function owns the error, and destroys it once.
        unsafe { destroy_error(api, error) };
        None
    }
}

/// Destroys an error of XLA's.
///
/// # Safety
/// The caller must own the error.
unsafe fn destroy_error(api: &Api, error: *mut Error) {
    let mut arguments = ErrorDestroyArgs {
        struct_size: size_of::<ErrorDestroyArgs>(),
        extension: ptr::null_mut(),
        error,
    };
    // SAFETY: the caller guarantees it.
    unsafe { (api.error_destroy)(&raw mut arguments) };
}

fn create_error(api: &Api, status: &Status) -> *mut Error {
    let text: Vec<u8> = status.message().bytes().filter(|byte| *byte != 0).collect();
    // The text has no NUL any more.
    let message = CString::new(text).unwrap_or_default();
    let mut arguments = ErrorCreateArgs {
        struct_size: ERROR_CREATE_ARGS_SIZE,
        extension: ptr::null_mut(),
        message: message.as_ptr(),
        code: i32::from(status.code().number()),
    };
    // SAFETY: the arguments have the function's type; the function copies the message.
    unsafe { (api.error_create)(&raw mut arguments) }
}

impl<'a> Arrays<'a> {
    #[inline]
    fn new(buffers: &'a Buffers, what: &str) -> callbox::Result<Self> {
        // SAFETY: each list has `count` elements, which XLA guarantees.
        let (kinds, values) = unsafe {
            (
                list(buffers.kinds, buffers.count),
                list(buffers.values, buffers.count),
            )
        };
        let is_whole = usize::try_from(buffers.count) == Ok(values.len());
        let mut pairs = std::iter::zip(kinds, values);
        let is_array =
            |(kind, buffer): (&i32, &*const Buffer)| *kind == KIND_BUFFER && !buffer.is_null();
        if is_whole && kinds.len() == values.len() && pairs.all(is_array) {
            return Ok(Self(values));
        }
        Err(not_arrays(buffers.count, kinds, values, what))
    }

    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn buffers(self) -> impl Iterator<Item = &'a Buffer> {
        // SAFETY: each element points to a buffer: `new` checked that none is null.
        self.0.iter().map(|buffer| unsafe { &**buffer })
    }

    /// Whether the arrays have these element types and dimensions.
    #[inline]
    pub(super) fn are(self, shapes: &[ArrayShape]) -> bool {
        let is = |(buffer, shape): (&Buffer, &ArrayShape)| {
            let (found, known) = (dimensions(buffer), shape.dimensions());
            // No array has a size past the maximum of `i64`.
            let mut sizes = std::iter::zip(found, known);
            buffer.element_type == i32::from(shape.element_type().number())
                && found.len() == known.len()
                && sizes.all(|(found, known)| *found as u64 == *known as u64)
        };
        self.0.len() == shapes.len() && self.buffers().zip(shapes).all(is)
    }

    /// The shapes of the arrays.
    pub(super) fn shapes(self) -> callbox::Result<Vec<ArrayShape>> {
        let shape = |buffer: &Buffer| {
            let number = u8::try_from(buffer.element_type).ok();
            let element_type = number.and_then(ElementType::from_number).ok_or_else(|| {
                Status::unimplemented(format!(
                    "{} is not the number of an element type",
                    buffer.element_type
                ))
            })?;
            let sizes = dimensions(buffer).iter().map(|size| {
                usize::try_from(*size).map_err(|_| {
                    Status::invalid_argument(format!("expected a dimension's size, found {size}"))
                })
            });
            ArrayShape::new(element_type, &sizes.collect::<callbox::Result<Vec<_>>>()?)
        };
        self.buffers().map(shape).collect()
    }

    /// Writes the memory of the arrays, whose sizes in bytes are `sizes`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if an array that is not empty has no memory.
    #[inline]
    pub(super) fn write_raw(self, sizes: &[usize], into: &mut [RawArray]) -> callbox::Result<()> {
        for ((buffer, &size), array) in self.buffers().zip(sizes).zip(into) {
            *array = RawArray::new(data(buffer, size)?.cast(), size);
        }
        Ok(())
    }

    /// The addresses of the arrays, whose sizes in bytes are `sizes`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if an array that is not empty has no memory.
    pub(super) fn addresses(self, sizes: &[usize]) -> callbox::Result<Vec<u64>> {
        let addresses = self.buffers().zip(sizes);
        addresses
            .map(|(buffer, &size)| Ok(data(buffer, size)?.addr() as u64))
            .collect()
    }
}

/// The error for lists of operands or results that are not lists of arrays.
#[cold]
fn not_arrays(count: i64, kinds: &[i32], values: &[*const Buffer], what: &str) -> Status {
    let other = kinds.iter().find(|kind| **kind != KIND_BUFFER);
    let null = values.iter().position(|buffer| buffer.is_null());
    let lengths = [kinds.len(), values.len()].map(i64::try_from);
    Status::invalid_argument(match (other, null) {
        _ if lengths != [Ok(count); 2] => format!("the call frame has no lists of {count} {what}s"),
        (Some(kind), _) => format!("expected each {what} to be an array, found one of kind {kind}"),
        (None, null) => {
            let number = null.unwrap_or_default();
            format!("{what} {number}: the array is a null pointer")
        }
    })
}

#[inline]
fn data(buffer: &Buffer, size: usize) -> callbox::Result<*mut c_void> {
    if buffer.data.is_null() && size > 0 {
        return Err(no_memory(size));
    }
    Ok(buffer.data)
}

#[cold]
fn no_memory(size: usize) -> Status {
    Status::invalid_argument(format!(
        "the data of an array of {size} bytes is a null pointer"
    ))
}

#[inline]
fn dimensions(buffer: &Buffer) -> &[i64] {
    // SAFETY: XLA guarantees `rank` dimensions; the pointer may be null if there are none.
    unsafe { list(buffer.dimensions, buffer.rank) }
}

/// # Safety
/// If `count` is positive and `first` is not null, there must be `count` elements during `'a`.
#[inline]
unsafe fn list<'a, T>(first: *const T, count: i64) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: the caller guarantees it.
        Ok(count) if count > 0 && !first.is_null() => unsafe {
            std::slice::from_raw_parts(first, count)
        },
        _ => &[],
    }
}

/// # Safety
/// `span` must be null or point to a span whose bytes are valid during `'a`.
#[inline]
unsafe fn span<'a>(span: *const ByteSpan) -> &'a [u8] {
    // SAFETY: the caller guarantees it.
    match unsafe { span.as_ref() } {
        // SAFETY: the caller guarantees it.
        Some(span) if span.length > 0 => unsafe {
            std::slice::from_raw_parts(span.data.cast(), span.length)
        },
        _ => &[],
    }
}

//! A call frame of XLA's, read: what it points to is there, in XLA's word, for as long as the call takes.
#![allow(unsafe_code, reason = "follows the pointers of XLA's C structs")]

use std::ffi::{CString, c_void};
use std::ptr;

use callbox::{ArrayShape, ElementType, Status};

use super::abi::{
    ATTRIBUTE_STRING, Api, Attributes, Buffer, Buffers, ByteSpan, CallFrame,
    ERROR_CREATE_ARGS_SIZE, EXTENSION_METADATA, Error, ErrorCreateArgs, ErrorDestroyArgs,
    KIND_BUFFER, MetadataExtension, STAGE_EXECUTE, StreamGetArgs,
};
use crate::buffers::Place;

/// A call frame, borrowed for one call.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a>(&'a CallFrame);

/// Operands or results.
#[derive(Clone, Copy)]
pub(super) struct Arrays<'a>(&'a [*const Buffer]);

impl<'a> Frame<'a> {
    /// # Safety
    /// It must be a call frame of XLA's C API, which stays as it is for `'a`.
    pub(super) unsafe fn new(frame: *const CallFrame) -> Option<Self> {
        // SAFETY: it is null or a call frame, as the caller promises.
        unsafe { frame.as_ref() }.map(Self)
    }

    /// Answers XLA's question for the handler's metadata, if that is what it asks: the lowest version of the API that has all that is used, for a framework
    /// refuses newer ones than its own; and traits.
    pub(super) fn answer_metadata(self, traits: u32) -> bool {
        let mut extension = self.0.extension;
        // SAFETY: extensions are a list that ends with null, and each stays for the call.
        while let Some(found) = unsafe { extension.as_ref() } {
            if found.kind == EXTENSION_METADATA {
                // SAFETY: this is what an extension of the kind is, and XLA reads the answer only after the call.
                let metadata = unsafe { (*extension.cast::<MetadataExtension>()).metadata };
                // SAFETY: as above; `Metadata` has no member that an older framework's lacks.
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

    /// Whether it is the stage in which work is done.
    pub(super) fn is_execute(self) -> bool {
        self.0.stage == STAGE_EXECUTE
    }

    pub(super) fn operands(self) -> callbox::Result<Arrays<'a>> {
        Arrays::new(&self.0.operands, "operand")
    }

    pub(super) fn results(self) -> callbox::Result<Arrays<'a>> {
        Arrays::new(&self.0.results, "result")
    }

    /// The attributes' names and values, in the order of their names. All are strings.
    #[inline]
    pub(super) fn attributes(
        self,
    ) -> impl ExactSizeIterator<Item = callbox::Result<(&'a [u8], &'a [u8])>> {
        let attributes: &'a Attributes = &self.0.attributes;
        // SAFETY: XLA says that these lists are so long.
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
                // SAFETY: a name is a span of bytes.
                let name = unsafe { span(*name) };
                match *kind {
                    // SAFETY: so is the value of a string.
                    ATTRIBUTE_STRING => Ok((name, unsafe { span(value.cast()) })),
                    kind => Err(Status::invalid_argument(format!(
                        "attribute {:?}: expected a string, found an attribute of kind {kind}",
                        String::from_utf8_lossy(name)
                    ))),
                }
            })
    }

    /// Something that is the same for calls of one instruction, most of the time. It is nothing but a hint.
    #[inline]
    pub(super) fn hint(self) -> usize {
        self.0.attributes.values.addr()
    }

    /// An error of XLA's.
    pub(super) fn error(self, status: &Status) -> *mut Error {
        // SAFETY: XLA gives its functions with each frame.
        match unsafe { self.0.api.as_ref() } {
            Some(api) => create_error(api, status),
            None => ptr::null_mut(),
        }
    }

    /// The stream that work is to be put into.
    pub(super) fn stream(self) -> callbox::Result<*mut c_void> {
        // SAFETY: XLA gives its functions with each frame.
        let Some(api) = (unsafe { self.0.api.as_ref() }) else {
            return Err(Status::internal(
                "expected XLA's functions with a call frame, found none",
            ));
        };
        let mut arguments = StreamGetArgs {
            struct_size: size_of::<StreamGetArgs>(),
            extension: ptr::null_mut(),
            context: self.0.context,
            stream: ptr::null_mut(),
        };
        // SAFETY: the arguments are what the function takes, with the frame's own context.
        let error = unsafe { (api.stream_get)(&raw mut arguments) };
        if error.is_null() {
            return Ok(arguments.stream);
        }
        let mut destroy = ErrorDestroyArgs {
            struct_size: size_of::<ErrorDestroyArgs>(),
            extension: ptr::null_mut(),
            error,
        };
        // SAFETY: an error that a function of XLA's gave is its caller's to destroy.
        unsafe { (api.error_destroy)(&raw mut destroy) };
        Err(Status::internal(
            "expected XLA to give the stream of the call, found an error",
        ))
    }
}

fn create_error(api: &Api, status: &Status) -> *mut Error {
    let text: Vec<u8> = status.message().bytes().filter(|byte| *byte != 0).collect();
    // It has no NUL any more.
    let message = CString::new(text).unwrap_or_default();
    let mut arguments = ErrorCreateArgs {
        struct_size: ERROR_CREATE_ARGS_SIZE,
        extension: ptr::null_mut(),
        message: message.as_ptr(),
        code: i32::from(status.code().number()),
    };
    // SAFETY: the arguments are what the function takes; it copies the message.
    unsafe { (api.error_create)(&raw mut arguments) }
}

impl<'a> Arrays<'a> {
    fn new(buffers: &'a Buffers, what: &str) -> callbox::Result<Self> {
        // SAFETY: XLA says that these lists are so long.
        let (kinds, values) = unsafe {
            (
                list(buffers.kinds, buffers.count),
                list(buffers.values, buffers.count),
            )
        };
        match kinds.iter().find(|kind| **kind != KIND_BUFFER) {
            None => Ok(Self(values)),
            Some(kind) => Err(Status::invalid_argument(format!(
                "expected each {what} to be an array, found one of kind {kind}"
            ))),
        }
    }

    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn buffers(self) -> impl Iterator<Item = &'a Buffer> {
        // SAFETY: what XLA calls a buffer is one.
        self.0
            .iter()
            .filter_map(|buffer| unsafe { buffer.as_ref() })
    }

    /// Whether these are arrays of such element types and dimensions.
    #[inline]
    pub(super) fn are(self, shapes: &[ArrayShape]) -> bool {
        let is = |(buffer, shape): (&Buffer, &ArrayShape)| {
            buffer.element_type == i32::from(shape.element_type().number())
                && dimensions(buffer)
                    .iter()
                    .map(|size| usize::try_from(*size).ok())
                    .eq(shape.dimensions().iter().map(|size| Some(*size)))
        };
        self.0.len() == shapes.len() && self.buffers().zip(shapes).all(is)
    }

    /// Their shapes.
    pub(super) fn shapes(self) -> callbox::Result<Vec<ArrayShape>> {
        let shape = |buffer: &Buffer| {
            let number = u8::try_from(buffer.element_type).ok();
            let element_type = number.and_then(ElementType::from_number).ok_or_else(|| {
                Status::unimplemented(format!(
                    "expected an element type of XLA's, found number {}",
                    buffer.element_type
                ))
            })?;
            if is_packed(element_type) {
                return Err(Status::unimplemented(format!(
                    "expected arrays of elements of whole bytes, found {}, which XLA packs",
                    element_type.lower_name()
                )));
            }
            let sizes = dimensions(buffer).iter().map(|size| {
                usize::try_from(*size).map_err(|_| {
                    Status::invalid_argument(format!("expected a dimension's size, found {size}"))
                })
            });
            ArrayShape::new(element_type, &sizes.collect::<callbox::Result<Vec<_>>>()?)
        };
        self.buffers().map(shape).collect()
    }

    /// Where they lie, if they are of these shapes.
    #[inline]
    pub(super) fn places(self, sizes: &[usize], into: &mut [Place]) {
        for ((buffer, size), place) in self.buffers().zip(sizes).zip(into) {
            *place = Place::new(buffer.data.cast(), *size);
        }
    }

    /// Their addresses.
    pub(super) fn addresses(self) -> Vec<u64> {
        self.buffers()
            .map(|buffer| buffer.data.addr() as u64)
            .collect()
    }
}

/// Whether XLA has several elements in a byte, where callbox and NumPy have one. Tokens have no elements.
pub(crate) fn is_packed(element_type: ElementType) -> bool {
    element_type.bit_width() < 8
}

#[inline]
fn dimensions(buffer: &Buffer) -> &[i64] {
    // SAFETY: XLA says that a buffer has so many; the pointer may be null where there is none.
    unsafe { list(buffer.dimensions, buffer.rank) }
}

/// # Safety
/// There must be so many of them for `'a`, if it is more than none.
#[inline]
unsafe fn list<'a, T>(first: *const T, count: i64) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: as the caller promises.
        Ok(count) if count > 0 && !first.is_null() => unsafe {
            std::slice::from_raw_parts(first, count)
        },
        _ => &[],
    }
}

/// # Safety
/// It must be null or a span whose bytes are there for `'a`.
#[inline]
unsafe fn span<'a>(span: *const ByteSpan) -> &'a [u8] {
    // SAFETY: as the caller promises.
    match unsafe { span.as_ref() } {
        // SAFETY: as the caller promises.
        Some(span) if span.length > 0 => unsafe {
            std::slice::from_raw_parts(span.data.cast(), span.length)
        },
        _ => &[],
    }
}

//! Claims: the only place where the host reads values of a guest.
//!
//! A guest returns numbers, passes numbers to imports, and has bytes in its memory. The host trusts
//! none of them: each leaves this module as a [`Claim`] or as [`Bytes`], which the host can only
//! check, compare or hand back. A test (`tests/tests/tree/tidy.rs`) keeps wasmtime's own accessors
//! of such values out of every other file.
//!
//! The feature `fault-injection` replaces claims by a schedule: see [`faults`]. Otherwise these
//! wrappers cost nothing.

#[cfg(feature = "fault-injection")]
pub mod faults;

use std::fmt;
use std::ops::Deref;

use wasmtime::{
    AsContextMut, Caller, Extern, Linker, Memory, Store, StoreContextMut, TypedFunc, WasmParams,
    WasmResults, WasmRet,
};

use crate::memory::GuestMemory;

/// A number from a guest. Every use checks it or treats it as opaque; the type enforces that.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Claim<T>(T);

/// Bytes from a guest. Their number is the one asked for, their contents are arbitrary.
pub(crate) struct Bytes<'a>(
    #[cfg(feature = "fault-injection")] std::borrow::Cow<'a, [u8]>,
    #[cfg(not(feature = "fault-injection"))] &'a [u8],
);

/// An offset or a length: the host's own, or a guest's claim.
pub(crate) trait Extent: Copy {
    /// The number, which the caller checks against the size of a memory.
    fn to_check(self) -> usize;
}

impl Extent for usize {
    #[inline]
    fn to_check(self) -> usize {
        self
    }
}

impl Extent for Claim<u32> {
    #[inline]
    fn to_check(self) -> usize {
        self.0 as usize
    }
}

impl Extent for Claim<usize> {
    #[inline]
    fn to_check(self) -> usize {
        self.0
    }
}

impl Claim<u32> {
    /// The status code of a function without results: success.
    pub(crate) const SUCCESS: Self = Self(0);
}

impl<T> Claim<T>
where
    Self: Extent,
{
    /// The offset plus `bytes`.
    #[inline]
    pub(crate) fn plus(self, bytes: usize) -> Claim<usize> {
        // A saturated offset is out of bounds of every memory.
        Claim(self.to_check().saturating_add(bytes))
    }
}

impl<T: Copy> Claim<T> {
    /// Converts the number by `check`.
    ///
    /// # Errors
    /// The number, for a message, if `check` returns `None`.
    #[inline]
    pub(crate) fn check<U>(self, check: impl FnOnce(T) -> Option<U>) -> Result<U, T> {
        check(self.0).ok_or(self.0)
    }

    /// The unchecked number, to be handed back to the guest, compared or shown.
    #[inline]
    pub(crate) fn opaque(self) -> T {
        self.0
    }
}

impl<T: fmt::Display> fmt::Display for Claim<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> Bytes<'a> {
    /// Wraps bytes of a guest's memory. `what` describes them to a fault schedule.
    #[inline]
    #[cfg(not(feature = "fault-injection"))]
    pub(crate) fn claimed(_what: &str, bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The same, altered by the fault schedule.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn claimed(what: &str, bytes: &'a [u8]) -> Self {
        Self(faults::bytes(what, bytes))
    }

    /// The first four bytes as a little-endian number. Missing bytes are zero.
    #[inline]
    pub(crate) fn word(&self) -> Claim<u32> {
        let mut word = [0; 4];
        for (to, from) in std::iter::zip(&mut word, self.iter()) {
            *to = *from;
        }
        Claim(u32::from_le_bytes(word))
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let Self(bytes) = self;
        bytes
    }
}

#[cfg(feature = "fault-injection")]
use faults::{Kind, Word};

/// How a number came from the guest.
#[cfg(not(feature = "fault-injection"))]
#[derive(Clone, Copy)]
enum Kind {
    Returned,
    Parameter,
}

#[inline]
#[cfg(not(feature = "fault-injection"))]
fn claim(_kind: Kind, _what: &str, value: u32) -> Claim<u32> {
    Claim(value)
}

#[cfg(feature = "fault-injection")]
fn claim(kind: Kind, what: &str, value: u32) -> Claim<u32> {
    Claim(value.altered(kind, what))
}

/// A parameter of the WASI function `name`. wasmtime-wasi checks it.
#[inline]
#[cfg(all(feature = "capabilities", not(feature = "fault-injection")))]
pub(crate) fn wasi_parameter<T>(_name: &str, value: T) -> T {
    value
}

/// A parameter of the WASI function `name`, altered by the fault schedule. wasmtime-wasi checks it.
#[cfg(all(feature = "capabilities", feature = "fault-injection"))]
pub(crate) fn wasi_parameter<T: Word>(name: &str, value: T) -> T {
    value.altered(Kind::Parameter, &format!("a function of WASI {name:?}"))
}

/// Alters the memory that the parameters of a WASI function point to, by the fault schedule.
///
/// wasmtime-wasi reads that memory itself, so the alteration happens in place, as the guest could
/// have done it.
#[cfg(all(feature = "capabilities", feature = "fault-injection"))]
pub(crate) fn alter_wasi_memory<T: 'static>(
    name: &str,
    caller: &mut Caller<'_, T>,
    parameters: &[i64],
) {
    /// The size of the longest record that wasmtime-wasi reads.
    const BYTES: usize = 16;
    let Some(LinearMemory(memory)) = LinearMemory::of_caller(caller) else {
        return;
    };
    let what = format!("memory for a function of WASI {name:?}");
    let bytes = memory.data_mut(caller);
    for parameter in parameters {
        // Smaller numbers are file descriptors, flags and counts.
        let offset = usize::try_from(*parameter).ok().filter(|at| *at >= 1024);
        let range = offset.and_then(|at| bytes.get_mut(at..at.checked_add(BYTES)?));
        if let Some(range) = range
            && let std::borrow::Cow::Owned(altered) = faults::bytes(&what, range)
        {
            range.copy_from_slice(&altered);
        }
    }
}

/// Alters the elements of an operand of mathematics by the fault schedule, in place, as the guest
/// could have done it.
#[cfg(all(feature = "maths", feature = "fault-injection"))]
pub(crate) fn alter_operand(what: &str, bytes: &mut [u8]) {
    if let std::borrow::Cow::Owned(altered) = faults::bytes(what, bytes) {
        bytes.copy_from_slice(&altered);
    }
}

/// A guest's linear memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearMemory(Memory);

impl LinearMemory {
    /// The memory that the calling guest exports.
    pub(crate) fn of_caller<T: 'static>(caller: &mut Caller<'_, T>) -> Option<Self> {
        match caller.get_export("memory") {
            Some(Extern::Memory(memory)) => Some(Self(memory)),
            _ => None,
        }
    }

    /// Borrows the bytes until the guest runs again.
    #[inline]
    pub(crate) fn borrow<'s, T: 'static>(
        self,
        store: impl Into<StoreContextMut<'s, T>>,
    ) -> GuestMemory<'s> {
        GuestMemory::new(self.0.data_mut(store))
    }

    /// The bytes and the store's data, for wasmtime-wasi, which checks for itself.
    #[cfg(feature = "capabilities")]
    pub(crate) fn with_state<'c, T: 'static>(
        self,
        caller: &'c mut Caller<'_, T>,
    ) -> (&'c mut [u8], &'c mut T) {
        self.0.data_and_store_mut(caller)
    }

    /// The bytes until the guest runs again, and the store's data.
    pub(crate) fn borrow_with_state<'c, T: 'static>(
        self,
        caller: &'c mut Caller<'_, T>,
    ) -> (GuestMemory<'c>, &'c mut T) {
        let (bytes, state) = self.0.data_and_store_mut(caller);
        (GuestMemory::new(bytes), state)
    }

    /// Grows the memory by `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// wasmtime's, if the limits or the module forbid it.
    pub(crate) fn grow(self, mut store: impl AsContextMut, bytes: u64) -> wasmtime::Result<()> {
        let page = self.0.page_size(&store);
        self.0.grow(&mut store, bytes.div_ceil(page)).map(drop)
    }

    /// The size in bytes, which the guest can change.
    pub(crate) fn size<T: 'static>(self, store: &Store<T>) -> Claim<usize> {
        let size = self.0.data_size(store);
        #[cfg(feature = "fault-injection")]
        let size = size.altered(Kind::Size, "the memory's size");
        Claim(size)
    }
}

/// A function that a guest exports.
#[derive(Clone)]
pub(crate) struct GuestFunction<P, R>(TypedFunc<P, R>);

/// The results of a guest's function.
pub(crate) trait Returned: WasmResults {
    /// The results as claims.
    type Claimed;

    /// Wraps the results. `what` describes them to a fault schedule.
    fn claimed(self, what: &str) -> Self::Claimed;
}

impl Returned for () {
    type Claimed = ();

    #[inline]
    fn claimed(self, _: &str) {}
}

impl Returned for u32 {
    type Claimed = Claim<u32>;

    #[inline]
    fn claimed(self, what: &str) -> Claim<u32> {
        claim(Kind::Returned, what, self)
    }
}

impl<P: WasmParams, R: Returned> GuestFunction<P, R> {
    /// Calls the function, which messages call `what`.
    ///
    /// # Errors
    /// wasmtime's, if the guest trapped or was interrupted.
    #[inline]
    pub(crate) fn call<T: 'static>(
        &self,
        store: &mut Store<T>,
        parameters: P,
        what: &str,
    ) -> wasmtime::Result<R::Claimed> {
        let returned = self.0.call(store, parameters)?;
        Ok(returned.claimed(what))
    }
}

/// The exports of a guest's instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exporter(pub(crate) wasmtime::Instance);

impl Exporter {
    /// The exported function of this name and type.
    ///
    /// # Errors
    /// wasmtime's, if there is none.
    pub(crate) fn function<P: WasmParams, R: Returned>(
        self,
        store: impl AsContextMut,
        name: &str,
    ) -> wasmtime::Result<GuestFunction<P, R>> {
        self.0.get_typed_func(store, name).map(GuestFunction)
    }

    /// The exported function at an index that was looked up before, if it has this type.
    pub(crate) fn function_at<P: WasmParams, R: Returned>(
        self,
        mut store: impl AsContextMut,
        export: &wasmtime::ModuleExport,
    ) -> Option<GuestFunction<P, R>> {
        let export = self.0.get_module_export(&mut store, export)?;
        export.into_func()?.typed(&store).ok().map(GuestFunction)
    }

    /// The exported memory at an index that was looked up before.
    pub(crate) fn memory_at(
        self,
        store: impl AsContextMut,
        export: &wasmtime::ModuleExport,
    ) -> Option<LinearMemory> {
        let export = self.0.get_module_export(store, export)?;
        export.into_memory().map(LinearMemory)
    }
}

/// Parameters of an import whose last one is an `f32`. The `f32` is not checked, because the host
/// only computes with it.
#[cfg(feature = "maths")]
pub(crate) struct WithFloat<const N: usize>(pub(crate) [Claim<u32>; N], pub(crate) f32);

/// The parameters of an import, each an `i32` to the guest if nothing else is said.
pub(crate) trait ImportParameters: Sized {
    /// Defines an import with these parameters.
    ///
    /// # Errors
    /// wasmtime's, if the linker has an import of this name.
    fn define<T: 'static, R: WasmRet + 'static>(
        linker: &mut Linker<T>,
        module: &str,
        name: &'static str,
        serve: impl Fn(Caller<'_, T>, Self) -> wasmtime::Result<R> + Send + Sync + 'static,
    ) -> wasmtime::Result<()>
    where
        wasmtime::Result<R>: WasmRet;
}

macro_rules! import_parameters {
    ($count:literal: $($parameter:ident)*) => {
        import_parameters!([Claim<u32>; $count], name, ($($parameter: u32),*), [
            $(claim(Kind::Parameter, name, $parameter)),*
        ]);
    };
    ($count:literal: $($parameter:ident)*, float) => {
        import_parameters!(WithFloat<$count>, name, ($($parameter: u32,)* float: f32), {
            let parameters = [$(claim(Kind::Parameter, name, $parameter)),*];
            let float = claim(Kind::Parameter, name, float.to_bits());
            WithFloat(parameters, f32::from_bits(float.opaque()))
        });
    };
    ($parameters:ty, $name:ident, ($($parameter:ident: $ty:ty),*), $claims:expr) => {
        impl ImportParameters for $parameters {
            fn define<T: 'static, R: WasmRet + 'static>(
                linker: &mut Linker<T>,
                module: &str,
                $name: &'static str,
                serve: impl Fn(Caller<'_, T>, Self) -> wasmtime::Result<R> + Send + Sync + 'static,
            ) -> wasmtime::Result<()>
            where
                wasmtime::Result<R>: WasmRet,
            {
                let serve = move |caller: Caller<'_, T>, $($parameter: $ty),*| {
                    serve(caller, $claims)
                };
                linker.func_wrap(module, $name, serve).map(drop)
            }
        }
    };
}

import_parameters!(0: );
#[cfg(feature = "maths")]
import_parameters!(1: a);
import_parameters!(2: a b);
import_parameters!(3: a b c);
import_parameters!(4: a b c d);
import_parameters!(5: a b c d e);
#[cfg(feature = "maths")]
import_parameters!(6: a b c d e f);

#[cfg(feature = "maths")]
import_parameters!(6: a b c d e f, float);
#[cfg(feature = "maths")]
import_parameters!(10: a b c d e f g h i j, float);

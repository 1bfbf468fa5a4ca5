//! What comes out of a guest, made into claims: the one place where wasmtime hands the host a guest's values.
//!
//! A function of the guest returns a number, hands numbers to an import, and has bytes in its memory. None of these is the host's
//! before it was looked at: each comes out of here as a [`Claim`] or as [`Bytes`], and says by what the host did with it what it was
//! good for. A test (`tests/tests/tidy.rs`) keeps wasmtime's own ways to such values out of every other file.
//!
//! With the feature `fault-injection` each of them can be another than the guest gave, by a schedule: see [`faults`].
//! Without it, all of this is what is below it.

#[cfg(feature = "fault-injection")]
pub mod faults;

use std::fmt;
use std::ops::Deref;

use wasmtime::{
    Caller, Extern, Linker, Memory, Store, StoreContextMut, TypedFunc, WasmParams, WasmResults,
    WasmRet,
};

use super::fuel;
use super::memory::GuestMemory;
use super::state::GuestState;

/// A number that a guest gave. It says something only to who checks it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Claim<T>(T);

/// Bytes that a guest gave: as many as were asked for, of what the guest likes.
pub(super) struct Bytes<'a>(
    #[cfg(feature = "fault-injection")] std::borrow::Cow<'a, [u8]>,
    #[cfg(not(feature = "fault-injection"))] &'a [u8],
);

/// An offset or a length: the host's own, or one that a guest claims. It is only ever used by being checked against a memory.
pub(super) trait Extent: Copy {
    /// As a number, for [`GuestMemory`] to check.
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
    /// What a function says that returns nothing: that it did not fail.
    pub(super) const NONE: Self = Self(0);
}

impl<T> Claim<T>
where
    Self: Extent,
{
    /// A place this much further on.
    #[inline]
    pub(super) fn plus(self, bytes: usize) -> Claim<usize> {
        // Past the end of all memories is as good as anywhere past the end of this one.
        Claim(self.to_check().saturating_add(bytes))
    }
}

impl<T: Copy> Claim<T> {
    /// What `check` makes of the number.
    ///
    /// # Errors
    /// The number, for a message, if `check` makes nothing of it.
    #[inline]
    pub(super) fn check<U>(self, check: impl FnOnce(T) -> Option<U>) -> Result<U, T> {
        check(self.0).ok_or(self.0)
    }

    /// The number as it is: to be handed back to the guest, or shown. It means nothing to the host.
    #[inline]
    pub(super) fn opaque(self) -> T {
        self.0
    }
}

impl<T: fmt::Display> fmt::Display for Claim<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> Bytes<'a> {
    /// Bytes of a guest's memory: `what` they are to the host.
    #[inline]
    #[cfg(not(feature = "fault-injection"))]
    pub(super) fn claimed(_what: &str, bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes of a guest's memory: `what` they are to the host.
    #[cfg(feature = "fault-injection")]
    pub(super) fn claimed(what: &str, bytes: &'a [u8]) -> Self {
        Self(faults::bytes(what, bytes))
    }

    /// A little-endian word of four bytes. What is missing of them is zero.
    #[inline]
    pub(super) fn word(&self) -> Claim<u32> {
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

/// A guest's number.
#[inline]
#[cfg(not(feature = "fault-injection"))]
fn claim(_kind: Kind, _what: &str, value: u32) -> Claim<u32> {
    Claim(value)
}

/// A guest's number, or another.
#[cfg(feature = "fault-injection")]
fn claim(kind: Kind, what: &str, value: u32) -> Claim<u32> {
    Claim(value.altered(kind, what))
}

/// Where a number comes from.
#[cfg(feature = "fault-injection")]
use faults::{Kind, Word};

/// Where a number comes from.
#[cfg(not(feature = "fault-injection"))]
#[derive(Clone, Copy)]
enum Kind {
    Returned,
    Parameter,
}

/// A number that a guest hands to a function of WASI of this name. wasmtime-wasi checks it.
#[inline]
#[cfg(all(feature = "capabilities", not(feature = "fault-injection")))]
pub(super) fn handed<T>(_name: &str, value: T) -> T {
    value
}

/// The same, or another number.
#[cfg(all(feature = "capabilities", feature = "fault-injection"))]
pub(super) fn handed<T: Word>(name: &str, value: T) -> T {
    value.altered(Kind::Parameter, &format!("a function of WASI {name:?}"))
}

/// What lies in memory where a function of WASI was handed a place. wasmtime-wasi reads that by itself, so what is altered is altered in the guest's
/// memory, as the guest could have done.
#[cfg(all(feature = "capabilities", feature = "fault-injection"))]
pub(super) fn handed_places(name: &str, caller: &mut Caller<'_, GuestState>, places: &[i64]) {
    /// More than any record of WASI's that is read has.
    const BYTES: usize = 16;
    let Some(LinearMemory(memory)) = LinearMemory::of_caller(caller) else {
        return;
    };
    let what = format!("memory for a function of WASI {name:?}");
    let bytes = memory.data_mut(caller);
    for place in places {
        // File descriptors, flags and counts are small.
        let place = usize::try_from(*place).ok().filter(|place| *place >= 1024);
        let range = place.and_then(|place| bytes.get_mut(place..place.checked_add(BYTES)?));
        if let Some(range) = range
            && let std::borrow::Cow::Owned(altered) = faults::bytes(&what, range)
        {
            range.copy_from_slice(&altered);
        }
    }
}

/// A guest's linear memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinearMemory(Memory);

impl LinearMemory {
    /// The memory that a guest which calls an import exports.
    pub(super) fn of_caller(caller: &mut Caller<'_, GuestState>) -> Option<Self> {
        match caller.get_export("memory") {
            Some(Extern::Memory(memory)) => Some(Self(memory)),
            _ => None,
        }
    }

    /// What is in it, until the guest runs again.
    #[inline]
    pub(super) fn borrow<'s>(
        self,
        store: impl Into<StoreContextMut<'s, GuestState>>,
    ) -> GuestMemory<'s> {
        GuestMemory::new(self.0.data_mut(store))
    }

    /// All of it, and what the host keeps for the instance: for wasmtime-wasi, which makes its own checks.
    #[cfg(feature = "capabilities")]
    pub(super) fn with_state<'c>(
        self,
        caller: &'c mut Caller<'_, GuestState>,
    ) -> (&'c mut [u8], &'c mut GuestState) {
        self.0.data_and_store_mut(caller)
    }

    /// Lets it grow by this many bytes, or some more.
    ///
    /// # Errors
    /// wasmtime's, if the limits or the module forbid it.
    pub(super) fn grow(self, store: &mut Store<GuestState>, bytes: u64) -> wasmtime::Result<()> {
        let page = self.0.page_size(&*store);
        self.0.grow(store, bytes.div_ceil(page)).map(drop)
    }

    /// How large it is: as large as the guest let it grow.
    pub(super) fn size(self, store: &Store<GuestState>) -> Claim<usize> {
        let size = self.0.data_size(store);
        #[cfg(feature = "fault-injection")]
        let size = size.altered(Kind::Size, "the memory's size");
        Claim(size)
    }
}

/// A function that a guest exports.
#[derive(Clone)]
pub(super) struct GuestFunction<P, R>(TypedFunc<P, R>);

/// What a guest's function returns.
pub(super) trait Returned: WasmResults {
    /// What that is to the host.
    type Claimed;

    /// Makes it so.
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
    /// Calls it. `what` names it.
    ///
    /// # Errors
    /// wasmtime's, if it trapped or was stopped.
    #[inline]
    pub(super) fn call(
        &self,
        store: &mut Store<GuestState>,
        parameters: P,
        what: &str,
    ) -> wasmtime::Result<R::Claimed> {
        let returned = self.0.call(store, parameters)?;
        Ok(returned.claimed(what))
    }
}

/// A guest's instance, and its exports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exporter(pub(super) wasmtime::Instance);

impl Exporter {
    /// The function of this name and type.
    ///
    /// # Errors
    /// wasmtime's, if there is none.
    pub(super) fn function<P: WasmParams, R: Returned>(
        self,
        store: &mut Store<GuestState>,
        name: &str,
    ) -> wasmtime::Result<GuestFunction<P, R>> {
        self.0.get_typed_func(store, name).map(GuestFunction)
    }

    /// The function that was found before, if it is one of this type.
    pub(super) fn function_at<P: WasmParams, R: Returned>(
        self,
        store: &mut Store<GuestState>,
        export: &wasmtime::ModuleExport,
    ) -> Option<GuestFunction<P, R>> {
        let export = self.0.get_module_export(&mut *store, export)?;
        export.into_func()?.typed(&*store).ok().map(GuestFunction)
    }

    /// The memory that was found before.
    pub(super) fn memory_at(
        self,
        store: &mut Store<GuestState>,
        export: &wasmtime::ModuleExport,
    ) -> Option<LinearMemory> {
        let export = self.0.get_module_export(store, export)?;
        export.into_memory().map(LinearMemory)
    }
}

/// What a guest hands to an import.
pub(super) trait Parameters: Sized {
    /// Defines an import that takes these parameters, each an `i32` to the guest.
    ///
    /// # Errors
    /// wasmtime's, if there is one of this name.
    fn define<R: WasmRet + 'static>(
        linker: &mut Linker<GuestState>,
        import: (&str, &'static str),
        serve: impl Fn(Caller<'_, GuestState>, Self) -> wasmtime::Result<R> + Send + Sync + 'static,
    ) -> wasmtime::Result<()>
    where
        wasmtime::Result<R>: WasmRet;
}

/// Defines the import of this module and name. `serve` says by its pattern how many parameters there are.
///
/// Each call looks first whether the guest is to be stopped: wasmtime does so where functions begin and loops turn round, and a
/// function can have calls of imports by the thousand in one line.
///
/// # Errors
/// As for [`Parameters::define`].
pub(super) fn import<const N: usize, R: WasmRet + 'static>(
    linker: &mut Linker<GuestState>,
    module: &str,
    name: &'static str,
    serve: impl Fn(Caller<'_, GuestState>, [Claim<u32>; N]) -> wasmtime::Result<R>
    + Send
    + Sync
    + 'static,
) -> wasmtime::Result<()>
where
    [Claim<u32>; N]: Parameters,
    wasmtime::Result<R>: WasmRet,
{
    Parameters::define(linker, (module, name), serve)
}

/// What each call of an import begins with.
///
/// # Errors
/// What stops the guest.
#[inline]
pub(super) fn enter_host(caller: &mut Caller<'_, GuestState>) -> wasmtime::Result<()> {
    caller
        .data_mut()
        .interrupt
        .tick()
        .map_err(wasmtime::Error::new)?;
    fuel::charge(caller, fuel::IMPORT)
}

macro_rules! parameters {
    ($count:literal: $($parameter:ident)*) => {
        impl Parameters for [Claim<u32>; $count] {
            fn define<R: WasmRet + 'static>(
                linker: &mut Linker<GuestState>,
                (module, name): (&str, &'static str),
                serve: impl Fn(Caller<'_, GuestState>, Self) -> wasmtime::Result<R> + Send + Sync + 'static,
            ) -> wasmtime::Result<()>
            where
                wasmtime::Result<R>: WasmRet,
            {
                let serve = move |mut caller: Caller<'_, GuestState>, $($parameter: u32),*| {
                    enter_host(&mut caller)?;
                    serve(caller, [$(claim(Kind::Parameter, name, $parameter)),*])
                };
                linker.func_wrap(module, name, serve).map(drop)
            }
        }
    };
}

parameters!(0: );
parameters!(2: a b);
parameters!(3: a b c);
parameters!(4: a b c d);
parameters!(5: a b c d e);

//! Modules and functions.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{CUfunction_attribute, CUjit_option, CUresult};

use super::device::{SHARED, SHARED_OPTIN, THREADS};
use super::foreign::{Array, Host, Out, Text};
use super::run::drain_context;
use super::{Guard, Needs, call};
use crate::ptx::{Entry, Global, Module};
use crate::state::memory::{Owner, Request};
use crate::state::module::{Function, ModuleBody};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: Out<usize>, image: Text) -> CUresult {
    call("cuModuleLoadData", Needs::Context, |mut guard| {
        let handle = load(&mut guard, &image, &module)?;
        module.put(handle)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: Out<usize>,
    image: Text,
    count: u32,
    options: Array<u32>,
    values: Array<*mut c_void>,
) -> CUresult {
    call("cuModuleLoadDataEx", Needs::Context, |mut guard| {
        let bad = CUresult::CUDA_ERROR_INVALID_VALUE;
        let options = options.read(count as usize).ok_or(bad)?;
        let values = values.read(count as usize).ok_or(bad)?;
        match load(&mut guard, &image, &module) {
            Ok(handle) => module.put(handle),
            Err(code) => {
                let value = |wanted: CUjit_option| {
                    let found = options
                        .iter()
                        .zip(&values)
                        .find(|(option, _)| **option == wanted as u32);
                    found.map(|(_, value)| value.expose_provenance())
                };
                let room = value(CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
                    .filter(|room| *room > 0);
                if let (Some(buffer), Some(room)) =
                    (value(CUjit_option::CU_JIT_ERROR_LOG_BUFFER), room)
                {
                    let mut log: Vec<u8> = guard.log.fault.bytes().take(room - 1).collect();
                    log.push(0);
                    // SAFETY: the call names this buffer and its size as the place for the log,
                    // which is cut to that size.
                    unsafe { Host::at(buffer as u64).write(&log) }?;
                }
                Err(code)
            }
        }
    })
}

/// Loads PTX after identifying the image's format. Errors are recorded as the last fault.
fn load(guard: &mut Guard, image: &Text, module: &Out<usize>) -> Result<usize, CUresult> {
    guard.check_unsafe_call()?;
    if module.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = image.bytes()?;
    let (code, why) = match read(&bytes, guard.settings.capability) {
        Ok(read) => return place(guard, read),
        Err(refused) => refused,
    };
    guard.log.fault = why;
    Err(code)
}

/// Parses PTX for a device.
fn read(bytes: &[u8], capability: (u32, u32)) -> Result<Module, (CUresult, String)> {
    // An ELF file, or an uncompressed fatbin, whose magic is 0xBA55ED50 in native byte order.
    if bytes.starts_with(b"\x7fELF") || bytes.starts_with(&[0x50, 0xED, 0x55, 0xBA]) {
        let why = "machine code, which the stand-in cannot run: it runs PTX";
        return Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, why.to_owned()));
    }
    let invalid = |why: String| (CUresult::CUDA_ERROR_INVALID_PTX, why);
    let text =
        std::str::from_utf8(bytes).map_err(|error| invalid(format!("PTX is text, but {error}")))?;
    if text.trim().is_empty() {
        return Err((
            CUresult::CUDA_ERROR_INVALID_IMAGE,
            "an empty module".to_owned(),
        ));
    }
    let module = Module::parse(text).map_err(|error| invalid(error.to_string()))?;
    let ((major, minor), (has_major, has_minor)) = (module.target(), capability);
    if module.target() > capability {
        return Err(invalid(format!(
            "PTX for sm_{major}{minor}, but the device is sm_{has_major}{has_minor}"
        )));
    }
    Ok(module)
}

/// Allocates a module's variables and returns its handle.
fn place(guard: &mut Guard, module: Module) -> Result<usize, CUresult> {
    let context = guard.current()?;
    let device = guard.contexts.get(context)?.device;
    let capacity = guard.settings.capacity(device);
    let mut globals = BTreeMap::new();
    for global in module.globals() {
        let request = Request {
            size: global.size.max(1),
            device,
            context,
            owner: Owner::Module,
            ready: true,
        };
        match guard.memory.allocate(request, capacity) {
            Ok(found) => globals.insert(global.name.clone(), (found.base, global.size)),
            Err(code) => {
                for (base, _) in globals.values() {
                    guard.memory.remove(*base);
                }
                return Err(code);
            }
        };
    }
    let view = guard.memory.view(Some(device));
    for global in module.globals() {
        if let Some((base, _)) = globals.get(&global.name) {
            // The variable was just allocated with this size.
            let _ = view.store(*base, &initial(global, &globals));
        }
    }
    let body = ModuleBody {
        module,
        context,
        globals,
        unloaded: AtomicBool::new(false),
    };
    Ok(guard.modules.insert(Arc::new(body)))
}

/// Returns a variable's initial contents, with the addresses of other variables filled in.
fn initial(global: &Global, globals: &BTreeMap<String, (u64, usize)>) -> Vec<u8> {
    let mut bytes = global.initial.clone();
    for relocation in &global.addresses {
        let address = globals
            .get(&relocation.name)
            .map_or(0, |(base, _)| base.wrapping_add_signed(relocation.addend));
        if let Some(place) = bytes.get_mut(relocation.offset..relocation.offset + 8) {
            place.copy_from_slice(&address.to_le_bytes());
        }
    }
    bytes
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleUnload(module: usize) -> CUresult {
    call("cuModuleUnload", Needs::Release, |mut guard| {
        guard.check_unsafe_call()?;
        let body = guard.modules.remove(module)?;
        guard.functions.retain(|function| function.module != module);
        let mut guard = drain_context(guard, body.context);
        body.unloaded.store(true, Ordering::Release);
        for (base, _) in body.globals.values() {
            guard.memory.remove(*base);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: Out<usize>,
    module: usize,
    name: Text,
) -> CUresult {
    call("cuModuleGetFunction", Needs::Context, |mut guard| {
        let name = name.read()?;
        let body = guard.modules.get(module)?;
        body.module
            .entry(&name)
            .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        if function.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // Repeated lookups of a function return the same handle.
        let known = guard
            .functions
            .iter()
            .find(|(_, known)| known.module == module && known.name == name)
            .map(|(handle, _)| handle);
        let handle = match known {
            Some(handle) => handle,
            None => guard.functions.insert(Function {
                module,
                name,
                max_dynamic_shared: SHARED,
            }),
        };
        function.put(handle)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: Out<u64>,
    size: Out<usize>,
    module: usize,
    name: Text,
) -> CUresult {
    call("cuModuleGetGlobal_v2", Needs::Context, |guard| {
        let name = name.read()?;
        let found = guard.modules.get(module)?.globals.get(&name).copied();
        let (base, bytes) = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        address.put_if_asked(base);
        size.put_if_asked(bytes);
        Ok(())
    })
}

/// Passes a function's entry to `access`.
fn with_entry<T>(
    guard: &Guard,
    function: usize,
    access: impl FnOnce(&Entry, &ModuleBody) -> T,
) -> Result<T, CUresult> {
    let function = guard.functions.get(function)?;
    let body = guard.modules.get(function.module)?;
    let entry = body
        .module
        .entry(&function.name)
        .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    Ok(access(entry, body))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetParamInfo(
    function: usize,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> CUresult {
    call("cuFuncGetParamInfo", Needs::Context, |guard| {
        let found = with_entry(&guard, function, |entry, _| {
            entry.parameters().get(index).copied()
        })?;
        let (at, bytes) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        offset.put(at)?;
        size.put_if_asked(bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    value: Out<c_int>,
    attribute: u32,
    function: usize,
) -> CUresult {
    use CUfunction_attribute as A;
    call("cuFuncGetAttribute", Needs::Context, |guard| {
        let known = guard.functions.get(function)?;
        let (major, minor) = guard.settings.capability;
        let local_bytes = guard.settings.local_bytes;
        let (most, target) = with_entry(&guard, function, |entry, body| {
            (
                entry.most_threads().unwrap_or(THREADS),
                body.module.target(),
            )
        })?;
        let table = [
            (A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, most),
            (A::CU_FUNC_ATTRIBUTE_PTX_VERSION, target.0 * 10 + target.1),
            (A::CU_FUNC_ATTRIBUTE_BINARY_VERSION, major * 10 + minor),
            (
                A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                known.max_dynamic_shared,
            ),
            (A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, local_bytes),
        ];
        // Attributes such as registers belong to machine code, of which there is none.
        let found = table
            .iter()
            .find(|(known, _)| *known as u32 == attribute)
            .ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        value.put(found.1.cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncSetAttribute(function: usize, attribute: u32, value: c_int) -> CUresult {
    call("cuFuncSetAttribute", Needs::Context, |mut guard| {
        let known = guard.functions.get_mut(function)?;
        if attribute != CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32
        {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let bytes = u32::try_from(value)
            .ok()
            .filter(|bytes| *bytes <= SHARED_OPTIN);
        known.max_dynamic_shared = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncLoad(function: usize) -> CUresult {
    call("cuFuncLoad", Needs::Context, |guard| {
        guard.functions.get(function).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetModule(module: Out<usize>, function: usize) -> CUresult {
    call("cuFuncGetModule", Needs::Context, |guard| {
        module.put(guard.functions.get(function)?.module)
    })
}

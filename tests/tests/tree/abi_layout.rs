//! `callbox-abi` against the contract, `wit/callbox-ffi.wit`: layouts, numbers and names; and the
//! imports that the host grants and guests declare.
//!
//! The crate `wit-parser` computes the expected values from the file, by the component model's
//! canonical ABI for 32 bits.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use callbox_abi::{
    self as abi, AttributeKind, ElementType, LogLevel, OptionU32, Stage, StatusCode,
};
use callbox_tests::abi_records::{Record, records};
use callbox_tests::{module, run};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, InterfaceId, Resolve, SizeAlign, Stability, Type, TypeDefKind, TypeId};

/// The contract.
struct Contract {
    resolve: Resolve,
    sizes: SizeAlign,
}

/// The API's functions by name.
type Functions = BTreeMap<String, ApiFunction>;

/// A function of the API: the minor version that introduced it, and its flattened type as
/// WebAssembly text.
#[derive(Clone)]
struct ApiFunction {
    since: u64,
    ty: String,
}

impl Contract {
    fn read() -> Self {
        let path = module::repository().join("wit/callbox-ffi.wit");
        let mut resolve = Resolve::default();
        resolve
            .push_source("callbox-ffi.wit", &std::fs::read_to_string(path).unwrap())
            .unwrap();
        let mut sizes = SizeAlign::default();
        sizes.fill(&resolve);
        Self { resolve, sizes }
    }

    fn interface(&self, name: &str) -> InterfaceId {
        let mut interfaces = self.resolve.interfaces.iter();
        interfaces
            .find(|(_, interface)| interface.name.as_deref() == Some(name))
            .unwrap()
            .0
    }

    fn type_named(&self, name: &str) -> TypeId {
        self.resolve.interfaces[self.interface("types")].types[name]
    }

    /// The names of an enum's cases, in the order of their numbers.
    fn cases(&self, name: &str) -> Vec<String> {
        match &self.resolve.types[self.type_named(name)].kind {
            TypeDefKind::Enum(cases) => cases.cases.iter().map(|case| case.name.clone()).collect(),
            kind => panic!("expected {name} to be an enum, found {}", kind.as_str()),
        }
    }

    /// Every record.
    fn records(&self) -> Vec<Record> {
        let types = self.resolve.interfaces[self.interface("types")]
            .types
            .values();
        types.filter_map(|id| self.record(*id)).collect()
    }

    fn record(&self, id: TypeId) -> Option<Record> {
        let definition = &self.resolve.types[id];
        let TypeDefKind::Record(record) = &definition.kind else {
            return None;
        };
        let offsets = self
            .sizes
            .field_offsets(record.fields.iter().map(|field| &field.ty));
        let fields = std::iter::zip(&record.fields, offsets);
        Some(Record {
            name: definition.name.clone().unwrap(),
            size: self.sizes.size(&Type::Id(id)).size_wasm32(),
            alignment: self.sizes.align(&Type::Id(id)).align_wasm32(),
            fields: fields
                .map(|(field, (offset, _))| (field.name.clone(), offset.size_wasm32()))
                .collect(),
        })
    }

    /// The API's functions.
    fn functions(&self) -> Functions {
        let functions = self.resolve.interfaces[self.interface("api")]
            .functions
            .values();
        functions
            .map(|function| {
                let since = minor_of(function);
                let ty = self.flattened(function);
                (function.name.clone(), ApiFunction { since, ty })
            })
            .collect()
    }

    fn flattened(&self, function: &Function) -> String {
        let signature = self
            .resolve
            .wasm_signature(AbiVariant::GuestImport, function);
        assert!(
            !signature.indirect_params && !signature.retptr,
            "{}",
            function.name
        );
        let list = |word: &str, types: &[WasmType]| {
            types
                .iter()
                .map(|ty| format!(" ({word} {})", core(*ty)))
                .collect::<String>()
        };
        list("param", &signature.params) + &list("result", &signature.results)
    }
}

/// Returns the minor version that introduced a function.
fn minor_of(function: &Function) -> u64 {
    match &function.stability {
        Stability::Stable { since, .. } => {
            assert_eq!((since.major, since.patch), (1, 0), "{}", function.name);
            since.minor
        }
        Stability::Unknown => 0,
        unstable => panic!(
            "expected {} to be stable, found {unstable:?}",
            function.name
        ),
    }
}

/// Returns the module name that functions of this minor version are imported from.
fn module_name(minor: u64) -> String {
    format!("{}1.{minor}.0", abi::API_MODULE)
}

/// Returns the type in a core module with 32-bit memory.
fn core(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

#[test]
fn records_are_laid_out_as_in_the_contract() {
    assert_eq!(records(), Contract::read().records());
}

#[test]
fn the_payload_of_an_option_is_where_the_contract_has_it() {
    let contract = Contract::read();
    let TypeDefKind::Record(buffer) = &contract.resolve.types[contract.type_named("buffer")].kind
    else {
        panic!("expected buffer to be a record");
    };
    let aliased = buffer
        .fields
        .iter()
        .find(|field| field.name == "aliased-operand")
        .unwrap();
    let Type::Id(id) = aliased.ty else {
        panic!("expected aliased-operand to be an option");
    };
    let TypeDefKind::Option(payload) = &contract.resolve.types[id].kind else {
        panic!("expected aliased-operand to be an option");
    };
    let offset = contract
        .sizes
        .payload_offset(wit_parser::Int::U8, [None, Some(payload)]);
    assert_eq!(offset.size_wasm32(), offset_of!(OptionU32, value));
}

#[test]
fn element_types_have_the_contracts_numbers() {
    let cases = Contract::read().cases("element-type");
    for (number, case) in cases.iter().enumerate() {
        let found = ElementType::from_number(u8::try_from(number).unwrap());
        // xla_data.proto's INVALID, TUPLE and OPAQUE_TYPE, which no buffer has.
        let expected = (!["invalid", "tuple", "opaque-type"].contains(&case.as_str()))
            .then_some(case.as_str());
        assert_eq!(found.map(ElementType::lower_name), expected, "{number}");
    }
    assert_eq!(ElementType::ALL.len() + 3, cases.len());
}

#[test]
fn status_codes_have_the_contracts_numbers() {
    let names = StatusCode::ALL.map(|code| code.name().to_ascii_lowercase().replace('_', "-"));
    assert_eq!(names.to_vec(), Contract::read().cases("status-code"));
    assert!(
        (0..)
            .zip(StatusCode::ALL)
            .all(|(number, code)| code.number() == number)
    );
}

#[test]
fn stages_have_the_contracts_numbers() {
    assert_eq!(
        Stage::ALL.map(Stage::name).to_vec(),
        Contract::read().cases("stage")
    );
    assert!(
        (0..)
            .zip(Stage::ALL)
            .all(|(number, stage)| stage.number() == number)
    );
}

#[test]
fn attribute_kinds_have_the_contracts_numbers() {
    let cases = Contract::read().cases("attribute-kind");
    let (none, kinds) = cases.split_first().unwrap();
    assert_eq!(none, "none");
    assert_eq!(AttributeKind::ALL.map(AttributeKind::name).to_vec(), kinds);
    assert!(
        (1..)
            .zip(AttributeKind::ALL)
            .all(|(number, kind)| kind.number() == number)
    );
}

#[test]
fn log_levels_have_the_contracts_numbers() {
    assert_eq!(
        LogLevel::ALL.map(LogLevel::name).to_vec(),
        Contract::read().cases("log-level")
    );
    assert!(
        (0..)
            .zip(LogLevel::ALL)
            .all(|(number, level)| level.number() == number)
    );
}

#[test]
fn the_api_is_imported_by_its_name_and_version() {
    let contract = Contract::read();
    let api = contract.interface("api");
    let package = contract.resolve.interfaces[api].package.unwrap();
    let version = contract.resolve.packages[package]
        .name
        .version
        .clone()
        .unwrap();
    assert_eq!(version.to_string(), "1.1.0");
    assert_eq!(
        contract.resolve.id_of(api),
        Some(module_name(version.minor))
    );
    assert_eq!(u64::from(abi::VERSION), version.major << 16 | version.minor);
    assert_eq!(
        (u64::from(abi::MAJOR), u64::from(abi::MINOR)),
        (version.major, version.minor)
    );
}

/// Loads a module that imports these functions from this minor version, or from the versions that
/// introduced them.
fn load(functions: &Functions, minor: Option<u64>) -> callbox::Result<()> {
    let imports = functions.iter().map(|(name, ApiFunction { since, ty })| {
        let module = module_name(minor.unwrap_or(*since));
        format!("(import \"{module}\" \"{name}\" (func{ty}))")
    });
    let text = format!(
        "(module {} (memory (export \"memory\") 1))",
        imports.collect::<String>()
    );
    run::shared_engine()
        .load(&wat::parse_str(text).unwrap())
        .map(drop)
}

/// Returns one function of this type.
fn one(name: &str, since: u64, ty: String) -> Functions {
    BTreeMap::from([(name.to_owned(), ApiFunction { since, ty })])
}

#[test]
fn the_host_grants_the_contracts_functions_by_their_flattened_types() {
    let functions = Contract::read().functions();
    assert_eq!(
        functions["set-failure"].ty,
        " (param i32) (param i32) (param i32) (param i32)"
    );
    assert_eq!(
        functions["user-data"].ty,
        " (param i32) (param i32) (param i32) (param i32) (result i64)"
    );
    load(&functions, None).unwrap();
    for (name, ApiFunction { since, ty }) in &functions {
        let other = one(name, *since, format!(" (param i64){ty}"));
        let error = load(&other, None).unwrap_err();
        assert_eq!(error.code(), StatusCode::InvalidArgument, "{name}");
    }
}

/// The host grants a function in every version from the one that introduced it to its own.
#[test]
fn the_host_grants_each_function_in_the_versions_that_have_it() {
    for (name, ApiFunction { since, ty }) in Contract::read().functions() {
        let function = one(&name, since, ty);
        for minor in 0..=u64::from(abi::MINOR) + 1 {
            let found = load(&function, Some(minor)).map_err(|error| error.code());
            let expected = if minor > u64::from(abi::MINOR) {
                Err(StatusCode::Unimplemented)
            } else if minor < since {
                Err(StatusCode::PermissionDenied)
            } else {
                Ok(())
            };
            assert_eq!(found, expected, "{name} of 1.{minor}");
        }
    }
}

#[test]
fn the_host_grants_no_other_functions() {
    let functions = Contract::read().functions();
    for minor in 0..=u64::from(abi::MINOR) {
        let error = load(&one("unknown", 0, String::new()), Some(minor)).unwrap_err();
        assert_eq!(error.code(), StatusCode::PermissionDenied);
    }
    let error = load(&one("unknown", 0, String::new()), None).unwrap_err();
    // The message lists exactly the functions that are granted.
    let (_, granted) = error.message().split_once("granted are ").unwrap();
    let (module, granted) = granted.split_once(": ").unwrap();
    assert_eq!(
        module,
        format!("the functions of {:?}", module_name(abi::MINOR.into()))
    );
    let mut granted: Vec<&str> = granted.split(", ").collect();
    granted.sort_unstable();
    assert_eq!(
        granted,
        functions.keys().map(String::as_str).collect::<Vec<_>>()
    );
}

/// Built guests import only functions of the contract, each from the version that introduced it.
/// The guest SDK declares these imports in Rust.
#[test]
fn built_guests_import_the_contracts_functions() {
    let functions = Contract::read().functions();
    let mut imported = BTreeSet::new();
    for name in [
        "activation",
        "add_n",
        "broadcast_add",
        "rms_norm",
        "softmax",
        "faults",
        "functions",
        "typed_ffi",
    ] {
        let module = run::guest(name).unwrap().unwrap();
        for import in &module.info().imports {
            // `maths_layout.rs` checks lent mathematics.
            if import.module.starts_with("callbox:ffi/maths@") {
                continue;
            }
            let function = functions
                .get(&import.name)
                .unwrap_or_else(|| panic!("{name} imports {}", import.name));
            assert_eq!(
                import.module,
                module_name(function.since),
                "{name}: {}",
                import.name
            );
            imported.insert((function.since, name));
        }
    }
    // All other guests run on a host of version 1.0.
    let newer: Vec<&str> = imported.range((1, "")..).map(|(_, name)| *name).collect();
    assert_eq!(newer, ["functions", "typed_ffi"]);
}

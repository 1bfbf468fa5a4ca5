//! The contract, `wit/callbox-ffi.wit`, against what host and guest have written down by hand: layouts, numbers, signatures.
//!
//! What is right is computed from the file by the crate `wit-parser`, by the component model's canonical ABI for 32 bits.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};

use callbox::call::Stage;
use callbox::frame::abi;
use callbox::policy::LogLevel;
use callbox::{ElementType, StatusCode};
use callbox_guest::__private as guest;
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

/// A function of the API: the minor version that brought it, and its flattened type as WebAssembly text writes it.
#[derive(Clone)]
struct ApiFunction {
    since: u64,
    ty: String,
}

/// A record: its name, size, alignment, and its fields' names and offsets.
type Record = (String, usize, usize, Vec<(String, usize)>);

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
        Some((
            definition.name.clone().unwrap(),
            self.sizes.size(&Type::Id(id)).size_wasm32(),
            self.sizes.align(&Type::Id(id)).align_wasm32(),
            fields
                .map(|(field, (offset, _))| (field.name.clone(), offset.size_wasm32()))
                .collect(),
        ))
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

/// The minor version that brought a function.
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

/// The name that functions of this minor version are imported by.
fn module_name(minor: u64) -> String {
    format!("{}1.{minor}.0", abi::API_MODULE)
}

/// The type in a core module of 32-bit memory.
fn core(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

#[test]
fn the_hosts_records_are_laid_out_as_the_contract_says() {
    let host: Vec<Record> = abi::RECORDS
        .iter()
        .map(|record| {
            let fields = record
                .fields
                .iter()
                .map(|(name, offset)| ((*name).to_owned(), *offset));
            (
                record.name.to_owned(),
                record.size,
                record.alignment,
                fields.collect(),
            )
        })
        .collect();
    assert_eq!(host, Contract::read().records());
}

#[test]
fn the_guests_records_are_laid_out_as_the_contract_says() {
    let guest: Vec<Record> = guest::RECORDS
        .iter()
        .map(|(name, size, alignment)| {
            let fields = guest::LAYOUT.iter().filter(|(record, _, _)| record == name);
            let fields = fields.map(|(_, field, offset)| ((*field).to_owned(), *offset));
            ((*name).to_owned(), *size, *alignment, fields.collect())
        })
        .collect();
    assert_eq!(guest, Contract::read().records());
}

#[test]
fn the_payload_of_an_option_lies_where_the_contract_says() {
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
    assert_eq!(offset.size_wasm32(), guest::OPTION_PAYLOAD);
    // The host writes the payload right behind the byte that says whether there is one, aligned.
    assert_eq!(offset.size_wasm32(), 4);
}

/// WIT's name for an element type: its own in kebab case.
fn element_types(name_of_number: impl Fn(u8) -> Option<String>) {
    for (number, case) in Contract::read()
        .cases("element-type")
        .into_iter()
        .enumerate()
    {
        let name = name_of_number(u8::try_from(number).unwrap());
        // What no buffer has: xla_data.proto's INVALID, TUPLE and OPAQUE_TYPE.
        let expected =
            (!["invalid", "tuple", "opaque-type"].contains(&case.as_str())).then_some(case);
        assert_eq!(name, expected, "{number}");
    }
}

#[test]
fn element_types_have_the_contracts_numbers() {
    element_types(|number| ElementType::from_number(number).map(|t| t.lower_name().to_owned()));
    element_types(|number| {
        callbox_guest::ElementType::from_number(number).map(|t| t.name().to_ascii_lowercase())
    });
    let count = Contract::read().cases("element-type").len();
    assert_eq!(ElementType::ALL.len() + 3, count);
    assert_eq!(callbox_guest::ElementType::ALL.len() + 3, count);
}

#[test]
fn status_codes_have_the_contracts_numbers() {
    let cases = Contract::read().cases("status-code");
    let wit = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let host: Vec<String> = StatusCode::ALL
        .iter()
        .map(|code| wit(code.name()))
        .collect();
    assert_eq!(host, cases);
    for (number, code) in StatusCode::ALL.iter().enumerate() {
        assert_eq!(usize::from(code.number()), number);
    }
    let guest = (0..).map_while(callbox_guest::StatusCode::from_number);
    assert_eq!(
        guest.map(|code| wit(code.name())).collect::<Vec<_>>(),
        cases
    );
}

#[test]
fn stages_have_the_contracts_numbers() {
    let cases = Contract::read().cases("stage");
    assert_eq!(Stage::ALL.map(Stage::name).to_vec(), cases);
    for (number, stage) in Stage::ALL.into_iter().enumerate() {
        assert_eq!(stage as usize, number);
    }
    let guest = (0..).map_while(callbox_guest::Stage::from_number);
    assert_eq!(
        guest.map(callbox_guest::Stage::name).collect::<Vec<_>>(),
        cases
    );
}

#[test]
fn attribute_kinds_have_the_contracts_numbers() {
    use abi::attribute::{KIND_ARRAY, KIND_DICTIONARY, KIND_FUNCTION, KIND_SCALAR, KIND_STRING};
    let cases = Contract::read().cases("attribute-kind");
    assert_eq!(cases.len(), 6);
    for (name, number) in [
        ("array", KIND_ARRAY),
        ("dictionary", KIND_DICTIONARY),
        ("scalar", KIND_SCALAR),
        ("string", KIND_STRING),
        ("function", KIND_FUNCTION),
    ] {
        assert_eq!(cases[usize::from(number)], name);
        let guest = callbox_guest::AttributeKind::from_number(number);
        assert_eq!(guest.map(callbox_guest::AttributeKind::name), Some(name));
    }
    assert_eq!(cases[0], "none");
    assert_eq!(callbox_guest::AttributeKind::from_number(0), None);
}

#[test]
fn log_levels_have_the_contracts_numbers() {
    use callbox_guest::LogLevel as Guest;
    let cases = Contract::read().cases("log-level");
    let host = [
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
        LogLevel::Trace,
    ];
    let guest = [
        Guest::Error,
        Guest::Warn,
        Guest::Info,
        Guest::Debug,
        Guest::Trace,
    ];
    assert_eq!(host.map(|level| level.to_string()).to_vec(), cases);
    for (number, (host, guest)) in std::iter::zip(host, guest).enumerate() {
        assert_eq!((host as usize, guest as usize), (number, number));
        assert_eq!(format!("{guest:?}").to_ascii_lowercase(), cases[number]);
    }
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

/// Loads a module that imports these functions, each by the name of this minor version, or of the one that brought it.
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

/// One function, of this type.
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

/// A function is there from the version on that brought it, up to the host's own.
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
    // The message lists what is granted: all of it, and nothing else.
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

/// The guest's imports, which are declared in Rust, are the contract's: a built guest says what it imports, each function by the version
/// that brought it.
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
    // What uses nothing newer runs on an older host.
    let newer: Vec<&str> = imported.range((1, "")..).map(|(_, name)| *name).collect();
    assert_eq!(newer, ["functions", "typed_ffi"]);
}

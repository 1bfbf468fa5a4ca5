//! `callbox-abi` and the host against `wit/maths/callbox-maths.wit`: layouts, numbers and names of
//! the lent mathematics, and the types of its functions.
//!
//! The crate `wit-parser` computes the expected values from the file, by the component model's
//! canonical ABI for 32 bits.

use std::fs;
use std::mem::offset_of;

use callbox::StatusCode;
use callbox::policy::{Grants, Policy};
use callbox::wasm::{Config, Engine};
use callbox_abi::{
    Convertible, Elementwise, MATHS_MODULE, MATHS_VERSION, Matrices, Number, Order, Product,
    Reduction, Transform,
};
use callbox_tests::{module, run};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Resolve, SizeAlign, Type, TypeDefKind};

fn contract() -> Resolve {
    let path = module::repository().join("wit/maths/callbox-maths.wit");
    let mut resolve = Resolve::default();
    resolve
        .push_source("callbox-maths.wit", &fs::read_to_string(path).unwrap())
        .unwrap();
    resolve
}

/// A record's size and alignment, and the offsets of its fields.
fn layout(record: &str) -> (usize, usize, Vec<usize>) {
    let resolve = contract();
    let mut sizes = SizeAlign::default();
    sizes.fill(&resolve);
    let (_, interface) = resolve.interfaces.iter().next().unwrap();
    let id = interface.types[record];
    let TypeDefKind::Record(fields) = &resolve.types[id].kind else {
        panic!("expected {record} to be a record");
    };
    let offsets = sizes.field_offsets(fields.fields.iter().map(|field| &field.ty));
    (
        sizes.size(&Type::Id(id)).size_wasm32(),
        sizes.align(&Type::Id(id)).align_wasm32(),
        offsets
            .into_iter()
            .map(|(offset, _)| offset.size_wasm32())
            .collect(),
    )
}

#[test]
fn records_are_laid_out_as_in_the_contract() {
    let fields = vec![
        offset_of!(Matrices, data),
        offset_of!(Matrices, batch_stride),
        offset_of!(Matrices, row_stride),
        offset_of!(Matrices, column_stride),
    ];
    let found = (size_of::<Matrices>(), align_of::<Matrices>(), fields);
    assert_eq!(found, layout("matrices"));
    let fields = vec![
        offset_of!(Product, a),
        offset_of!(Product, b),
        offset_of!(Product, c),
        offset_of!(Product, batch),
        offset_of!(Product, rows),
        offset_of!(Product, columns),
        offset_of!(Product, depth),
        offset_of!(Product, number),
        offset_of!(Product, alpha),
        offset_of!(Product, beta),
    ];
    let found = (size_of::<Product>(), align_of::<Product>(), fields);
    assert_eq!(found, layout("product"));
}

/// The names of an enum's cases, in the order of their numbers.
fn cases(name: &str) -> Vec<String> {
    let resolve = contract();
    let (_, interface) = resolve.interfaces.iter().next().unwrap();
    match &resolve.types[interface.types[name]].kind {
        TypeDefKind::Enum(cases) => cases.cases.iter().map(|case| case.name.clone()).collect(),
        kind => panic!("expected {name} to be an enum, found {}", kind.as_str()),
    }
}

#[test]
fn functions_and_types_have_the_contracts_numbers() {
    assert_eq!(
        cases("elementwise"),
        Elementwise::ALL.map(Elementwise::name)
    );
    assert_eq!(cases("reduction"), Reduction::ALL.map(Reduction::name));
    assert_eq!(cases("number"), Number::ALL.map(Number::name));
    assert_eq!(
        cases("convertible"),
        Convertible::ALL.map(Convertible::name)
    );
    assert_eq!(cases("order"), Order::ALL.map(Order::name));
    assert_eq!(cases("transform"), Transform::ALL.map(Transform::name));
    let in_order = |numbers: &[u8]| (0..).zip(numbers).all(|(number, found)| number == *found);
    assert!(in_order(&Elementwise::ALL.map(Elementwise::number)));
    assert!(in_order(&Reduction::ALL.map(Reduction::number)));
    assert!(in_order(&Number::ALL.map(Number::number)));
    assert!(in_order(&Convertible::ALL.map(Convertible::number)));
    assert!(in_order(&Order::ALL.map(Order::number)));
    assert!(in_order(&Transform::ALL.map(Transform::number)));
}

/// The functions, with their flattened types as WebAssembly text. A single record of more than 16
/// numbers is a pointer.
fn functions() -> Vec<(String, String)> {
    let resolve = contract();
    let (_, interface) = resolve.interfaces.iter().next().unwrap();
    let functions = interface.functions.values().map(|function| {
        let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
        assert!(signature.results.is_empty() && !signature.retptr);
        assert_eq!(signature.indirect_params, function.name == "gemm");
        let parameters = signature.params.iter().map(|ty| match ty {
            WasmType::F32 => "f32",
            WasmType::I64 | WasmType::F64 => panic!("expected no {ty:?}"),
            WasmType::I32 | WasmType::Pointer | WasmType::PointerOrI64 | WasmType::Length => "i32",
        });
        let parameters = parameters.collect::<Vec<_>>().join(" ");
        (function.name.clone(), format!("(param {parameters})"))
    });
    functions.collect()
}

fn importing(functions: &[(String, String)]) -> Vec<u8> {
    let imports: String = functions
        .iter()
        .map(|(name, ty)| {
            format!("(import \"{MATHS_MODULE}{MATHS_VERSION}\" \"{name}\" (func {ty}))")
        })
        .collect();
    wat::parse_str(format!("(module {imports} (memory (export \"memory\") 1))")).unwrap()
}

#[test]
fn the_host_grants_the_contracts_functions_by_their_flattened_types() {
    let resolve = contract();
    let (id, _) = resolve.interfaces.iter().next().unwrap();
    assert_eq!(
        resolve.id_of(id),
        Some(format!("{MATHS_MODULE}{MATHS_VERSION}"))
    );
    run::shared_engine().load(&importing(&functions())).unwrap();
    for (name, ty) in functions() {
        let other = [(name.clone(), format!("(param f32) {ty}"))];
        let error = run::shared_engine().load(&importing(&other)).unwrap_err();
        assert_eq!(error.code(), StatusCode::InvalidArgument, "{name}");
    }
}

#[test]
fn a_policy_can_withhold_each_function() {
    let withheld = Grants {
        maths: false,
        ..Grants::default()
    };
    for function in functions() {
        let wasm = importing(std::slice::from_ref(&function));
        let error = run::shared_engine()
            .load_with(&wasm, &withheld)
            .unwrap_err();
        assert_eq!(error.code(), StatusCode::PermissionDenied);
        let name = format!("\"{MATHS_MODULE}{MATHS_VERSION}\" \"{}\"", function.0);
        assert!(error.message().contains(&name), "{error}");
    }
    let policy = Policy::from_json(br#"{"grants": {"maths": false}}"#).unwrap();
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let error = engine.unwrap().load(&importing(&functions())).unwrap_err();
    assert_eq!(error.code(), StatusCode::PermissionDenied);
}

/// The header asserts the same layout where the C compiler runs.
#[test]
fn the_c_header_has_the_contracts_layout_and_numbers() {
    let path = module::repository().join("guest-sdk/include/callbox_maths.h");
    let header = fs::read_to_string(path).unwrap();
    for (record, fields) in [
        (
            "matrices",
            vec!["data", "batch_stride", "row_stride", "column_stride"],
        ),
        (
            "product",
            vec![
                "a", "b", "c", "batch", "rows", "columns", "depth", "number", "alpha", "beta",
            ],
        ),
    ] {
        let (size, _, offsets) = layout(record);
        let assertion = format!("CALLBOX_ASSERT(sizeof(callbox_{record}) == {size});");
        assert!(header.contains(&assertion), "{assertion}");
        for (field, offset) in fields.into_iter().zip(offsets) {
            let line = format!("CALLBOX_ASSERT_FIELD(callbox_{record}, {field}, {offset});");
            assert!(header.contains(&line), "{line}");
        }
    }
    for (name, prefix, number) in [
        ("elementwise", "CALLBOX_", Elementwise::ALL.len()),
        ("reduction", "CALLBOX_", Reduction::ALL.len()),
        ("number", "CALLBOX_NUMBER_", Number::ALL.len()),
        ("transform", "CALLBOX_", Transform::ALL.len()),
    ] {
        let (_, rest) = header
            .split_once(&format!("enum callbox_{name} {{"))
            .unwrap();
        let (body, _) = rest.split_once('}').unwrap();
        let found: Vec<_> = body.split(',').map(str::trim).collect();
        let expected = cases(name).into_iter();
        let expected =
            expected.map(|case| format!("{prefix}{}", case.to_uppercase().replace('-', "_")));
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(found.len(), number);
    }
    for (name, _) in functions() {
        let line = format!("CALLBOX_MATHS(\"{name}\")");
        assert!(header.contains(&line), "{line}");
    }
}

/// The sample guest imports each function by its name and type.
#[test]
fn the_sample_guest_imports_the_functions() {
    let module = run::guest("maths").unwrap().unwrap();
    let imports = module.info().imports.iter();
    let mut found: Vec<_> = imports
        .filter(|import| import.module.starts_with(MATHS_MODULE))
        .map(|import| import.name.clone())
        .collect();
    found.sort_unstable();
    let mut expected: Vec<_> = functions().into_iter().map(|(name, _)| name).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

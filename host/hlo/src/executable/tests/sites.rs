//! The call sites that modules get.

use super::{Program, compile, registry, run, sites};
use crate::{CustomCall, ProgramBuilder, Schedule};
use callbox_core::call::{ApiVersion, CallSite, StaticInfo};
use callbox_core::values::{Literal, Shape, StatusCode};

/// The call site of a program with this body.
fn site(body: &str) -> CallSite {
    let text = format!("HloModule m\nENTRY main {{\n  x = f32[2] parameter(0)\n{body}\n}}");
    let mut sites = sites(&text, &["f"]);
    assert_eq!(sites.len(), 1);
    sites.remove(0)
}

const F: &str = "custom-call(x), custom_call_target=\"f\"";
const TYPED: &str = "api_version=API_VERSION_TYPED_FFI";

#[test]
fn literals_are_row_major() {
    let of = |literal: &str| {
        let body = format!("  ROOT y = f32[2] {F}, literal={literal}");
        site(&body).literal.unwrap()
    };
    let pair = of("s32[2]{0} {1, 2}");
    assert_eq!(pair, Literal::array(&[2], &[1, 2]).unwrap());
    let transposed = of("s32[2,2]{0,1} { {1, 2}, {3, 4} }");
    assert_eq!(transposed, Literal::array(&[2, 2], &[1, 2, 3, 4]).unwrap());
    let tuple = of("( s32[4]{0} {4, 128, 128, 3}, (pred[2]{0} {1, 0}, ()), f32[] 0.5 )");
    assert_eq!(tuple.shape().to_string(), "(s32[4], (pred[2], ()), f32[])");
    assert_eq!(tuple.leaves().nth(1).unwrap().1, [1, 0]);
    assert_eq!(site(&format!("  ROOT y = f32[2] {F}")).literal, None);
}

#[test]
fn static_information_is_there_if_the_text_has_a_config() {
    let of = |attributes: &str| {
        let site = site(&format!(
            "  ROOT y = f32[2] {F}, api_version=API_VERSION_JAX_FFI{attributes}"
        ));
        assert_eq!(
            (site.api_version, site.opaque.len()),
            (ApiVersion::JaxFfi, 0)
        );
        site.static_info
    };
    assert_eq!(of(""), None);
    assert_eq!(
        of(r#", backend_config="a\000\377""#),
        Some(StaticInfo::Value(b"a\0\xff".to_vec()))
    );
    assert_eq!(
        of(", backend_config=\"\""),
        Some(StaticInfo::Value(Vec::new()))
    );
    assert_eq!(
        of(", frontend_attributes={other={x=1},a=\"b\"}, backend_config={\"n\": 1}"),
        Some(StaticInfo::Value(b"{\"n\": 1}".to_vec()))
    );
    let by_reference = concat!(
        ", frontend_attributes={callbox.static_info.constructor=\"make\",",
        "callbox.static_info.destructor=\"dr\\157p\"}"
    );
    let reference = |argument: &[u8]| {
        Some(StaticInfo::Reference {
            constructor: "make".to_owned(),
            destructor: "drop".to_owned(),
            argument: argument.to_vec(),
        })
    };
    assert_eq!(of(by_reference), reference(b""));
    let argument = format!("{by_reference}, backend_config=\"4\"");
    assert_eq!(of(&argument), reference(b"4"));
    // Other conventions have no static information.
    let opaque = site(&format!(
        "  ROOT y = f32[2] {F}, backend_config=\"4\"{by_reference}"
    ));
    assert_eq!(
        (opaque.opaque.as_slice(), opaque.static_info),
        (&b"4"[..], None)
    );
}

#[test]
fn half_a_reference_is_refused() {
    let text = format!(
        "HloModule m\nENTRY main {{\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] {F}, \
         api_version=API_VERSION_JAX_FFI, frontend_attributes={{callbox.static_info.constructor=\"make\"}}\n}}"
    );
    let error = Program::from_hlo_text(&text).unwrap_err();
    assert_eq!(error.code(), StatusCode::InvalidArgument);
    assert!(
        error.message().contains(
            "expected both callbox.static_info.constructor and callbox.static_info.destructor, \
             found one of them"
        ),
        "{error}"
    );
}

#[test]
fn what_nobody_reads_is_scratch() {
    for (shape, uses, scratch) in [
        // XLA's example: index 1 of the result is never read.
        (
            "(f32[2], f32[8])",
            "  ROOT a = f32[2] get-tuple-element(y), index=0",
            &[1][..],
        ),
        (
            "(f32[2], f32[8])",
            "  a = f32[8] get-tuple-element(y), index=1\n  ROOT b = f32[2] get-tuple-element(y), index=0",
            &[1],
        ),
        (
            "(f32[2], f32[8])",
            "  ROOT a = (f32[2], f32[8]) copy(y)",
            &[],
        ),
        (
            "(f32[2], f32[8])",
            "  a = f32[8] get-tuple-element(y), index=1\n  ROOT b = f32[8] negate(a)",
            &[0],
        ),
        (
            "((f32[2], (), (f32[2], f32[3])), token[], (f32[2], f32[4]))",
            "  t = (f32[2], (), (f32[2], f32[3])) get-tuple-element(y), index=0
  u = (f32[2], f32[3]) get-tuple-element(t), index=2
  v = f32[3] get-tuple-element(u), index=1
  w = (f32[2], f32[4]) get-tuple-element(y), index=2
  ROOT r = (f32[3], (f32[2], f32[4])) tuple(v, w)",
            &[0, 1, 3],
        ),
        // A nested tuple is read as a whole, and a part of it besides.
        (
            "(f32[2], (f32[2], f32[3]))",
            "  t = (f32[2], f32[3]) get-tuple-element(y), index=1
  u = f32[3] get-tuple-element(t), index=1
  ROOT r = ((f32[2], f32[3]), f32[3]) tuple(t, u)",
            &[0],
        ),
        ("(f32[2], f32[8])", "  ROOT z = f32[2] negate(x)", &[0, 1]),
        ("f32[2]", "  ROOT z = f32[2] negate(x)", &[0]),
        ("f32[2]", "  ROOT z = f32[2] negate(y)", &[]),
    ] {
        let site = site(&format!(
            "  y = {shape} {F}, {TYPED}, custom_call_has_side_effect=true\n{uses}"
        ));
        assert_eq!(site.scratch, scratch, "{shape}\n{uses}");
    }
}

#[test]
fn the_root_and_loops_read_all_of_a_tuple() {
    let root = site(&format!("  ROOT y = (f32[2], f32[8]) {F}, {TYPED}"));
    assert!(root.scratch.is_empty());
    let text = format!(
        "HloModule m
condition {{
  s = (f32[2], f32[8]) parameter(0)
  ROOT p = pred[] constant(false)
}}
body {{
  ROOT s = (f32[2], f32[8]) parameter(0)
}}
ENTRY main {{
  x = f32[2] parameter(0)
  y = (f32[2], f32[8]) {F}, {TYPED}
  w = (f32[2], f32[8]) while(y), condition=condition, body=body
  ROOT r = f32[2] get-tuple-element(w), index=0
}}"
    );
    assert!(sites(&text, &["f"])[0].scratch.is_empty());
}

#[test]
fn scratch_is_not_handed_over_and_the_rest_is_read() {
    let text = format!(
        "HloModule m
ENTRY main {{
  x = f32[2]{{0}} parameter(0)
  y = (f32[8,2]{{0,1}}, (f32[2]{{0}}, f32[2]{{0}})) {F}, {TYPED}, operand_layout_constraints={{f32[2]{{0}}}}, \
        output_to_operand_aliasing={{{{1,1}}: (0, {{}})}}
  t = (f32[2]{{0}}, f32[2]{{0}}) get-tuple-element(y), index=1
  ROOT r = f32[2]{{0}} get-tuple-element(t), index=0
}}"
    );
    let x = Literal::array(&[2], &[1.0_f32, 2.0]).unwrap();
    let (result, log) = run(&text, &["f"], &[x]);
    assert_eq!(result.unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(log.len(), 3);
    let site = &sites(&text, &["f"])[0];
    // The aliased leaf too.
    assert_eq!(site.scratch, [0, 2]);
    assert_eq!(
        site.result.to_string(),
        "(f32[8,2]{0,1}, (f32[2]{0}, f32[2]{0}))"
    );
}

#[test]
fn builders_say_all_that_texts_say() {
    let mut b = ProgramBuilder::new("main");
    let shape = Shape::array(callbox_core::ElementType::F32, &[2]).unwrap();
    let twice = b.computation("twice", |c| {
        let x = c.parameter(0, Shape::array(callbox_core::ElementType::F32, &[2])?, "x")?;
        c.add(x, x)
    });
    let twice = twice.unwrap();
    let x = b.parameter(0, shape.clone(), "x").unwrap();
    let options = CustomCall {
        literal: Some(Literal::scalar(7_i32)),
        schedule: Schedule::Latest,
        attributes: [(
            "g".to_owned(),
            callbox_core::Attribute::Function("twice".to_owned()),
        )]
        .into(),
        called_computations: vec![twice],
        ..CustomCall::new("f")
    };
    let y = b.custom_call(options, &[x], shape.clone()).unwrap();
    let program = b.build(y).unwrap();
    let (registry, log) = registry(&["f"]);
    let text = program.to_hlo_text();
    assert_eq!(Program::from_hlo_text(&text).unwrap(), program);
    let executable = compile(&text, &registry).unwrap();
    let x = Literal::array(&[2], &[1.0_f32, 2.0]).unwrap();
    let result = executable.execute(0, &[x], &crate::ExecuteOptions::default());
    assert_eq!(result.unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert_eq!(log.lock().unwrap().len(), 3);
    let site = &sites(&text, &["f"])[0];
    assert_eq!(site.literal, Some(Literal::scalar(7_i32)));
    assert_eq!(
        (site.functions.len(), site.called_computations.as_slice()),
        (1, &[0][..])
    );
}

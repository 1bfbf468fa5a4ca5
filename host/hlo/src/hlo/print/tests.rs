//! Printed programs read back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod custom_calls;
mod properties;

use crate::{
    BinaryOperation, Comparison, ComparisonOrder, CustomCall, DotDimensions, FusionKind,
    PaddingDimension, Program, ProgramBuilder, SliceDimension, UnaryOperation,
};
use callbox_core::call::ApiVersion;
use callbox_core::values::{
    ArrayShape, Attribute, Dictionary, ElementType, Layout, Literal, Result, Shape,
};

#[track_caller]
fn check(program: &Program) -> String {
    let text = program.to_hlo_text();
    match Program::from_hlo_text(&text) {
        Ok(again) => assert!(again == *program, "{text}\n{again:?}\n{program:?}"),
        Err(error) => unreachable!("{error}\n{text}"),
    }
    text
}

fn of(api_version: ApiVersion) -> CustomCall {
    CustomCall {
        api_version,
        ..CustomCall::new("t")
    }
}

/// Names become names that HLO text can have, references follow, and valid names stay.
#[test]
fn names_are_made_printable() {
    let mut b = ProgramBuilder::new("my main");
    let scalar = || Shape::scalar(ElementType::F32);
    let odd = b
        .computation("a b", |c| c.parameter(0, scalar(), "1 x"))
        .unwrap();
    let taken = b
        .computation("a_b", |c| c.parameter(0, scalar(), "ROOT"))
        .unwrap();
    b.export(odd).unwrap();
    let x = b.parameter(0, scalar(), "é").unwrap();
    let options = CustomCall {
        attributes: Dictionary::from([
            ("f".to_owned(), Attribute::Function("a b".to_owned())),
            ("g".to_owned(), Attribute::Function("a_b".to_owned())),
        ]),
        called_computations: vec![odd, taken],
        ..CustomCall::new("t")
    };
    let call = b.custom_call(options, &[x], scalar()).unwrap();
    let program = b.build(call).unwrap();
    let text = program.to_hlo_text();
    let again = Program::from_hlo_text(&text).unwrap();
    assert_eq!(
        text,
        "HloModule my_main, entry_computation_layout={(f32[])->f32[]}, \
         frontend_attributes={callbox.exports=\"my_main,a_b.1\"}

%a_b.1 {
  ROOT %__x = f32[] parameter(0)
}

%a_b {
  ROOT %ROOT = f32[] parameter(0)
}

ENTRY %my_main {
  %_ = f32[] parameter(0)
  ROOT %custom-call.1 = f32[] custom-call(%_), custom_call_target=\"t\", called_computations={%a_b.1, %a_b}, \
         api_version=API_VERSION_TYPED_FFI, backend_config={f = @a_b.1, g = @a_b}
}
"
    );
    assert_eq!(again.exports(), program.exports());
    assert_eq!(check(&again), text);
}

/// One of each opcode.
#[test]
fn every_opcode_survives() {
    let mut b = ProgramBuilder::new("main");
    let ops = all_opcodes(&mut b).unwrap();
    let root = b.tuple(&ops).unwrap();
    let text = check(&b.build(root).unwrap());
    for part in [
        "slice={[0:2], [0:3:2]}",
        "padding=0_1_2x-1_0",
        "direction=LT, type=TOTALORDER",
        "true_computation=%double, false_computation=%double",
        "branch_computations={%double, %double, %double}",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "control-predecessors={%x}",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

fn all_opcodes(b: &mut ProgramBuilder) -> Result<Vec<crate::Op>> {
    let scalar = || Shape::scalar(ElementType::F32);
    let double = b.computation("double", |c| {
        let x = c.parameter(0, scalar(), "x")?;
        c.add(x, x)
    })?;
    let add = b.computation("add", |c| {
        let (x, y) = (
            c.parameter(0, scalar(), "x")?,
            c.parameter(1, scalar(), "y")?,
        );
        c.add(x, y)
    })?;
    let never = b.computation("never", |c| {
        c.parameter(0, scalar(), "x")?;
        c.constant(Literal::scalar(false))
    })?;
    let layout = Layout::new(&[0, 1])?;
    let shape = ArrayShape::new(ElementType::F32, &[2, 3])?.with_layout(layout)?;
    let x = b.parameter(0, shape.clone().into(), "x")?;
    let s = b.parameter(1, scalar(), "s")?;
    let i = b.parameter(2, Shape::scalar(ElementType::S32), "i")?;
    let p = b.parameter(3, Shape::scalar(ElementType::Pred), "p")?;
    let mut ops = vec![
        b.constant(Literal::tuple(vec![
            Literal::array(&[2, 1, 2], &[true, false, true, true])?,
            Literal::scalar(true),
            Literal::tuple(vec![])?,
        ])?)?,
        b.unary(UnaryOperation::Cosine, x)?,
        b.binary(BinaryOperation::Atan2, x, x)?,
        b.compare(Comparison::Lt, ComparisonOrder::Total, x, x)?,
        b.compare(Comparison::Ge, ComparisonOrder::Partial, i, i)?,
        b.select(p, x, x)?,
        b.clamp(s, x, s)?,
        b.reduce_precision(x, 5, 10)?,
        b.convert(x, ElementType::Bf16)?,
        b.bitcast_convert(x, ElementType::U32)?,
        b.bitcast(x, "f32[3,2]{1,0}".parse()?)?,
        b.iota("s32[2,3]".parse()?, 1)?,
        b.broadcast(s, &[4], &[])?,
        b.reshape(x, &[6])?,
        b.transpose(x, &[1, 0])?,
        b.reverse(x, &[0, 1])?,
        b.copy(x)?,
        b.dynamic_slice(x, &[i, i], &[1, 2])?,
        b.concatenate(&[x, x], 1)?,
        b.reduce(&[x], &[s], &[0, 1], add)?,
        b.map(&[x], double)?,
        b.call(double, &[s])?,
        b.fusion(FusionKind::Loop, double, &[s])?,
        b.while_loop(never, double, s)?,
        b.conditional(p, &[(double, s), (double, s)])?,
        b.conditional(i, &[(double, s), (double, s), (double, s)])?,
        b.optimization_barrier(&[x, s])?,
    ];
    let slice = |limit, stride| SliceDimension {
        start: 0,
        limit,
        stride,
    };
    ops.push(b.slice(x, &[slice(2, 1), slice(3, 2)])?);
    let padding = |low, high, interior| PaddingDimension {
        low,
        high,
        interior,
    };
    ops.push(b.pad(x, s, &[padding(0, 1, 2), padding(-1, 0, 0)])?);
    ops.push(b.pad(s, s, &[])?);
    let dot = DotDimensions {
        lhs_contracting: vec![1],
        rhs_contracting: vec![1],
        ..DotDimensions::default()
    };
    ops.push(b.dot(x, x, dot, None)?);
    let part = b.dynamic_slice(x, &[i, i], &[1, 1])?;
    ops.push(b.dynamic_update_slice(x, part, &[i, i])?);
    let token = b.after_all(&[])?;
    b.control_predecessor(token, x)?;
    let tuple = b.tuple(&[token, x])?;
    ops.extend([token, b.get_tuple_element(tuple, 1)?]);
    Ok(ops)
}

#[test]
fn arrays_without_elements_survive_whatever_their_size() {
    for (shape, expected) in [
        ("f32[0]", "{}"),
        ("f32[3,0]", "{}"),
        ("f32[2,0,5]", "{}"),
        ("f32[1000000,1000000,0]", "{}"),
    ] {
        let mut b = ProgramBuilder::new("main");
        let literal = Literal::from_bytes(shape.parse().unwrap(), vec![]).unwrap();
        let constant = b.constant(literal).unwrap();
        let text = check(&b.build(constant).unwrap());
        assert!(text.contains(&format!("constant({expected})")), "{text}");
    }
}

#[test]
fn the_largest_rank_is_printed() {
    let dimensions = vec![1; 255];
    let mut b = ProgramBuilder::new("main");
    let constant = b
        .constant(Literal::array(&dimensions, &[7]).unwrap())
        .unwrap();
    check(&b.build(constant).unwrap());
}

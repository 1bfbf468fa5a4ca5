//! Inputs: which file is which parameter, or which array of one.

use std::collections::HashSet;

use callbox::program::Function;
use callbox::{ArrayShape, ElementType, Literal, Shape, Status};

use super::arguments::{InputArgument, Place};
use super::failure::{Failure, Outcome};

/// Checks that no array is given twice.
pub(super) fn check_unique(inputs: &[InputArgument]) -> Outcome<()> {
    let mut places = HashSet::new();
    for input in inputs {
        if !places.insert((input.place.parameter, &input.place.index)) {
            return Err(Failure::usage(Status::invalid_argument(format!(
                "expected --input {} once, found it again with {}",
                input.place, input.file
            ))));
        }
    }
    Ok(())
}

/// Reads a function's arguments.
pub(super) fn read(function: &Function, inputs: &[InputArgument]) -> Outcome<Vec<Literal>> {
    let slots = slots(function);
    check(function, &slots, inputs)?;
    let mut arrays = Vec::with_capacity(slots.len());
    for (place, shape) in &slots {
        let input = inputs.iter().find(|input| input.place == *place);
        arrays.push(match input {
            Some(input) => read_input(input, shape)?,
            // A token has no bytes, and so no file.
            None => Literal::from_bytes((*shape).clone(), Vec::new())?,
        });
    }
    let mut arrays = arrays.into_iter();
    let arguments = function.parameters.iter();
    let arguments = arguments.map(|shape| assemble(shape, &mut arrays));
    Ok(arguments.collect::<callbox::Result<_>>()?)
}

/// The value of this shape, of the arrays that come next.
fn assemble(shape: &Shape, arrays: &mut impl Iterator<Item = Literal>) -> callbox::Result<Literal> {
    match shape {
        Shape::Array(shape) => arrays
            .next()
            .ok_or_else(|| Status::internal(format!("an input of shape {shape} was not read"))),
        Shape::Tuple(tuple) => {
            let elements = tuple.elements().iter().map(|shape| assemble(shape, arrays));
            Literal::tuple(elements.collect::<callbox::Result<_>>()?)
        }
    }
}

fn read_input(input: &InputArgument, shape: &ArrayShape) -> Outcome<Literal> {
    let name = format_args!("--input {}", input.place).to_string();
    let array = input
        .file
        .read(Some(shape.element_type()))
        .map_err(|failure| failure.context(&name))?;
    match array.shape().as_array() {
        Some(found) if found.is_compatible(shape) => Ok(array),
        _ => {
            let (expected, found) = (shape.clone().without_layout(), array.shape());
            let status = Status::invalid_argument(format!("expected {expected}, found {found}"));
            Err(status.context(&input.file).context(name).into())
        }
    }
}

/// Checks that each array has an input, and each input an array.
fn check(
    function: &Function,
    slots: &[(Place, &ArrayShape)],
    inputs: &[InputArgument],
) -> Outcome<()> {
    let name = &function.name;
    let is_slot = |input: &&InputArgument| slots.iter().any(|(place, _)| *place == input.place);
    if let Some(input) = inputs.iter().find(|input| !is_slot(input)) {
        return Err(Status::invalid_argument(format!(
            "expected an input of the function {name:?}, found --input {}; {}",
            input.place,
            takes(slots)
        ))
        .into());
    }
    let needed = slots
        .iter()
        .filter(|(_, shape)| shape.element_type() != ElementType::Token);
    let missing: Vec<_> = needed
        .filter(|(place, _)| !inputs.iter().any(|input| input.place == *place))
        .map(|(place, _)| format!("--input {place}"))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "expected an input for each parameter of the function {name:?}, found no {}; {}",
            missing.join(", "),
            takes(slots)
        ))
        .into()),
    }
}

fn takes(slots: &[(Place, &ArrayShape)]) -> String {
    let lines = slots
        .iter()
        .map(|(place, shape)| format!("\n  {place}: {shape}"));
    match slots.is_empty() {
        true => "it takes none".to_owned(),
        false => format!("it takes{}", lines.collect::<String>()),
    }
}

/// The arrays among a function's parameters.
fn slots(function: &Function) -> Vec<(Place, &ArrayShape)> {
    let mut slots = Vec::new();
    for (parameter, shape) in function.parameters.iter().enumerate() {
        let place = Place {
            parameter,
            index: Vec::new(),
        };
        collect(place, shape, &mut slots);
    }
    slots
}

fn collect<'a>(place: Place, shape: &'a Shape, slots: &mut Vec<(Place, &'a ArrayShape)>) {
    match shape {
        Shape::Array(shape) => slots.push((place, shape)),
        Shape::Tuple(tuple) => {
            for (i, shape) in tuple.elements().iter().enumerate() {
                let mut place = place.clone();
                place.index.push(i);
                collect(place, shape, slots);
            }
        }
    }
}

//! Reads a function's arguments from the files of `--input`.

use std::collections::HashSet;

use callbox::program::Function;
use callbox::{ArrayShape, ElementType, Literal, Shape, Status};

use callbox_core::text::shortened;

use super::arguments::{InputArgument, InputPlace};
use super::failure::{Failure, Outcome};

/// The most arrays that a message lists.
const LISTED: usize = 64;

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
            // A token has no bytes and needs no file.
            None => Literal::from_bytes((*shape).clone(), Vec::new())?,
        });
    }
    let mut arrays = arrays.into_iter();
    let arguments = function.parameters.iter();
    let arguments = arguments.map(|shape| assemble(shape, &mut arrays));
    Ok(arguments.collect::<callbox::Result<_>>()?)
}

/// Assembles the value of a shape from the next arrays.
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
    slots: &[(InputPlace, &ArrayShape)],
    inputs: &[InputArgument],
) -> Outcome<()> {
    let name = shortened(&function.name);
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
    let mut missing = needed
        .filter(|(place, _)| !inputs.iter().any(|input| input.place == *place))
        .map(|(place, _)| format!("--input {place}"));
    let listed: Vec<_> = missing.by_ref().take(LISTED).collect();
    if listed.is_empty() {
        return Ok(());
    }
    let more = missing.next().map_or("", |_| ", ...");
    Err(Status::invalid_argument(format!(
        "expected an input for each parameter of the function {name:?}, found no {}{more}; {}",
        listed.join(", "),
        takes(slots)
    ))
    .into())
}

fn takes(slots: &[(InputPlace, &ArrayShape)]) -> String {
    if slots.is_empty() {
        return "it takes none".to_owned();
    }
    let lines = slots.iter().take(LISTED);
    let lines = lines.map(|(place, shape)| format!("\n  {place}: {shape}"));
    let more = slots.len().saturating_sub(LISTED);
    let more = (more > 0).then(|| format!("\n  and {more} more"));
    format!(
        "it takes{}{}",
        lines.collect::<String>(),
        more.unwrap_or_default()
    )
}

/// The arrays among a function's parameters.
fn slots(function: &Function) -> Vec<(InputPlace, &ArrayShape)> {
    let mut slots = Vec::new();
    for (parameter, shape) in function.parameters.iter().enumerate() {
        let place = InputPlace {
            parameter,
            index: Vec::new(),
        };
        collect(place, shape, &mut slots);
    }
    slots
}

fn collect<'a>(place: InputPlace, shape: &'a Shape, slots: &mut Vec<(InputPlace, &'a ArrayShape)>) {
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

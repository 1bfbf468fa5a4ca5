"""Regenerates tests/cases/jax: programs that JAX lowers, and what JAX computes with them.

    pip install -r tests/jax/requirements.txt
    python tests/jax/generate.py [NAME...]

Each program gives two HLO texts, as JAX prints it before XLA's optimisation and after it, and a
case for each. Without names, all programs are written. Only the last bits of transcendental
functions and XLA:CPU's fusions depend on the machine.
"""

import os
import shutil
import sys
from pathlib import Path

# JAX reads both at its import: use the CPU only, and none of the user's flags.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = ""

import jax
import numpy as np
from jax import numpy as jnp

import cases
from programs import PROGRAMS, Program, custom_calls

OUTPUT = Path(__file__).resolve().parent.parent / "cases" / "jax"


def main(names):
    if unknown := set(names) - {program.name for program in PROGRAMS}:
        sys.exit(f"no such program: {', '.join(sorted(unknown))}")
    # The texts name source files; only the last components are the same on every machine.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    custom_calls.register_placeholders()
    if not names:
        shutil.rmtree(OUTPUT, ignore_errors=True)
    for program in PROGRAMS:
        if not names or program.name in names:
            with jax.enable_x64(program.x64):
                write(program)


def write(program: Program):
    """Writes a program's texts and cases."""
    folder = OUTPUT / program.subject
    folder.mkdir(parents=True, exist_ok=True)
    traced = jax.jit(program.function, keep_unused=True, **program.jit).trace(*program.operands)
    lowered = traced.lower(lowering_platforms=(program.platform,))
    check_operands(program, lowered)
    texts = {"": lowered.compiler_ir("hlo").as_hlo_text()}
    if program.refused:
        expect = {"status": refusal(program, lowered)}
    else:
        expect = {"status": program.status} if program.status else results(program)
        if program.optimized:
            texts[".optimized"] = lowered.compile().as_text()
    for suffix, text in texts.items():
        check_refusal(program, text)
        name = program.name + suffix
        (folder / f"{name}.hlo").write_text(text.rstrip() + "\n")
        (folder / f"{name}.json").write_text(cases.encode(case(program, name, suffix, expect)))


def check_operands(program, lowered):
    """Checks that JAX did not narrow 64-bit operands, which would differ from the case's."""
    for operand, argument in zip(leaves(program.operands), jax.tree.leaves(lowered.in_avals), strict=True):
        if operand.dtype != argument.dtype:
            raise ValueError(f"{program.name}: JAX takes {argument.dtype}, the operand is {operand.dtype}")


def check_refusal(program, text):
    """Checks that the text contains the word that the expected status must name."""
    named = (program.status or {}).get("contains", "")
    named = named if isinstance(named, str) else named[0]
    if not program.targets and named not in text:
        raise ValueError(f"{program.name}: the text has no {named}")


def refusal(program, lowered) -> dict:
    """The error with which XLA refuses to compile a program."""
    try:
        lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        code, _, message = str(error).partition(": ")
        return {"code": code, "contains": message.splitlines()[0]}
    raise ValueError(f"{program.name}: XLA compiles it")


def results(program: Program) -> dict:
    found = compute(program, program.operands)
    check_tolerance(program, found)
    return {"results": [cases.literal(leaf) for leaf in found], "ulps": program.ulps}


def compute(program, operands):
    """JAX's results on CPU, compiled as a whole."""
    with custom_calls.computing():
        # A new function, so that JAX does not reuse an earlier lowering.
        function = jax.jit(lambda *args: program.function(*args), keep_unused=True)
        return leaves(function(*operands))


def check_tolerance(program, found):
    """Raises unless the bound accepts reference results as well.

    One reference runs operations one at a time, without fusion or reordering; it alone decides
    where the bound is 0. The other is correctly rounded. A bound above 0 must exceed the distance
    to both by at least one ULP.
    """
    plain = one_at_a_time(program)
    exact = correctly_rounded(program) if np.any(program.ulps) else plain
    bounds = np.broadcast_to(program.ulps, len(found))
    for index, (leaf, bound) in enumerate(zip(found, bounds, strict=True)):
        others = (plain, exact) if bound else (plain,)
        with np.errstate(over="ignore"):  # Overflow in the narrower type gives infinity.
            apart = [cases.distance(leaf, other[index].astype(leaf.dtype)) for other in others]
        if max(apart) + 1 > max(bound, 1):
            raise ValueError(f"{program.name}: result {index} is {apart} ULPs from others, too many for {bound}")


def one_at_a_time(program):
    with custom_calls.computing(), jax.disable_jit():
        return leaves(program.function(*jax.tree.map(jnp.asarray, program.operands)))


def correctly_rounded(program):
    """The program's reference if it has one, otherwise the program in f64. The caller rounds."""
    if program.reference:
        return leaves(program.reference(*program.operands))
    with jax.enable_x64(True):
        return compute(program, jax.tree.map(widen, program.operands))


def widen(array):
    wide = {"float32": np.float64, "float16": np.float64, "bfloat16": np.float64, "complex64": np.complex128}
    return array.astype(wide.get(array.dtype.name, array.dtype))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def case(program, name, suffix, expect) -> dict:
    when = "after" if suffix else "before"
    origin = f"JAX {jax.__version__} on CPU, HLO text {when} optimisation"
    for text in (program.function.__doc__, program.note):
        origin += f". {' '.join(text.split()).rstrip('.')}" if text else ""
    if "results" in expect and np.any(expect["ulps"]):
        origin += ". The bound lets JAX's own values and correctly rounded ones pass"
    fields = {"origin": origin, "program": {"file": f"{name}.hlo"}}
    if program.targets:
        fields["targets"] = program.targets
    fields["operands"] = [cases.literal(leaf) for leaf in leaves(program.operands)]
    fields["expect"] = expect
    if when in program.unsupported:
        fields["unsupported"] = {"reason": program.unsupported[when]}
    if program.lost_on_xla and not suffix:
        fields["expected_failure"] = {"reason": program.lost_on_xla, "platforms": ["XLA"]}
    return fields


if __name__ == "__main__":
    main(sys.argv[1:])

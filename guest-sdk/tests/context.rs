//! The context: user data, the literal, scratch memory, the log and failures.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::native::Call;
use callbox_guest::{Context, Failure, LogLevel, Pred, ResultBuffer, Stage, StatusCode, target};

#[target]
fn echo_user_data(context: &Context, #[attr] name: &str, y: &mut ResultBuffer<u8, 1>) {
    if let Some(bytes) = context.user_data(name) {
        y.copy_from_slice(&bytes);
    }
}

#[test]
fn user_data_is_found_by_name() {
    let mut call = Call::new();
    call.user_data("greeting", b"hello")
        .user_data("empty", b"")
        .attribute("name", "greeting")
        .result::<u8>(&[5]);
    assert_eq!(call.run::<echo_user_data>(), Ok(()));
    assert_eq!(call.result_elements::<u8>(0), b"hello");

    #[target]
    fn look(context: &Context) {
        assert_eq!(context.user_data("empty").as_deref(), Some(&[][..]));
        assert_eq!(context.user_data("absent"), None);
    }
    assert_eq!(call.run::<look>(), Ok(()));
}

#[target]
fn read_literal(context: &Context, #[attr] count: i32) -> Result<(), Failure> {
    let literal = context.literal()?;
    assert_eq!(literal.len() as i32, count);
    if let [a, b, c] = &literal[..] {
        assert_eq!(
            (a.dimensions(), &*a.as_typed::<f32>()?),
            (&[2][..], &[1.0, 2.0][..])
        );
        assert_eq!(b.as_typed::<i64>()?[0], -7);
        assert_eq!(
            (c.dimensions(), &*c.as_typed::<Pred>()?),
            (&[0, 3][..], &[][..])
        );
    }
    Ok(())
}

#[test]
fn a_literal_has_leaves() {
    let mut call = Call::new();
    call.attribute("count", 3_i32)
        .literal(&[1.0_f32, 2.0], &[2])
        .literal(&[-7_i64], &[])
        .literal::<Pred>(&[], &[0, 3]);
    assert_eq!(call.run::<read_literal>(), Ok(()));
    let mut none = Call::new();
    assert_eq!(none.attribute("count", 0_i32).run::<read_literal>(), Ok(()));
}

#[test]
fn an_older_hosts_frame_has_no_literal() {
    let mut call = Call::new();
    call.attribute("count", 0_i32)
        .literal(&[1.0_f32, 2.0], &[2])
        .minor_version(0);
    assert_eq!(call.run::<read_literal>(), Ok(()));
    #[target]
    fn version(context: &Context) {
        assert_eq!(context.ffi_version(), (1, 0));
    }
    assert_eq!(call.run::<version>(), Ok(()));
}

#[target]
fn scratch(context: &Context, #[attr] fails: bool) -> Result<(), Failure> {
    let mut blocks = Vec::new();
    for alignment in [1, 2, 16, 64, 4096] {
        let block = context.scratch(100, alignment)?;
        assert_eq!(block.as_ptr().addr() % alignment, 0);
        assert!(block.iter().all(|byte| *byte == 0));
        block.fill(alignment as u8);
        blocks.push((alignment, block));
    }
    for (alignment, block) in blocks {
        assert!(block.iter().all(|byte| *byte == alignment as u8));
    }
    let numbers = context.scratch_elements::<f64>(3)?;
    numbers[2] = 1.0;
    assert_eq!(numbers, [0.0, 0.0, 1.0]);
    assert_eq!(context.scratch(0, 8)?, []);
    if fails {
        Err(Failure::internal("with blocks in hand"))
    } else {
        Ok(())
    }
}

#[test]
fn scratch_memory_lasts_as_long_as_the_call() {
    let mut call = Call::new();
    assert_eq!(call.attribute("fails", false).run::<scratch>(), Ok(()));
    let mut call = Call::new();
    assert_eq!(
        call.attribute("fails", true).run::<scratch>(),
        Err(Failure::internal("with blocks in hand"))
    );
}

#[target]
fn too_much(context: &Context, #[attr] size: u64, #[attr] alignment: u64) -> Result<(), Failure> {
    let (size, alignment) = (usize::try_from(size), usize::try_from(alignment));
    context
        .scratch(size.unwrap(), alignment.unwrap())
        .map(|_| ())
}

#[test]
fn scratch_memory_has_limits() {
    let run = |size: u64, alignment: u64| {
        let mut call = Call::new();
        call.attribute("size", size)
            .attribute("alignment", alignment);
        call.run::<too_much>()
    };
    for alignment in [0, 3, 24] {
        assert_eq!(
            run(8, alignment),
            Err(Failure::invalid_argument("Unsupported alignment"))
        );
    }
    let failure = run(u64::MAX, 1).unwrap_err();
    assert_eq!(failure.code(), StatusCode::ResourceExhausted);
    assert!(
        failure
            .message()
            .starts_with("Failed to allocate scratch memory: "),
        "{failure}"
    );
}

#[target]
fn contextual(context: &Context, #[attr] n: i32) -> Result<(), Failure> {
    assert_eq!(context.stage(), Stage::Execute);
    assert_eq!(context.opaque(), b"abc\0def");
    assert_eq!(context.ffi_version(), (1, 1));
    assert_eq!(context.attributes().get::<i32>("n")?, n);
    context.log(LogLevel::Info, "first");
    context.log(LogLevel::Error, "second");
    if n == 0 {
        context.set_failure(&Failure::data_loss("lost").recoverable());
    }
    if n == 1 {
        context.set_failure(&Failure::data_loss("lost"));
        context.set_success();
    }
    Ok(())
}

#[test]
fn the_context_logs_and_fails() {
    let mut call = Call::new();
    call.opaque(b"abc\0def").attribute("n", 2_i32);
    assert_eq!(call.run::<contextual>(), Ok(()));
    let logged = [
        (LogLevel::Info, "first".to_owned()),
        (LogLevel::Error, "second".to_owned()),
    ];
    assert_eq!(call.log(), logged);

    let mut call = Call::new();
    call.opaque(b"abc\0def").attribute("n", 0_i32);
    let failure = call.run::<contextual>().unwrap_err();
    assert_eq!(failure, Failure::data_loss("lost").recoverable());

    let mut call = Call::new();
    call.opaque(b"abc\0def").attribute("n", 1_i32);
    assert_eq!(call.run::<contextual>(), Ok(()));
}

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use callbox_core::call::{Alias, ApiVersion, FunctionReference, StaticInfo};
use callbox_core::values::{Attribute, Backtrace, Dictionary, Literal, Shape};

use super::*;

fn assert_violation(bytes: &[u8]) {
    let status = decode::<Reply>(bytes).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::Internal, Blame::Guest),
        "{bytes:?}"
    );
}

#[test]
fn a_status_comes_back_whole() {
    const LEFT: FuelLeft = FuelLeft {
        units: 9,
        has_lack: true,
    };
    let backtrace = Backtrace::new(vec!["f".to_owned(), "g".to_owned()], true);
    let sent = Status::new(StatusCode::Aborted, Blame::Guest, "boom")
        .with_recoverable(true)
        .with_backtrace(backtrace);
    let reply = Reply::Failed {
        status: sent.clone(),
        fuel: Some(LEFT),
    };
    match decode(&encode(&reply).unwrap()[LENGTH..]).unwrap() {
        Reply::Failed {
            status,
            fuel: Some(LEFT),
        } => assert_eq!(status, sent),
        other => panic!("{other:?}"),
    }
}

#[test]
fn malformed_replies_are_violations() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let with_huge = |start: &[u8]| [start, &huge].concat();
    for bytes in [
        // An empty message, and an unknown reply.
        vec![],
        vec![9],
        // A failure with the code OK, an unknown code, and an unknown blame.
        vec![1, 0, 0, 0, 0, 0, 0],
        vec![1, 17, 0, 0, 0, 0, 0],
        vec![1, 3, 7, 0, 0, 0, 0],
        // An unknown level, and text that is not UTF-8.
        vec![2, 5, 0],
        vec![2, 0, 1, 0xff],
        // Trailing bytes, and an option that is neither present nor absent.
        vec![0, 0, 0],
        vec![0, 2],
        // Lengths past the end of the message: of a text, a backtrace, operands and one operand.
        with_huge(&[2, 0]),
        with_huge(&[1, 3, 0, 0, 0, 1]),
        with_huge(&[3, 0]),
        with_huge(&[3, 0, 1]),
    ] {
        assert_violation(&bytes);
    }
}

#[test]
fn no_change_of_a_reply_panics() {
    let reply = Reply::Function(FunctionCall::new(
        1,
        vec![ByteBuf::from([1, 2, 3])],
        &Bounds::default(),
    ));
    let bytes = &encode(&reply).unwrap()[LENGTH..];
    for length in 0..bytes.len() {
        assert_violation(&bytes[..length]);
    }
    for at in 0..bytes.len() {
        for byte in 0..=u8::MAX {
            let mut changed = bytes.to_vec();
            changed[at] = byte;
            let _ = decode::<Reply>(&changed);
        }
    }
}

/// A call site in which no field is empty.
fn site(static_info: Option<StaticInfo>) -> CallSite {
    let shape: Shape = "(f32[2,3]{0,1}, (s32[], bf16[0]))".parse().unwrap();
    let array = Literal::array(&[2], &[1.5_f32, -0.0]).unwrap();
    let inner = Dictionary::from([("f".to_owned(), Attribute::Function("g".to_owned()))]);
    let attributes = Dictionary::from([
        ("a".to_owned(), Attribute::Array(array.clone())),
        ("d".to_owned(), Attribute::Dictionary(inner)),
        ("s".to_owned(), Attribute::String(b"\0\xff".to_vec())),
        ("x".to_owned(), Attribute::scalar(7_i64)),
    ]);
    let function = FunctionReference {
        name: "g".to_owned(),
        id: 3,
        parameters: vec![shape.clone()],
        result: shape.clone(),
    };
    CallSite {
        name: "%call.1".to_owned(),
        api_version: ApiVersion::JaxFfi,
        opaque: b"opaque".to_vec(),
        static_info,
        aliasing: vec![Alias {
            result_index: vec![0],
            operand: 1,
            operand_index: vec![],
        }],
        scratch: vec![1],
        literal: Some(Literal::tuple(vec![array]).unwrap()),
        functions: vec![Arc::new(function)],
        called_computations: vec![0],
        ..CallSite::new("t", vec![shape.clone()], shape).with_attributes(attributes)
    }
}

#[test]
fn a_call_site_comes_back_whole() {
    for static_info in [
        None,
        Some(StaticInfo::Value(vec![1, 2])),
        Some(StaticInfo::Reference {
            constructor: "c".to_owned(),
            destructor: "d".to_owned(),
            argument: vec![3],
        }),
    ] {
        let sent = [site(static_info)];
        let message = encode(&Request::prepare(&sent, true).unwrap()).unwrap();
        match decode(&message[LENGTH..]).unwrap() {
            Request::Prepare {
                sites,
                is_alone: true,
            } => assert_eq!(sites, sent),
            other => panic!("{other:?}"),
        }
        for length in 0..message.len() - LENGTH {
            assert!(decode::<Request>(&message[LENGTH..][..length]).is_err());
        }
    }
}

#[test]
fn attributes_nest_to_a_bounded_depth() {
    let nested = |depth: usize| {
        let mut attributes = Dictionary::new();
        for _ in 1..depth {
            let inner = Attribute::Dictionary(attributes);
            attributes = Dictionary::from([("d".to_owned(), inner)]);
        }
        CallSite::new("t", vec![], Shape::tuple(vec![]).unwrap()).with_attributes(attributes)
    };
    let deepest = Request::prepare(&[nested(64)], false).unwrap();
    assert!(decode::<Request>(&encode(&deepest).unwrap()[LENGTH..]).is_ok());
    let status = Request::prepare(&[nested(65)], false).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
}

#[test]
fn user_data_and_deadlines_come_back() {
    let data = UserData::from([("seed".to_owned(), vec![0, 255])]);
    let options = CallOptions {
        user_data: Some(Arc::new(data.clone())),
        fuel: Some(Fuel::new(5)),
        ..CallOptions::default()
    };
    let after = Deadline::After(Duration::from_millis(1500));
    let at = Deadline::At(after.instant());
    for deadline in [after, after.begin(), at] {
        let beginning = Beginning::new(&options, Some(deadline), Some(2));
        let sent = Request::Alone { beginning, site: 4 };
        match decode(&encode(&sent).unwrap()[LENGTH..]).unwrap() {
            Request::Alone { beginning, site: 4 } => {
                let options = beginning.options();
                assert_eq!(options.user_data.as_deref(), Some(&data));
                assert_eq!(options.fuel.map(|fuel| fuel.left()), Some(5));
                let found = options.deadline.unwrap();
                assert_eq!(found.whole(), deadline.whole());
                assert_eq!(found.end().is_some(), deadline.end().is_some());
                // The other process must not have time left when this one has none.
                assert!(found.end() <= deadline.end());
                let longest = deadline.end().map(|end| end - Duration::from_secs(1));
                assert!(found.end() >= longest);
                assert_eq!(beginning.depth, Some(2));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn long_replies_have_few_elements() {
    let call = |leaves: usize| {
        let operands = vec![ByteBuf::new(); leaves];
        let reply = Reply::Function(FunctionCall::new(7, operands, &Bounds::default()));
        encode(&reply).unwrap().split_off(LENGTH)
    };
    let most_text = 1000;
    assert!(matches!(
        decode_reply(&call(MOST_LEAVES), most_text),
        Ok(Reply::Function(call)) if call.operands.len() == MOST_LEAVES
    ));
    let too_many = decode_reply(&call(MOST_LEAVES + 1), most_text).unwrap_err();
    // Each frame of this backtrace is empty.
    let backtrace = Backtrace::new(vec![String::new(); 2000], false);
    let failed = Reply::Failed {
        status: Status::new(StatusCode::Aborted, Blame::Guest, "").with_backtrace(backtrace),
        fuel: None,
    };
    let too_long = decode_reply(&encode(&failed).unwrap()[LENGTH..], most_text).unwrap_err();
    for (status, message) in [
        (too_many, "malformed message"),
        (too_long, "expected a reply of at most 1000 bytes"),
    ] {
        let found = (status.code(), status.blame());
        assert_eq!(found, (StatusCode::Internal, Blame::Guest));
        assert!(status.message().contains(message), "{status}");
    }
}

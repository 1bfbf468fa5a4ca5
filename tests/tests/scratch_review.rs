#![allow(warnings, clippy::all)]
use callbox::call::*;
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::Registry;
use callbox::wasm::{Config, Engine, Isolation, Limits, Module};
use callbox::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn load(e: &Engine, t: &str) -> Arc<Module> {
    e.load(&wat::parse_str(t).unwrap()).unwrap()
}
fn s(t: &str) -> Shape {
    t.parse().unwrap()
}

fn older_stage(stage: &str) {
    let e = Engine::new().unwrap();
    let m = load(
        &e,
        &format!(
            r#"(module (memory (export "memory") 1)
      (func (export "f.{stage}") (param i32) (result i32) (i32.const 0))
      (func (export "f") (param i32 i32)))"#
        ),
    );
    let site = CallSite {
        api_version: ApiVersion::Original,
        ..CallSite::new("f", vec![s("s32[]")], s("s32[]"))
    };
    let r = m.prepare_call(site);
    println!("prepare: {:?}", r.as_ref().err());
    let p = r.unwrap();
    let mut out = [0u8; 4];
    println!("call: {:?}", p.call(&[&[0; 4]], &mut [&mut out]));
}
#[test]
fn older_instantiate() {
    older_stage("instantiate")
}
#[test]
fn older_prepare() {
    older_stage("prepare")
}

/// raw: calls function 0 with frame operands and results as they are; returns its code
const PASS: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $cf (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "pass") (param $f i32) (result i32)
    (call $cf (i32.const 0) (i32.load offset=8 (local.get $f)) (i32.load offset=12 (local.get $f)) (i32.load offset=16 (local.get $f)) (i32.load offset=20 (local.get $f))))
  (func (export "loop") (param $f i32) (result i32)
    (loop $on
      (drop (call $cf (i32.const 0) (i32.load offset=8 (local.get $f)) (i32.load offset=12 (local.get $f)) (i32.load offset=16 (local.get $f)) (i32.load offset=20 (local.get $f))))
      (br $on)) (unreachable))
  (func (export "noop") (param i32) (result i32) (i32.const 0))
  (func (export "pp") (param $f i32) (result i32)
    (call $cf (i32.const 0) (i32.load offset=8 (local.get $f)) (i32.load offset=12 (local.get $f)) (i32.load offset=16 (local.get $f)) (i32.load offset=20 (local.get $f))))
  (func (export "pp.prepare") (param $f i32) (result i32)
    (call $cf (i32.const 0) (i32.load offset=8 (local.get $f)) (i32.load offset=12 (local.get $f)) (i32.load offset=16 (local.get $f)) (i32.load offset=20 (local.get $f))))
)"#;

fn exe(e: &Engine, wat: &str, targets: &[&str], text: &str) -> Result<Executable> {
    let m = load(e, wat);
    let mut r = Registry::new();
    for t in targets {
        r.register(t, m.clone() as Arc<dyn TargetModule>, t)
            .unwrap();
    }
    Executable::compile(&Program::from_hlo_text(text)?, &r, Platform::Host)
}

#[test]
fn layouts_ignored() {
    let e = Engine::new().unwrap();
    let x = exe(&e, PASS, &["pass"], "HloModule m\n\ng {\n  a = f32[2,3] parameter(0)\n  ROOT r = f32[2,3] negate(a)\n}\n\nENTRY main {\n  a = f32[2,3]{1,0} parameter(0)\n  ROOT y = f32[2,3]{1,0} custom-call(a), custom_call_target=\"pass\", api_version=API_VERSION_TYPED_FFI, operand_layout_constraints={f32[2,3]{0,1}}, backend_config={func = @g}\n}\n").unwrap();
    let l = Literal::array(&[2, 3], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
    println!(
        "{:?}",
        x.execute(0, &[l], &Default::default())
            .unwrap()
            .to_vec::<f32>()
    );
}

#[test]
fn prepare_callback() {
    let e = Engine::new().unwrap();
    let t = |g: &str| {
        format!(
            "HloModule m\n\ng {{\n  a = f32[] parameter(0)\n  ROOT r = f32[] {g}\n}}\n\nENTRY main {{\n  a = f32[] parameter(0)\n  ROOT y = f32[] custom-call(a), custom_call_target=\"pp\", api_version=API_VERSION_TYPED_FFI, backend_config={{func = @g}}\n}}\n"
        )
    };
    for g in [
        "negate(a)",
        "custom-call(a), custom_call_target=\"noop\", api_version=API_VERSION_TYPED_FFI",
    ] {
        let x = exe(&e, PASS, &["pp", "noop"], &t(g)).unwrap();
        println!(
            "{g}: {:?}",
            x.execute(0, &[Literal::scalar(1f32)], &Default::default())
        );
    }
}

#[test]
fn limit_deadline_in_callback() {
    let e = Engine::with_config(Config {
        limits: Limits {
            deadline: Some(Duration::from_millis(100)),
            ..Limits::default()
        },
        ..Config::default()
    })
    .unwrap();
    // the function: loop of 300k iterations
    let t = "HloModule m\n\nc {\n  i = s32[] parameter(0)\n  n = s32[] constant(300000)\n  ROOT r = pred[] compare(i, n), direction=LT\n}\n\nb {\n  i = s32[] parameter(0)\n  n = s32[] constant(1)\n  ROOT r = s32[] add(i, n)\n}\n\ng {\n  a = s32[] parameter(0)\n  ROOT r = s32[] while(a), condition=c, body=b\n}\n\nENTRY main {\n  a = s32[] parameter(0)\n  ROOT y = s32[] custom-call(a), custom_call_target=\"pass\", api_version=API_VERSION_TYPED_FFI, backend_config={func = @g}\n}\n";
    let x = exe(&e, PASS, &["pass"], t).unwrap();
    let b = Instant::now();
    let r = x.execute(0, &[Literal::scalar(0i32)], &Default::default());
    println!("{:?} after {:?}", r, b.elapsed());
}

#[test]
fn user_data_kept() {
    let e = Engine::new().unwrap();
    let m = load(&e, PASS);
    let p = m
        .prepare_call(CallSite::new("noop", vec![], s("()")))
        .unwrap();
    let d: Arc<UserData> = Arc::new([("k".to_owned(), vec![0u8; 1000])].into());
    let w = Arc::downgrade(&d);
    let tok = CancelToken::new();
    p.call_with(
        &CallOptions {
            user_data: Some(d),
            cancel: Some(tok),
            ..Default::default()
        },
        &[],
        &mut [],
    )
    .unwrap();
    println!(
        "user data still alive after the call: {}",
        w.upgrade().is_some()
    );
}

#[test]
fn deep_stack() {
    let e = Engine::new().unwrap();
    for kind in ["call", "conditional", "while", "reduce"] {
        let mut t = String::from("HloModule m\n\n");
        t += "cc {\n  i = f32[] parameter(0)\n  z = f32[] constant(0)\n  ROOT r = pred[] compare(i, z), direction=EQ\n}\n\n";
        match kind {
            "reduce" => {
                t += "g0 {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n\n"
            }
            "while" => t += "g0 {\n  a = f32[] parameter(0)\n  ROOT r = f32[] constant(1)\n}\n\n",
            _ => {
                t += "g0 {\n  a = f32[] parameter(0)\n  ROOT r = f32[] custom-call(a), custom_call_target=\"noop\", api_version=API_VERSION_TYPED_FFI\n}\n\n"
            }
        };
        let n = 120;
        for i in 1..=n {
            let body = match kind {
                "call" => format!("  ROOT r = f32[] call(a), to_apply=g{}", i - 1),
                "conditional" => format!(
                    "  t = pred[] constant(true)\n  ROOT r = f32[] conditional(t, a, a), true_computation=g{}, false_computation=g{}",
                    i - 1,
                    i - 1
                ),
                "while" => format!("  ROOT r = f32[] while(a), condition=cc, body=g{}", i - 1),
                _ => format!(
                    "  b = f32[] parameter(1)\n  v = f32[1] reshape(a)\n  ROOT r = f32[] reduce(v, b), dimensions={{0}}, to_apply=g{}",
                    i - 1
                ),
            };
            t += &format!("g{i} {{\n  a = f32[] parameter(0)\n{body}\n}}\n\n");
        }
        let last = match kind {
            "reduce" => {
                t += &format!(
                    "h {{\n  a = f32[] parameter(0)\n  v = f32[1] reshape(a)\n  ROOT r = f32[] reduce(v, a), dimensions={{0}}, to_apply=g{n}\n}}\n\n"
                );
                "h".to_owned()
            }
            _ => format!("g{n}"),
        };
        t += &format!(
            "ENTRY main {{\n  a = f32[] parameter(0)\n  ROOT y = f32[] custom-call(a), custom_call_target=\"pass\", api_version=API_VERSION_TYPED_FFI, backend_config={{func = @{last}}}\n}}\n"
        );
        let x = match exe(&e, PASS, &["pass", "noop"], &t) {
            Ok(x) => x,
            Err(err) => {
                println!("{kind}: {err:?}");
                continue;
            }
        };
        let (x, kind2) = (x, kind.to_owned());
        // A thread whose stack leaves just over what run() asks for.
        for kib in [1700usize, 1800, 2048, 2600, 3000] {
            let x = &x;
            let k = &kind2;
            std::thread::scope(|sc| {
                std::thread::Builder::new()
                    .stack_size(kib << 10)
                    .spawn_scoped(sc, move || {
                        let r = x.execute(0, &[Literal::scalar(0f32)], &Default::default());
                        eprintln!(
                            "{k} {kib}: {:?}",
                            r.map(|_| ()).map_err(|e| e
                                .message()
                                .chars()
                                .take(200)
                                .collect::<String>())
                        );
                    })
                    .unwrap();
            });
        }
    }
}

#[test]
fn narrow_garbage() {
    // guest writes 0xFF to each byte
    let w = r#"(module (memory (export "memory") 1)
      (func (export "ff") (param $f i32) (result i32)
        (memory.fill (i32.load (i32.load offset=16 (local.get $f))) (i32.const 255) (i32.load offset=4 (i32.load offset=16 (local.get $f)))) (i32.const 0)))"#;
    let e = Engine::new().unwrap();
    for ty in [
        "s1",
        "u1",
        "s2",
        "u2",
        "s4",
        "u4",
        "f4e2m1fn",
        "f8e8m0fnu",
        "pred",
    ] {
        for op in ["convert", "neg", "cmp", "bitcast", "cond"] {
            let line = match op {
                "convert" => format!("ROOT r = f32[4] convert(y)"),
                "neg" => format!("ROOT r = {ty}[4] add(y, y)"),
                "cmp" => "ROOT r = pred[4] compare(y, y), direction=LT".to_owned(),
                "bitcast" => {
                    format!("z = {ty}[2,2] reshape(y)\n  ROOT r = {ty}[2,2] maximum(z, z)")
                }
                _ => format!("ROOT r = s32[4] convert(y)"),
            };
            let t = format!(
                "HloModule m\n\nENTRY main {{\n  y = {ty}[4] custom-call(), custom_call_target=\"ff\", api_version=API_VERSION_TYPED_FFI\n  {line}\n}}\n"
            );
            match exe(&e, w, &["ff"], &t) {
                Err(err) => println!("{ty} {op}: {}", err.message()),
                Ok(x) => {
                    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        x.execute(0, &[], &Default::default())
                    }));
                    if r.is_err() {
                        println!("PANIC {ty} {op}");
                    } else if ty == "pred" || ty == "u4" {
                        println!("{ty} {op} {:?}", r.unwrap());
                    }
                }
            }
        }
    }
}

#[test]
fn static_info_elsewhere() {
    let e = Engine::new().unwrap();
    let m = load(
        &e,
        r#"(module (memory (export "memory") 1) (func (export "f") (param $o i32) (param i32 i32 i32 i32)
       (i32.store (local.get $o) (local.get 3))))"#,
    );
    let site = CallSite {
        api_version: ApiVersion::StatusReturningUnified,
        opaque: b"opaque!".to_vec(),
        static_info: Some(StaticInfo::Value(vec![1])),
        ..CallSite::new("f", vec![], s("s32[]"))
    };
    let p = m.prepare_call(site).unwrap();
    let mut out = [0u8; 4];
    p.call(&[], &mut [&mut out]).unwrap();
    println!("opaque_len seen {}", u32::from_le_bytes(out));
}

#[test]
fn instantiate_callback() {
    let w = r#"(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $cf (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "f.instantiate") (param $f i32) (result i32)
    (i32.store (i32.const 8) (i32.add (i32.const 1) (call $cf (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))) (i32.const 0))
  (func (export "f") (param $f i32) (result i32) (i32.store (i32.load (i32.load offset=16 (local.get $f))) (i32.load (i32.const 8))) (i32.const 0)))"#;
    let e = Engine::new().unwrap();
    let t = "HloModule m\n\ng {\n  ROOT r = () tuple()\n}\n\nENTRY main {\n  ROOT y = s32[] custom-call(), custom_call_target=\"f\", api_version=API_VERSION_TYPED_FFI, backend_config={func = @g}\n}\n";
    let x = exe(&e, w, &["f"], t).unwrap();
    println!(
        "first instance: code+1 = {:?}",
        x.execute(0, &[], &Default::default())
            .unwrap()
            .to_vec::<i32>()
    );
    std::thread::scope(|sc| {
        for _ in 0..8 {
            sc.spawn(|| {
                for _ in 0..2000 {
                    let v = x
                        .execute(0, &[], &Default::default())
                        .unwrap()
                        .to_vec::<i32>()
                        .unwrap()[0];
                    if v != 6 {
                        println!("other instance: {v}");
                        break;
                    }
                }
            });
        }
    });
}

#[test]
fn evict_stall() {
    let e = Engine::with_config(Config {
        limits: Limits {
            instances: 4,
            ..Limits::default()
        },
        ..Config::default()
    })
    .unwrap();
    let bad = r#"(module (memory (export "memory") 1)
      (func (export "f.instantiate") (param i32) (result i32) (i32.const 0))
      (func (export "f.instantiate.drop") (param i32) (loop $on (br $on)))
      (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let m = load(&e, bad);
    let held: Vec<_> = (0..4)
        .map(|_| m.prepare_call(CallSite::new("f", vec![], s("()"))).unwrap())
        .collect();
    let v = load(&e, PASS)
        .prepare_call(CallSite::new("noop", vec![], s("()")))
        .unwrap();
    let b = Instant::now();
    let r = v.call_with(
        &CallOptions {
            deadline: Some(Deadline::After(Duration::from_millis(20))),
            ..Default::default()
        },
        &[],
        &mut [],
    );
    println!("victim: {r:?} after {:?}", b.elapsed());
}

#[test]
fn jax_layout() {
    use callbox::jax_ffi::*;
    let e = Engine::new().unwrap();
    let m = load(
        &e,
        r#"(module (memory (export "memory") 1) (func (export "jax-ffi-api") (result i32) (i32.const 0))
      (func (export "id") (param i32 i32 i32) (param $o i32) (param $i i32)
        (memory.copy (i32.load (local.get $o)) (i32.load (local.get $i)) (i32.const 24)))
      (@custom "callbox.targets" "{\"name\":\"id\",\"api_version\":\"API_VERSION_JAX_FFI\",\"traits\":[\"pure\"]}"))"#,
    );
    let mut c = FfiCalls::new().call("id").unwrap();
    c.register_function(Function::new(m, "id").unwrap(), "cpu")
        .unwrap();
    let l = Literal::from_leaves(
        s("f32[2,3]{0,1}"),
        vec![
            Literal::array(&[2, 3], &[1f32, 2., 3., 4., 5., 6.])
                .unwrap()
                .bytes()
                .unwrap()
                .to_vec(),
        ],
    )
    .unwrap();
    println!(
        "{:?}",
        c.invoke(&[l], None, &s("f32[2,3]"))
            .unwrap()
            .to_vec::<f32>()
    );
    let l = Literal::from_leaves(s("f32[0,1000000000000]"), vec![vec![]]).unwrap();
    println!(
        "empty batch: {:?}",
        c.vmap(&[Some(0)])
            .unwrap()
            .invoke(&[l], None, &s("f32[6]"), &Default::default())
    );
    let l = Literal::from_leaves(s("f32[4,6]"), vec![vec![0; 96]]).unwrap();
    println!(
        "bad result token: {:?}",
        c.vmap(&[Some(0)])
            .unwrap()
            .invoke(&[l.clone()], None, &s("token[]"), &Default::default())
            .map_err(|e| e.message().to_owned())
    );
    println!(
        "huge result: {:?}",
        c.vmap(&[Some(0)])
            .unwrap()
            .invoke(&[l], None, &s("f32[1000000000000]"), &Default::default())
            .map_err(|e| e.message().to_owned())
    );
}

//! Schedules of a small hybrid model: what is fused, where phases and regions are cut, and that the verifier sees damage.

use lithos_compiler::{
    BufferRows, Fusion, LinearInput, MergeIn, Options, PassKind, Place, Region, Schedule,
    TaskGroup, TaskKind,
};
use lithos_format::{Codes, Encoding};
use lithos_graph::{
    Graph, GraphBuilder, Limits, Part, Rotary, RotaryScaling, RowMap, StateKind, ValueId,
};

const HIDDEN: usize = 32;

fn matrix(b: &mut GraphBuilder, name: String, rows: usize, columns: usize) -> ValueId {
    let encoding = Encoding { codes: Codes::F32, zero_point: 0, blocks: None };
    b.matrix(name, RowMap::All, rows, columns, encoding)
}

fn feed_forward(b: &mut GraphBuilder, layer: usize, h: ValueId) -> ValueId {
    b.scope(Some(layer), Part::FeedForward);
    let norm = b.array(format!("ff_norm.{layer}"), &[HIDDEN]);
    let x = b.rms_norm("norm", h, norm, 1e-6, 0.0);
    let gate = matrix(b, format!("gate.{layer}"), 64, HIDDEN);
    let gate = b.linear("gate", x, gate);
    let up = matrix(b, format!("up.{layer}"), 64, HIDDEN);
    let up = b.linear("up", x, up);
    let activated = b.silu_multiply("activated", gate, up);
    let down = matrix(b, format!("down.{layer}"), HIDDEN, 64);
    let y = b.linear("down", activated, down);
    b.add("residual", h, y)
}

fn delta_mixer(b: &mut GraphBuilder, layer: usize, h: ValueId) -> ValueId {
    b.scope(Some(layer), Part::Mixer);
    let norm = b.array(format!("norm.{layer}"), &[HIDDEN]);
    let x = b.rms_norm("norm", h, norm, 1e-6, 1.0);
    let project = |b: &mut GraphBuilder, name: &str, rows| {
        let matrix = matrix(b, format!("{name}.{layer}"), rows, HIDDEN);
        b.linear(name, x, matrix)
    };
    let u = project(b, "qkv", 64);
    let z = project(b, "z", 32);
    let beta = project(b, "b", 2);
    let alpha = project(b, "a", 2);
    let taps = b.array(format!("taps.{layer}"), &[64, 4]);
    let history = StateKind::ConvolutionHistory { channels: 64, width: 4 };
    let history = b.state("history", history);
    let qkv = b.convolution("convolved", u, taps, history, 4);
    let a_log = b.array(format!("a_log.{layer}"), &[2]);
    let dt_bias = b.array(format!("dt_bias.{layer}"), &[2]);
    let state = b.state("delta", StateKind::DeltaRule { heads: 2, key_dim: 16, value_dim: 16 });
    let o = b.gated_delta("core", [qkv, alpha, beta, a_log, dt_bias], state, 1);
    let norm = b.array(format!("o_norm.{layer}"), &[16]);
    let o = b.gated_norm("gated", o, z, norm, 1e-6);
    let output = matrix(b, format!("out.{layer}"), HIDDEN, 32);
    let y = b.linear("output", o, output);
    b.add("residual", h, y)
}

fn attention_mixer(b: &mut GraphBuilder, layer: usize, h: ValueId) -> ValueId {
    b.scope(Some(layer), Part::Mixer);
    let norm = b.array(format!("norm.{layer}"), &[HIDDEN]);
    let x = b.rms_norm("norm", h, norm, 1e-6, 1.0);
    let project = |b: &mut GraphBuilder, name: &str, rows| {
        let matrix = matrix(b, format!("{name}.{layer}"), rows, HIDDEN);
        b.linear(name, x, matrix)
    };
    let (q, gate) = (project(b, "q", 32), project(b, "gate_o", 32));
    let (k, v) = (project(b, "k", 16), project(b, "v", 16));
    let head_norm = b.array(format!("q_norm.{layer}"), &[16]);
    let q = b.rms_norm("q_norm", q, head_norm, 1e-6, 1.0);
    let k = b.rms_norm("k_norm", k, head_norm, 1e-6, 1.0);
    let rotary = Rotary { dim: 8, theta: 1e4, scaling: RotaryScaling::None };
    let q = b.rotary("q_rotary", q, 16, &rotary);
    let k = b.rotary("k_rotary", k, 16, &rotary);
    let state = b.state("key_value", StateKind::KeyValue { heads: 1, head_dim: 16 });
    b.append_key_value(k, v, state);
    let o = b.attention("attention", q, state, 2, 0.25);
    let o = b.sigmoid_multiply("gated", o, gate);
    let output = matrix(b, format!("out.{layer}"), HIDDEN, 32);
    let y = b.linear("output", o, output);
    b.add("residual", h, y)
}

fn hybrid() -> Graph {
    let mut builder = GraphBuilder::new();
    let b = &mut builder;
    let table = matrix(b, "table".into(), 48, HIDDEN);
    let h = b.embedding(table);
    let h = delta_mixer(b, 0, h);
    let h = feed_forward(b, 0, h);
    let h = attention_mixer(b, 1, h);
    let h = feed_forward(b, 1, h);
    b.scope(None, Part::Head);
    let norm = b.array("norm", &[HIDDEN]);
    let x = b.rms_norm("norm", h, norm, 1e-6, 1.0);
    let logits = b.linear("logits", x, table);
    let limits = Limits { vocabulary: 48, context: 128, layers: 2 };
    builder.finish("hybrid", logits, limits).expect("a valid graph")
}

fn mixture() -> Graph {
    let mut builder = GraphBuilder::new();
    let b = &mut builder;
    let table = matrix(b, "table".into(), 48, HIDDEN);
    let h = b.embedding(table);
    b.scope(Some(0), Part::FeedForward);
    let norm = b.array("ff_norm", &[HIDDEN]);
    let x = b.rms_norm("norm", h, norm, 1e-6, 0.0);
    let mut project = |name: &str, x, rows, columns| {
        let matrix = matrix(b, name.into(), rows, columns);
        b.linear(name, x, matrix)
    };
    let (logits, gate) = (project("router", x, 8, HIDDEN), project("shared_gate", x, 1, HIDDEN));
    let (shared, up) = (project("gate", x, 64, HIDDEN), project("up", x, 64, HIDDEN));
    let activated = b.silu_multiply("activated", shared, up);
    let routes = b.route("routes", logits, 2);
    let down = matrix(b, "down".into(), HIDDEN, 64);
    let shared = b.linear("shared", activated, down);
    let encoding = Encoding { codes: Codes::F32, zero_point: 0, blocks: None };
    let matrices = [("gates", 16, HIDDEN), ("ups", 16, HIDDEN), ("downs", HIDDEN, 16)].map(
        |(name, rows, columns)| b.experts_matrices(name, RowMap::All, [8, rows, columns], encoding),
    );
    let experts = b.experts("experts", x, routes, matrices);
    let combined = b.combine("combined", experts, routes, shared, gate);
    let h = b.add("residual", h, combined);
    b.scope(None, Part::Head);
    let logits = b.linear("logits", h, table);
    let limits = Limits { vocabulary: 48, context: 128, layers: 1 };
    builder.finish("mixture", logits, limits).expect("a valid graph")
}

fn compile(pass: PassKind, fusion: Fusion) -> Schedule {
    compile_with(pass, fusion, MergeIn::Phase)
}

fn compile_with(pass: PassKind, fusion: Fusion, merge_in: MergeIn) -> Schedule {
    compile_graph(&hybrid(), pass, fusion, merge_in)
}

fn compile_graph(graph: &Graph, pass: PassKind, fusion: Fusion, merge_in: MergeIn) -> Schedule {
    let options = Options { pass, fusion, attention_ranges: 2, partial_header: 2, merge_in };
    Schedule::compile(graph, options).expect("compiles")
}

fn names(groups: &[TaskGroup]) -> Vec<&'static str> {
    groups.iter().map(|group| group.kind.name()).collect()
}

#[test]
fn decode_takes_norms_and_residuals_in() {
    let schedule = compile(PassKind::Decode, Fusion::Step);
    let phases: Vec<Vec<&str>> =
        schedule.phases.iter().map(|phase| names(&schedule.groups[phase.clone()])).collect();
    let linear = "linear";
    assert_eq!(
        phases,
        [
            vec!["gather"],
            vec![linear, linear, linear, linear],
            vec!["convolve"],
            vec!["gated_delta"],
            vec!["gated_norm"],
            vec![linear],
            vec!["gate_up"],
            vec![linear],
            vec![linear, linear, linear, linear],
            vec!["attend_range"],
            vec!["merge_ranges"],
            vec![linear],
            vec!["gate_up"],
            vec![linear],
            vec![linear],
        ]
    );
    assert_eq!(schedule.buffer(schedule.logits).rows, BufferRows::Logit);
    assert_eq!(schedule.head, schedule.phases.len() - 1);
}

#[test]
fn readers_merge_partial_results() {
    let own_phase = compile(PassKind::Decode, Fusion::Step);
    let schedule = compile_with(PassKind::Decode, Fusion::Step, MergeIn::Readers);
    assert_eq!(schedule.phases.len() + 1, own_phase.phases.len());
    assert!(!names(&schedule.groups).contains(&"merge_ranges"));
    let merged = schedule.groups.iter().find_map(|group| match group.kind {
        TaskKind::Linear {
            input: LinearInput::Merged { partials, gate: Some(gate), .. }, ..
        } => Some((group, [partials, gate])),
        _ => None,
    });
    let (group, read) = merged.expect("the output projection merges and gates");
    for buffer in read {
        assert!(group.reads.iter().any(|access| access.place == Place::Buffer(buffer)));
    }
    // Many rows attend in blocks, which leave nothing to merge.
    compile_with(PassKind::Prefill { chunk: 64 }, Fusion::Step, MergeIn::Readers);
}

#[test]
fn prefill_prepares_operands_once() {
    let schedule = compile(PassKind::Prefill { chunk: 64 }, Fusion::Step);
    let prepared = names(&schedule.groups).iter().filter(|name| **name == "prepare").count();
    // Per layer: mixer input, mixer output, feed-forward input, activation. The head reads few rows.
    assert_eq!((prepared, schedule.prepared.len()), (8, 8));
    assert_eq!(schedule.prepared[0].readers.len(), 4);
    assert!(names(&schedule.groups).contains(&"attend_block"));
}

#[test]
fn a_mixture_shares_phases_with_its_shared_expert() {
    let graph = mixture();
    for pass in [PassKind::Decode, PassKind::Prefill { chunk: 64 }] {
        let schedule = compile_graph(&graph, pass, Fusion::Layer, MergeIn::Phase);
        let phases: Vec<Vec<&str>> = schedule
            .phases
            .iter()
            .map(|phase| names(&schedule.groups[phase.clone()]))
            .filter(|names| *names != ["prepare"])
            .collect();
        let prepared = if pass == PassKind::Decode {
            vec![vec!["route", "linear"]]
        } else {
            vec![vec!["route", "prepare"], vec!["linear", "expert_gate_up"]]
        };
        let wanted = [
            vec![vec!["gather"], vec!["linear", "linear", "gate_up"]],
            prepared,
            if pass == PassKind::Decode { vec![vec!["expert_gate_up"]] } else { vec![] },
            vec![vec!["expert_down"], vec!["combine"], vec!["linear"]],
        ]
        .concat();
        assert_eq!(phases, wanted);
        // One layer, with everything in between, is one launch.
        assert_eq!(schedule.regions.len(), 3);
        // No two of these phases can be one: each join is one that effects call for.
        for phase in 1..schedule.phases.len() - 1 {
            let mut damaged = schedule.clone();
            let next = damaged.phases.remove(phase + 1);
            damaged.phases[phase].end = next.end;
            damaged.regions = vec![Region { phases: 0..damaged.phases.len() }];
            let error = damaged.verify(&graph).expect_err("a join is missing");
            assert!(error.problem.contains("conflict"), "{error}");
        }
        // A row reads two of eight experts, five rows all of them at most.
        let down = schedule.groups.iter().find(|group| group.kind.name() == "expert_down");
        let down = &down.expect("there is one").kind;
        assert_eq!((down.part_read(&graph, 1), down.part_read(&graph, 5)), ((2, 8), (8, 8)));
    }
}

#[test]
fn fusion_levels_cut_the_same_phases() {
    let regions = |fusion| compile(PassKind::Decode, fusion).regions.len();
    assert_eq!(regions(Fusion::Step), 1);
    // The gather, two layers, the head.
    assert_eq!(regions(Fusion::Layer), 4);
    // The gather, two mixers, two phases of each feed-forward network, the head.
    assert_eq!(regions(Fusion::Mixer), 8);
    assert_eq!(regions(Fusion::None), 15);
    let (none, step) =
        (compile(PassKind::Decode, Fusion::None), compile(PassKind::Decode, Fusion::Step));
    assert_eq!(names(&none.groups), names(&step.groups));
    assert_eq!(none.arena, step.arena);
}

#[test]
fn buffers_share_memory_over_time() {
    let schedule = compile(PassKind::Decode, Fusion::Step);
    let rows = lithos_compiler::MAX_DECODE_ROWS;
    let all: usize = schedule.buffers.iter().map(|buffer| buffer.width * rows * 4).sum();
    assert!(schedule.arena * 2 < all, "{} of {all}", schedule.arena);
    assert!(schedule.buffers.iter().all(|buffer| buffer.offset % 64 == 0));
}

#[test]
fn the_residual_is_one_place() {
    let schedule = compile(PassKind::Decode, Fusion::Step);
    let residuals: Vec<usize> = schedule
        .groups
        .iter()
        .filter_map(|group| match group.kind {
            TaskKind::Linear { output, add: true, .. } => Some(schedule.buffer(output).offset),
            _ => None,
        })
        .collect();
    assert_eq!(residuals.len(), 4);
    assert!(residuals.iter().all(|offset| *offset == residuals[0]));
}

/// Each damage is one that a fault of the compiler could cause; the verifier must see all of them.
#[test]
fn damage_is_seen() {
    let graph = hybrid();
    let damaged = |damage: fn(&mut Schedule)| {
        let mut schedule = compile(PassKind::Decode, Fusion::Layer);
        schedule.verify(&graph).expect("sound before");
        damage(&mut schedule);
        schedule.verify(&graph)
    };
    // A join left out: two phases become one.
    let joined = damaged(|schedule| {
        let next = schedule.phases.remove(2);
        schedule.phases[1].end = next.end;
        schedule.regions = vec![Region { phases: 0..schedule.phases.len() }];
    });
    assert!(joined.expect_err("seen").problem.contains("conflict"));
    // Two groups swapped.
    assert!(damaged(|schedule| schedule.groups.swap(0, 5)).is_err());
    // A live buffer moved onto another.
    let moved = damaged(|schedule| {
        for buffer in &mut schedule.buffers {
            buffer.offset = 0;
        }
    });
    assert!(moved.expect_err("seen").problem.contains("share memory"));
    // An arena too small.
    assert!(damaged(|schedule| schedule.arena /= 2).is_err());
    // A phase in no region, and a group in no phase.
    assert!(damaged(|schedule| schedule.regions.truncate(1)).is_err());
    assert!(damaged(|schedule| schedule.phases.truncate(3)).is_err());
}

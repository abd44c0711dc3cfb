//! The text of kernels: calls of task bodies, joins between phases, loops over equal layers.

use std::fmt::Write as _;

use super::records::Call;

/// The calls of one phase.
pub(crate) type PhaseCalls = Vec<Call>;

/// What part of a phase's tiles those of a matrix are at most, if most workers have none of it.
const FEW_TILES: usize = 64;

/// Longest run of phases that a loop repeats.
const LONGEST_PERIOD: usize = 48;

/// Phases, the own included, among which the projection is looked for whose weights are asked for ahead.
const PHASES_AHEAD: usize = 6;

/// The body of a kernel that runs `phases`, and its records, one after the other; `following` phases are those of later launches,
/// whose records lie behind.
///
/// Records are addressed relative to the kernel's own, so that kernels of equal structure have equal text. `scopes` says for each
/// phase what part of the model it belongs to.
///
/// Before the kernel waits for the one before it, and before each join, it asks for the weights of the next projection.
pub(crate) fn body(
    phases: &[PhaseCalls],
    following: &[PhaseCalls],
    scopes: &[String],
) -> (String, Vec<u32>) {
    let mut text = String::new();
    let mut words = Vec::new();
    let ahead = phases.iter().chain(following);
    if let Some((record, offset)) = next_projection(ahead.take(PHASES_AHEAD)) {
        expect_weights(&mut text, "    ", record, &offset.to_string());
    }
    // A projection waits itself, when it has requested its first weights.
    if phases.first().is_some_and(|calls| !projects(calls)) {
        text += "    await_previous();\n";
    }
    let shapes: Vec<Vec<(&str, &str, usize)>> = phases.iter().map(|calls| shape(calls)).collect();
    let mut at = 0;
    while at < phases.len() {
        let (period, repeats) = best_run(&shapes, at);
        if repeats > 1 {
            let stride: usize = words_of(&phases[at..at + period]);
            let _ = writeln!(text, "    for (uint repeat = 0; repeat < {repeats}; ++repeat) {{");
            let mut offset = words.len();
            for phase in at..at + period {
                comment(&mut text, "        ", scopes, phase);
                let last = phase + 1 == phases.len();
                let ahead = &phases[phase + 1..(at + period).min(phase + PHASES_AHEAD)];
                offset =
                    calls(&mut text, "        ", &phases[phase], offset, Some(stride), last, ahead);
            }
            // The last repetition may end the kernel: a join there is only idle.
            let _ = writeln!(text, "    }}");
            for phase in &phases[at..at + period * repeats] {
                words.extend(phase.iter().flat_map(|call| call.words.iter().copied()));
            }
            at += period * repeats;
        } else {
            comment(&mut text, "    ", scopes, at);
            let last = at + 1 == phases.len();
            let ahead = &phases[at + 1..phases.len().min(at + PHASES_AHEAD)];
            calls(&mut text, "    ", &phases[at], words.len(), None, last, ahead);
            words.extend(phases[at].iter().flat_map(|call| call.words.iter().copied()));
            at += 1;
        }
    }
    (text, words)
}

fn comment(text: &mut String, indent: &str, scopes: &[String], phase: usize) {
    if phase == 0 || scopes[phase] != scopes[phase - 1] {
        let _ = writeln!(text, "{indent}// {}", scopes[phase]);
    }
}

/// Writes a phase's calls and, unless it is the last, its join; returns the offset after its records. Equal calls become a loop: bodies
/// are large and part of the kernel, which needs more registers the more of them it has.
fn calls(
    text: &mut String,
    indent: &str,
    phase: &[Call],
    mut offset: usize,
    stride: Option<usize>,
    last: bool,
    ahead: &[PhaseCalls],
) -> usize {
    let place_of = |offset: usize| match stride {
        Some(stride) => format!("repeat * {stride} + {offset}"),
        None => offset.to_string(),
    };
    // What few workers read for long is on its way while all of them begin.
    let (mut at, tiles) = (offset, phase.iter().map(|call| call.tiles).sum::<usize>());
    for call in phase {
        if call.tiles > 0 && call.tiles * FEW_TILES <= tiles {
            expect_weights(text, indent, call.record_type, &place_of(at));
        }
        at += call.words.len();
    }
    for equal in phase.chunk_by(|a, b| a.function == b.function && a.record_type == b.record_type) {
        let (call, words) = (&equal[0], equal[0].words.len());
        let mut place = place_of(offset);
        let mut inner = indent.to_owned();
        if equal.len() > 1 {
            let _ = writeln!(
                text,
                "{indent}#pragma unroll 1\n{indent}for (uint call = 0; call < {}; ++call) {{",
                equal.len()
            );
            place = format!("{place} + call * {words}");
            inner += "    ";
        }
        let _ = writeln!(
            text,
            "{inner}{}(memory, worker, RECORD({}, {place}));",
            call.function, call.record_type
        );
        if equal.len() > 1 {
            let _ = writeln!(text, "{indent}}}");
        }
        offset += words * equal.len();
    }
    let _ = writeln!(text, "{indent}expect_records(worker, records + {});", place_of(offset));
    if !last {
        if let Some((record, place)) = next_projection(ahead.iter()) {
            expect_weights(text, indent, record, &place_of(offset + place));
        }
        let _ = writeln!(text, "{indent}join(memory, worker);");
    }
    offset
}

fn expect_weights(text: &mut String, indent: &str, record: &str, place: &str) {
    let _ = writeln!(text, "{indent}expect_weights(memory, worker, RECORD({record}, {place}));");
}

/// Whether a phase multiplies matrices.
pub(crate) fn projects(calls: &[Call]) -> bool {
    calls.iter().any(|call| call.tiles > 0)
}

/// The largest projection of the first phase that has one: its record's type and its place after the start of the first phase's.
fn next_projection<'a>(
    phases: impl Iterator<Item = &'a PhaseCalls>,
) -> Option<(&'static str, usize)> {
    let mut offset = 0;
    for calls in phases {
        let mut largest: Option<(&Call, usize)> = None;
        for call in calls {
            if call.tiles > largest.map_or(0, |(call, _)| call.tiles) {
                largest = Some((call, offset));
            }
            offset += call.words.len();
        }
        if let Some((call, place)) = largest {
            return Some((call.record_type, place));
        }
    }
    None
}

fn words_of(phases: &[PhaseCalls]) -> usize {
    phases.iter().flatten().map(|call| call.words.len()).sum()
}

/// What makes two phases run by the same text.
fn shape(calls: &[Call]) -> Vec<(&str, &str, usize)> {
    calls.iter().map(|call| (call.function.as_str(), call.record_type, call.words.len())).collect()
}

/// The run of equal stretches from `at` on that covers most phases: (phases of a stretch, stretches).
fn best_run<T: PartialEq>(shapes: &[T], at: usize) -> (usize, usize) {
    let mut best = (1, 1);
    for period in 1..=LONGEST_PERIOD.min((shapes.len() - at) / 2) {
        let first = &shapes[at..at + period];
        let repeats = 1 + shapes[at + period..]
            .chunks_exact(period)
            .take_while(|stretch| *stretch == first)
            .count();
        if repeats > 1 && period * repeats > best.0 * best.1 {
            best = (period, repeats);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: &str, word: u32) -> PhaseCalls {
        vec![Call {
            function: function.into(),
            record_type: "R",
            words: vec![word, word],
            tiles: 0,
        }]
    }

    #[test]
    fn equal_layers_become_a_loop_and_keep_their_records_in_order() {
        let phases: Vec<PhaseCalls> = ["first", "a", "b", "a", "b", "a", "b", "last"]
            .iter()
            .zip(0..)
            .map(|(name, word)| call(name, word))
            .collect();
        let (text, words) = body(&phases, &[], &vec!["part".into(); 8]);
        assert_eq!(words, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert!(text.contains("repeat < 3"), "{text}");
        assert!(text.contains("b(memory, worker, RECORD(R, repeat * 4 + 4));"), "{text}");
        assert!(text.contains("last(memory, worker, RECORD(R, 14));\n"), "{text}");
        assert_eq!(text.matches("join").count(), 3, "one after `first`, two in the loop: {text}");
    }

    #[test]
    fn equal_calls_of_a_phase_share_a_body() {
        let phase = [call("a", 1), call("a", 2), call("b", 3)].concat();
        let (text, words) = body(&[phase], &[], &["part".into()]);
        assert_eq!(words, [1, 1, 2, 2, 3, 3]);
        assert_eq!(text.matches("a(memory").count(), 1, "{text}");
        assert!(text.contains("call < 2"), "{text}");
        assert!(text.contains("a(memory, worker, RECORD(R, 0 + call * 2));"), "{text}");
        assert!(text.contains("b(memory, worker, RECORD(R, 4));"), "{text}");
        assert!(!text.contains("expect_weights"), "{text}");
    }

    #[test]
    fn matrices_of_few_tiles_are_expected_beside_others() {
        let (mut large, mut small) = (call("a", 1), call("b", 2));
        large[0].tiles = 300;
        small[0].tiles = 3;
        let (text, _) = body(&[[large.clone(), small.clone()].concat()], &[], &["part".into()]);
        assert!(text.contains("expect_weights(memory, worker, RECORD(R, 2));"), "{text}");
        let (text, _) = body(&[[small.clone(), large].concat()], &[], &["part".into()]);
        assert!(text.starts_with("    expect_weights(memory, worker, RECORD(R, 2));"), "{text}");
        let (text, _) = body(&[small], &[], &["part".into()]);
        assert_eq!(text.matches("expect_weights").count(), 1, "it is alone: {text}");
    }

    #[test]
    fn weights_of_the_next_projection_are_expected() {
        let mut matrix = call("m", 9);
        matrix[0].tiles = 40;
        let plain = || call("p", 1);
        // Behind the own record and that of another launch.
        let (text, words) = body(&[plain()], &[plain(), matrix.clone()], &["part".into()]);
        assert!(
            text.starts_with(
                "    expect_weights(memory, worker, RECORD(R, 4));\n    await_previous();\n"
            ),
            "{text}"
        );
        assert_eq!(words, [1, 1]);
        // In a loop, those of the same repetition.
        let phases: Vec<PhaseCalls> =
            (0..3).flat_map(|_| [plain(), plain(), matrix.clone()]).collect();
        let (text, _) = body(&phases, &[], &vec!["part".into(); 9]);
        assert!(
            text.contains("expect_weights(memory, worker, RECORD(R, repeat * 6 + 4));"),
            "{text}"
        );
        let after = text.split("m(memory, worker").nth(1).expect("the matrix");
        assert!(!after.contains("expect_weights"), "{text}");
    }
}

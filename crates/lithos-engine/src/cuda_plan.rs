//! What a program becomes on a card, without one: launches with addresses, places of inputs, names of joins.

use lithos_compiler::device::{Launch, Program};
use lithos_compiler::{MAX_DECODE_ROWS, StepState};
use lithos_graph::{Graph, ValueId};

use crate::passes::WeighedLaunch;

/// Parts of the buffer of inputs begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Addresses of a program's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) weights: u64,
    pub(crate) arena: u64,
    pub(crate) states: u64,
    pub(crate) step: u64,
    pub(crate) tokens: u64,
    pub(crate) pages: u64,
    pub(crate) records: u64,
    pub(crate) joins: u64,
}

/// Where the inputs of a pass lie in one buffer, so that one copy brings them. Counters of joins come first and are zero at the
/// start of every pass: the number of workers does not divide 2^32, so they must not run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inputs {
    pub(crate) tokens: usize,
    pub(crate) pages: usize,
    pub(crate) bytes: usize,
}

impl Inputs {
    /// The counter of joins and their error flag.
    pub(crate) const JOIN_BYTES: usize = 8;
    /// The step state.
    pub(crate) const STEP: usize = ALIGNMENT;

    pub(crate) fn new(pages: usize) -> Self {
        let tokens = (Self::STEP + size_of::<StepState>()).next_multiple_of(ALIGNMENT);
        let pages_at = (tokens + MAX_DECODE_ROWS * 4).next_multiple_of(ALIGNMENT);
        Inputs { tokens, pages: pages_at, bytes: pages_at + pages * 4 }
    }

    /// Writes the inputs of a pass; without tokens, those of the pass before stay.
    pub(crate) fn write(self, out: &mut [u8], step: &StepState, tokens: &[u32], pages: &[u32]) {
        out[..Self::JOIN_BYTES].fill(0);
        put(&mut out[Self::STEP..], &step.words());
        put(&mut out[self.tokens..], &tokens[..tokens.len().min(MAX_DECODE_ROWS)]);
        put(&mut out[self.pages..self.bytes], pages);
    }

    /// The number of the join that failed, counted from 1; 0 if none did. `bytes` begin with the joins' counters.
    pub(crate) fn failed_join(bytes: &[u8]) -> u32 {
        u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
    }
}

fn put(out: &mut [u8], words: &[u32]) {
    for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
}

/// Launches as a card takes them.
pub(crate) fn launches(
    launches: &[Launch],
    addresses: &Addresses,
    workers: u32,
    threads: u32,
    shared_bytes: u32,
) -> Vec<lithos_cuda::Launch> {
    let Addresses { weights, arena, states, step, tokens, pages, records, joins } = *addresses;
    let launch = |(index, launch): (usize, &Launch)| {
        let records = records + launch.records as u64 * 4;
        lithos_cuda::Launch {
            kernel: launch.kernel,
            // Workers that wait for each other must all run.
            cooperative: launch.joins,
            // The first follows a copy of the pass's inputs.
            overlaps: index > 0 && !launch.joins,
            workers,
            threads,
            shared_bytes: if launch.projects { shared_bytes } else { 0 },
            buffers: [weights, arena, states, step, tokens, pages, records, joins],
        }
    };
    launches.iter().enumerate().map(launch).collect()
}

/// Phases of a launch: those of its region, or of the head.
fn phases_of(program: &Program, launch: &Launch) -> std::ops::Range<usize> {
    let schedule = &program.schedule;
    let region = schedule.regions[launch.region].phases.clone();
    match program.head.contains(launch) && !program.launches.contains(launch) {
        true => schedule.head..schedule.phases.len(),
        false => region,
    }
}

/// Joins of some launches.
pub(crate) fn joins(program: &Program, launches: &[Launch]) -> usize {
    launches.iter().map(|launch| phases_of(program, launch).len().saturating_sub(1)).sum()
}

/// Names the region and the phases between which a join is, by its number within a pass, counted from 1.
pub(crate) fn place_of_join(program: &Program, launches: &[Launch], number: u32) -> String {
    let mut left = number as usize;
    for launch in launches {
        let phases = phases_of(program, launch);
        let joins = phases.len().saturating_sub(1);
        if left > joins {
            left -= joins;
            continue;
        }
        let schedule = &program.schedule;
        let kinds = |phase: usize| {
            let groups = &schedule.groups[schedule.phases[phase].clone()];
            let mut kinds: Vec<_> = groups.iter().map(|group| group.kind.name()).collect();
            kinds.dedup();
            kinds.join(" | ")
        };
        let after = phases.start + left - 1;
        let scope = schedule.groups[schedule.phases[after].start].scope;
        let layer = scope.layer.map_or(String::new(), |layer| format!(", layer {layer}"));
        return format!(
            "region {} ({}{layer}), between {} and {}",
            launch.region,
            Program::kernel_name(launch.kernel),
            kinds(after),
            kinds(after + 1)
        );
    }
    format!("join {number} of a pass")
}

/// What each launch of a pass reads. A gathered table counts by the rows that are read, matrices of experts as if all rows chose
/// different ones.
pub(crate) fn weigh(program: &Program, graph: &Graph, rows: usize) -> Vec<WeighedLaunch> {
    let schedule = &program.schedule;
    let bytes = |id: ValueId| {
        program.places.weights.matrices.get(&id).map_or(0, |(_, layout)| layout.bytes() as u64)
    };
    let table_rows = |id: ValueId| match graph.value(id).shape.first() {
        Some(lithos_graph::Dimension::Fixed(rows)) => (*rows).max(1) as u64,
        _ => 1,
    };
    program
        .launches
        .iter()
        .map(|launch| {
            let groups = schedule.phases[phases_of(program, launch)]
                .iter()
                .flat_map(|phase| &schedule.groups[phase.clone()]);
            let (mut kinds, mut weight_bytes): (Vec<&str>, u64) = (Vec::new(), 0);
            for group in groups {
                let name = group.kind.name();
                if !kinds.contains(&name) {
                    kinds.push(name);
                }
                let (part, whole) = group.kind.part_read(graph, rows);
                weight_bytes += group.kind.matrices().into_iter().fold(0, |sum, id| {
                    let all = bytes(id) * part / whole;
                    sum + if name == "gather" { all / table_rows(id) * rows as u64 } else { all }
                });
            }
            WeighedLaunch {
                kernel: Program::kernel_name(launch.kernel),
                kinds: kinds.join(" "),
                weight_bytes,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lithos_compiler::Fusion;
    use lithos_compiler::SlotRows;
    use lithos_compiler::device::{DeviceOptions, KeyValues};
    use lithos_model::Model;

    use super::*;

    fn program(fusion: Fusion) -> (Graph, Program) {
        program_of("tiny_qwen35", fusion)
    }

    fn program_of(golden: &str, fusion: Fusion) -> (Graph, Program) {
        let folder =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens").join(golden);
        let graph = Model::open(&folder).expect("opens").graph;
        let options = DeviceOptions {
            fusion,
            slots: 1,
            context: 512,
            key_values: KeyValues::F32,
            range_keys: 256,
        };
        let program = Program::new(&graph, options).expect("a program");
        (graph, program)
    }

    fn addresses() -> Addresses {
        Addresses {
            weights: 1,
            arena: 2,
            states: 3,
            step: 4,
            tokens: 5,
            pages: 6,
            records: 4096,
            joins: 8,
        }
    }

    #[test]
    fn launches_join_where_they_must_and_read_their_own_records() {
        for fusion in Fusion::ALL {
            let (_, program) = program(fusion);
            let plan = launches(&program.launches, &addresses(), 132, 512, 4096);
            assert_eq!(plan.len(), program.schedule.regions.len());
            for (planned, region) in plan.iter().zip(&program.schedule.regions) {
                assert_eq!(planned.cooperative, region.phases.len() > 1, "{fusion}");
                assert_eq!((planned.workers, planned.threads), (132, 512));
                assert_eq!(planned.overlaps, region.phases.len() == 1 && region.phases.start > 0);
                assert!([0, 4096].contains(&planned.shared_bytes));
                assert_eq!(planned.buffers[..6], [1, 2, 3, 4, 5, 6]);
                assert_eq!(planned.buffers[7], 8);
                assert!(planned.kernel < program.kernels());
                let end = 4096 + program.records.len() as u64 * 4;
                assert!((4096..end).contains(&planned.buffers[6]));
            }
            assert!(plan.windows(2).all(|pair| pair[0].buffers[6] < pair[1].buffers[6]));
            assert_eq!(plan.iter().any(|launch| launch.cooperative), fusion != Fusion::None);
        }
    }

    #[test]
    fn what_multiplies_has_memory_for_its_rows() {
        for golden in ["tiny_qwen35", "tiny_qwen35_moe"] {
            for fusion in Fusion::ALL {
                let (_, program) = program_of(golden, fusion);
                let plan = launches(&program.launches, &addresses(), 132, 512, 4096);
                for (planned, launch) in plan.iter().zip(&program.launches) {
                    let groups = program.schedule.phases[phases_of(&program, launch)]
                        .iter()
                        .flat_map(|phase| &program.schedule.groups[phase.clone()]);
                    let multiplies = |kind: &str| {
                        kind == "linear" || kind == "gate_up" || kind.starts_with("expert_")
                    };
                    let wanted = groups.map(|group| group.kind.name()).any(multiplies);
                    assert_eq!(planned.shared_bytes > 0, wanted, "{golden} at {fusion}");
                }
            }
        }
    }

    #[test]
    fn a_join_is_named_by_its_number() {
        let (_, program) = program(Fusion::Layer);
        let joins = |launch: &Launch| phases_of(&program, launch).len() - 1;
        let first = program.launches.iter().position(|launch| joins(launch) > 0).expect("a join");
        let name = place_of_join(&program, &program.launches, 1);
        let region = program.launches[first].region;
        assert!(name.starts_with(&format!("region {region} (region_")), "{name}");
        assert!(name.contains("layer 0") && name.contains("between"), "{name}");
        let next =
            place_of_join(&program, &program.launches, 1 + joins(&program.launches[first]) as u32);
        assert!(next.contains("layer 1"), "{next}");
        let all = super::joins(&program, &program.launches);
        assert_eq!(all, program.launches.iter().map(joins).sum::<usize>());
        let past = place_of_join(&program, &program.launches, all as u32 + 1);
        assert_eq!(past, format!("join {} of a pass", all + 1));
    }

    #[test]
    fn every_level_reads_the_same_weights() {
        let sums: Vec<u64> = Fusion::ALL
            .into_iter()
            .map(|fusion| {
                let (graph, program) = program(fusion);
                weigh(&program, &graph, 8).iter().map(|launch| launch.weight_bytes).sum()
            })
            .collect();
        assert!(sums[0] > 0 && sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    }

    #[test]
    fn inputs_lie_apart_and_counters_are_zeroed() {
        let layout = Inputs::new(5);
        let mut out = vec![0xff; layout.bytes];
        let rows = SlotRows { slot: 0, first_row: 0, rows: 2, position: 7, state_position: 6 };
        layout.write(&mut out, &StepState::single(rows, 1), &[11, 12], &[4, 3, 2, 1, 0]);
        assert_eq!(Inputs::failed_join(&out), 0);
        assert_eq!(out[Inputs::STEP..Inputs::STEP + 8], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(out[layout.tokens..layout.tokens + 8], [11, 0, 0, 0, 12, 0, 0, 0]);
        assert_eq!(out[layout.bytes - 8..], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(Inputs::STEP + size_of::<StepState>() <= layout.tokens);
        // The head alone runs on the tokens of the pass before.
        layout.write(&mut out, &StepState::single(rows, 1), &[], &[0; 5]);
        assert_eq!(out[layout.tokens], 11);
        out[4] = 9;
        assert_eq!(Inputs::failed_join(&out), 9);
    }
}

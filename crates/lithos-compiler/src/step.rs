//! `StepState`: what varies from pass to pass. Nothing in it is compiled into a program.

use bytemuck::{Pod, Zeroable};

/// Rows that a decode pass can carry, over all slots.
pub const MAX_DECODE_ROWS: usize = 16;

/// Slots (sequences) that a pass can carry.
pub const MAX_SLOTS: usize = 16;

/// Tokens of a slot at most that end it on the device.
pub const MAX_ENDS: usize = 8;

/// The pass writes logits: what a host that chooses tokens needs.
pub const OUTPUT_LOGITS: u32 = 1;

/// The pass chooses a token for each row that wants logits, and prepares the next pass: what a loop on the device needs. All rows of
/// the pass must want logits.
pub const OUTPUT_CHOICES: u32 = 2;

/// The logits of a slot change by how often tokens were there before.
pub const ADJUST_COUNTS: u32 = 1;

/// The logits of a slot change by a bias of each token.
pub const ADJUST_BIAS: u32 = 2;

/// A slot chooses among the tokens of its mask only.
pub const ADJUST_MASK: u32 = 4;

/// The rows of one slot within a pass. They are adjacent, at consecutive positions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SlotRows {
    /// The slot.
    pub slot: u32,
    /// The slot's first row in the pass.
    pub first_row: u32,
    /// How many rows it has.
    pub rows: u32,
    /// Position of the first row: tokens that the slot has committed.
    pub position: u32,
    /// Position that the recurrent state stands at. Rows from here to `position` were accepted after the state was last
    /// stored; the pass folds them in from the log when it loads the state.
    pub state_position: u32,
}

/// How the tokens of a slot are chosen, and how far it has come. A loop on the device changes what stands after `ends`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Choice {
    /// 0 for the largest logit; else what the noise is multiplied with.
    pub temperature: f32,
    /// Tokens whose logit is further than this below the largest are dropped, at most 0: temperature times ln(min_p).
    pub floor: f32,
    /// Keep this many most likely tokens; 0 for all.
    pub top_k: u32,
    /// Of those, keep the first that together reach this probability; 1 for all.
    pub top_p: f32,
    /// Divides positive and multiplies negative logits of tokens that were there before.
    pub repetition_penalty: f32,
    /// Subtracted from logits of generated tokens.
    pub presence_penalty: f32,
    /// Subtracted from logits of generated tokens, once for each time.
    pub frequency_penalty: f32,
    /// Key of the random numbers, low bits first.
    pub seed: [u32; 2],
    /// What else changes logits: `ADJUST_*`.
    pub adjust: u32,
    /// Entries of `ends` in use.
    pub ends_used: u32,
    /// Tokens that end the slot.
    pub ends: [u32; MAX_ENDS],
    /// Tokens that may still be chosen; 0 if the slot has ended.
    pub left: u32,
    /// Tokens that were written to the slot's ring, in all.
    pub written: u32,
    /// Tokens that the slot has committed.
    pub position: u32,
    /// Position that its recurrent state stands at.
    pub state_position: u32,
}

impl Default for Choice {
    /// The largest logit, without end.
    fn default() -> Self {
        Choice {
            floor: f32::NEG_INFINITY,
            top_p: 1.0,
            repetition_penalty: 1.0,
            left: u32::MAX,
            ..Choice::zeroed()
        }
    }
}

/// The state of one pass, shared by all its tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct StepState {
    /// Rows of the pass, over all slots.
    pub rows: u32,
    /// First row that wants logits.
    pub logit_first_row: u32,
    /// Rows that want logits, at most [`MAX_DECODE_ROWS`].
    pub logit_rows: u32,
    /// Entries of `slots` in use.
    pub slots_used: u32,
    /// The rows of each slot in the pass.
    pub slots: [SlotRows; MAX_SLOTS],
    /// What the pass gives: `OUTPUT_*`.
    pub outputs: u32,
    /// How each slot's tokens are chosen; by slot, not by entry of `slots`.
    pub choices: [Choice; MAX_SLOTS],
}

impl StepState {
    /// A pass over the rows of one slot, with logits for the last `logit_rows` of them.
    pub fn single(rows: SlotRows, logit_rows: usize) -> Self {
        let mut slots = [SlotRows::default(); MAX_SLOTS];
        slots[0] = SlotRows { first_row: 0, ..rows };
        let logit_rows = (logit_rows as u32).min(rows.rows).min(MAX_DECODE_ROWS as u32);
        StepState {
            rows: rows.rows,
            logit_first_row: rows.rows - logit_rows,
            logit_rows,
            slots_used: 1,
            slots,
            outputs: OUTPUT_LOGITS,
            choices: [Choice::default(); MAX_SLOTS],
        }
    }

    /// A pass over rows of several slots, one slot after the other, all of which want logits; there are at most [`MAX_SLOTS`] slots and
    /// [`MAX_DECODE_ROWS`] rows.
    pub fn together(parts: &[SlotRows]) -> Self {
        let mut slots = [SlotRows::default(); MAX_SLOTS];
        let mut rows = 0;
        for (slot, part) in slots.iter_mut().zip(parts) {
            *slot = SlotRows { first_row: rows, ..*part };
            rows += part.rows;
        }
        StepState {
            rows,
            logit_first_row: 0,
            logit_rows: rows,
            slots_used: parts.len().min(MAX_SLOTS) as u32,
            slots,
            outputs: OUTPUT_LOGITS,
            choices: [Choice::default(); MAX_SLOTS],
        }
    }

    /// The C definitions of this, of [`SlotRows`] and of [`Choice`], for kernels.
    pub fn c_text() -> String {
        format!(
            "#define OUTPUT_LOGITS {OUTPUT_LOGITS}u\n#define OUTPUT_CHOICES {OUTPUT_CHOICES}u\n\
             #define ADJUST_COUNTS {ADJUST_COUNTS}u\n#define ADJUST_BIAS {ADJUST_BIAS}u\n\
             #define ADJUST_MASK {ADJUST_MASK}u\n\n\
             // The rows of one slot within a pass.\n\
             struct SlotRows {{\n    uint slot;\n    uint first_row;\n    uint rows;\n    uint position;\n    uint state_position;\n}};\n\n\
             // How the tokens of a slot are chosen, and how far it has come.\n\
             struct Choice {{\n    float temperature;\n    float floor;\n    uint top_k;\n    float top_p;\n    \
             float repetition_penalty;\n    float presence_penalty;\n    float frequency_penalty;\n    uint seed[2];\n    \
             uint adjust;\n    uint ends_used;\n    uint ends[{MAX_ENDS}];\n    uint left;\n    uint written;\n    \
             uint position;\n    uint state_position;\n}};\n\n\
             // What varies from pass to pass.\n\
             struct StepState {{\n    uint rows;\n    uint logit_first_row;\n    uint logit_rows;\n    uint slots_used;\n    \
             SlotRows slots[{MAX_SLOTS}];\n    uint outputs;\n    Choice choices[{MAX_SLOTS}];\n}};\n"
        )
    }

    /// The state as kernels read it: one word after the other.
    pub fn words(&self) -> Vec<u32> {
        bytemuck::cast_slice(std::slice::from_ref(self)).to_vec()
    }

    /// The state that kernels left behind, from its bytes; `None` if there are too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(bytemuck::pod_read_unaligned(bytes.get(..size_of::<StepState>())?))
    }

    /// The slots of the pass.
    pub fn active(&self) -> &[SlotRows] {
        &self.slots[..self.slots_used as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_struct() {
        let rows = SlotRows { slot: 3, first_row: 0, rows: 5, position: 70, state_position: 68 };
        let words = StepState::single(rows, 2).words();
        assert_eq!(words.len() * 4, size_of::<StepState>());
        assert_eq!(words[..9], [5, 3, 2, 1, 3, 0, 5, 70, 68]);
        assert_eq!(words[4 + 5 * MAX_SLOTS], OUTPUT_LOGITS);
    }

    #[test]
    fn the_text_has_a_field_for_every_word() {
        let text = StepState::c_text();
        let words = |name: &str| -> usize {
            let start = text.find(&format!("struct {name} {{")).expect("is defined");
            let fields = text[start..].lines().skip(1).take_while(|line| !line.starts_with('}'));
            let count = |field: &str| match field.split_once('[') {
                Some((_, count)) => count.trim_end_matches("];").parse().expect("a number"),
                None => 1,
            };
            fields
                .filter(|field| !field.contains("SlotRows ") && !field.contains("Choice "))
                .map(count)
                .sum()
        };
        assert_eq!(words("SlotRows") * 4, size_of::<SlotRows>());
        assert_eq!(words("Choice") * 4, size_of::<Choice>());
        assert_eq!(words("StepState"), 5);
    }
}

//! `StepState`: what varies from pass to pass. Nothing in it is compiled into a program.

/// Rows that a decode pass can carry, over all slots.
pub const MAX_DECODE_ROWS: usize = 16;

/// Slots (sequences) that a pass can carry.
pub const MAX_SLOTS: usize = 16;

/// The rows of one slot within a pass. They are adjacent, at consecutive positions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// The state of one pass, shared by all its tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        }
    }

    /// The C definition of this and [`SlotRows`], for kernels.
    pub fn c_text() -> String {
        format!(
            "// The rows of one slot within a pass.\n\
             struct SlotRows {{\n    uint slot;\n    uint first_row;\n    uint rows;\n    uint position;\n    uint state_position;\n}};\n\n\
             // What varies from pass to pass.\n\
             struct StepState {{\n    uint rows;\n    uint logit_first_row;\n    uint logit_rows;\n    uint slots_used;\n    \
             SlotRows slots[{MAX_SLOTS}];\n}};\n"
        )
    }

    /// The state as kernels read it: one word after the other.
    pub fn words(&self) -> Vec<u32> {
        let mut words = vec![self.rows, self.logit_first_row, self.logit_rows, self.slots_used];
        for slot in &self.slots {
            words.extend([
                slot.slot,
                slot.first_row,
                slot.rows,
                slot.position,
                slot.state_position,
            ]);
        }
        words
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
    }
}

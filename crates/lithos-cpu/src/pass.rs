//! One pass as its tasks see it: the step, the arena, the states.

use lithos_compiler::{Buffer, BufferId, StepState};

use crate::linear::{InputView, Operand, OperandKind, OutputView};
use crate::mixers::norm::{RmsNorm, rms_norm};
use crate::mixers::rotary::RotaryRows;
use crate::mixers::{Rows, RowsMut, Scratch};
use crate::simd::Isa;
use crate::states::States;

/// What all tasks of a pass share.
///
/// Tasks write through it although it is shared. That is sound because the schedule was verified: within a phase no two groups touch
/// a common element with one of them writing, and within a group tasks write disjoint parts.
pub(crate) struct Pass<'p> {
    pub(crate) step: &'p StepState,
    pub(crate) tokens: &'p [u32],
    pub(crate) isa: Isa,
    pub(crate) workers: usize,
    pub(crate) states: &'p States,
    /// Cosines and sines of the pass's rows, for each rotary embedding of the program.
    pub(crate) angles: &'p [RotaryRows],
    pub(crate) prepared: &'p [Operand],
    pub(crate) buffers: &'p [Buffer],
    pub(crate) arena: ArenaPointer,
    /// Differs between any two passes.
    pub(crate) number: u64,
}

/// Start of the arena.
#[derive(Clone, Copy)]
pub(crate) struct ArenaPointer(pub(crate) *mut u8);

// SAFETY: an address; see `Pass` for why its uses do not race.
unsafe impl Send for ArenaPointer {}
// SAFETY: as above.
unsafe impl Sync for ArenaPointer {}

impl<'p> Pass<'p> {
    /// Rows of the pass.
    pub(crate) fn row_count(&self) -> usize {
        self.step.rows as usize
    }

    /// Elements of a buffer's row.
    pub(crate) fn width(&self, id: BufferId) -> usize {
        self.buffers[id.index()].width
    }

    /// Where a row of a buffer starts.
    pub(crate) fn row_start(&self, id: BufferId, row: usize) -> *mut f32 {
        let buffer = &self.buffers[id.index()];
        self.arena.0.wrapping_add(buffer.offset).cast::<f32>().wrapping_add(row * buffer.width)
    }

    /// Rows of a buffer, to read.
    pub(crate) fn rows(&self, id: BufferId, first: usize, count: usize) -> Rows<'p> {
        let width = self.width(id);
        // SAFETY: inside the arena by the memory plan; not written during the phase by the schedule's verification.
        unsafe { Rows::from_raw_parts(self.row_start(id, first), count, width, width) }
    }

    /// Rows and columns of a buffer, to write.
    ///
    /// # Safety
    /// The task owns these columns of these rows.
    pub(crate) unsafe fn rows_mut(
        &self,
        id: BufferId,
        first: usize,
        count: usize,
        columns: std::ops::Range<usize>,
    ) -> RowsMut<'p> {
        let (width, start) = (self.width(id), self.row_start(id, first));
        // SAFETY: inside the arena by the memory plan; the caller owns the part.
        unsafe {
            RowsMut::from_raw_parts(start.wrapping_add(columns.start), count, columns.len(), width)
        }
    }

    /// Rows of a buffer as a projection's output.
    pub(crate) fn output(&self, id: BufferId, count: usize) -> OutputView {
        let width = self.width(id);
        // SAFETY: inside the arena by the memory plan; tasks write disjoint tiles.
        unsafe { OutputView::from_raw(self.row_start(id, 0), count, width, width) }
    }
}

/// Memory of one worker.
#[derive(Default)]
pub(crate) struct WorkerMemory {
    /// Working memory of task bodies.
    pub(crate) scratch: Scratch,
    /// Staged heads.
    pub(crate) staging: Vec<f32>,
    /// Rows that a task of an expert works on.
    pub(crate) gathered: GatheredRows,
    /// The phase that runs.
    pub(crate) phase: usize,
    /// Rows on their way to an operand.
    computed: Vec<f32>,
    operands: [Option<CachedOperand>; 2],
}

/// Rows that a task has gathered from those of the pass.
#[derive(Default)]
pub(crate) struct GatheredRows {
    /// Which.
    pub(crate) pairs: Vec<usize>,
    /// What they are multiplied by.
    pub(crate) operand: GrowingOperand,
    /// What came out.
    pub(crate) out: Vec<f32>,
}

/// An operand that is made anew when it has too little room.
#[derive(Default)]
pub(crate) struct GrowingOperand(Option<(Operand, usize, usize)>);

impl GrowingOperand {
    /// The operand, with room for so many rows and columns.
    pub(crate) fn with_room(&mut self, rows: usize, columns: usize) -> &Operand {
        let room = match self.0.take() {
            Some(room) if room.1 >= rows && room.2 >= columns => room,
            _ => (Operand::new(rows, columns), rows, columns),
        };
        &self.0.insert(room).0
    }
}

/// An operand that a worker has brought into form for itself, and what from.
struct CachedOperand {
    operand: Operand,
    columns: usize,
    rows: usize,
    tag: (u64, usize, BufferId, Option<usize>),
}

/// A layer norm, resolved.
#[derive(Clone)]
pub(crate) struct ResolvedNorm {
    pub(crate) weight: std::sync::Arc<[f32]>,
    pub(crate) epsilon: f32,
    pub(crate) weight_offset: f32,
}

impl ResolvedNorm {
    pub(crate) fn as_norm(&self) -> RmsNorm<'_> {
        RmsNorm { weight: &self.weight, weight_offset: self.weight_offset, epsilon: self.epsilon }
    }
}

impl WorkerMemory {
    /// Rows `first..first + count` of a buffer, normed if asked, in operand form. Prepared once per phase and worker: doing it
    /// in every worker is cheaper than a join for the few rows of a decode pass.
    pub(crate) fn operand(
        &mut self,
        pass: &Pass<'_>,
        buffer: BufferId,
        norm: Option<&ResolvedNorm>,
        kind: OperandKind,
        (first, count): (usize, usize),
    ) -> &Operand {
        let norm_identity = norm.map(|norm| norm.weight.as_ptr().addr());
        let source = (buffer, norm_identity);
        self.prepared_once(pass, source, kind, (count, pass.width(buffer)), |normed, operand| {
            let x = pass.rows(buffer, first, count);
            // SAFETY: the operand is this worker's own, and the input is not written during the phase.
            unsafe { prepare(pass.isa, kind, x, norm, normed, operand, 0) };
        })
    }

    /// As [`WorkerMemory::operand`], of rows that `compute` makes from a buffer.
    pub(crate) fn computed_operand(
        &mut self,
        pass: &Pass<'_>,
        source: BufferId,
        kind: OperandKind,
        (rows, columns): (usize, usize),
        compute: impl FnOnce(&mut RowsMut<'_>),
    ) -> &Operand {
        self.prepared_once(pass, (source, None), kind, (rows, columns), |computed, operand| {
            computed.resize((rows * columns).max(computed.len()), 0.0);
            let mut x = RowsMut::new(computed, rows, columns, columns);
            compute(&mut x);
            // SAFETY: the operand is this worker's own, and so are the rows.
            unsafe { prepare(pass.isa, kind, x.as_rows(), None, &mut Vec::new(), operand, 0) };
        })
    }

    /// The worker's operand of a source in this phase, which `fill` writes if it was not asked for before.
    fn prepared_once(
        &mut self,
        pass: &Pass<'_>,
        (buffer, norm): (BufferId, Option<usize>),
        kind: OperandKind,
        (count, columns): (usize, usize),
        fill: impl FnOnce(&mut Vec<f32>, &Operand),
    ) -> &Operand {
        let place = usize::from(kind == OperandKind::Float);
        let tag = (pass.number, self.phase, buffer, norm);
        let room = |cached: &CachedOperand| cached.columns >= columns && cached.rows >= count;
        let cached = match self.operands[place].take() {
            Some(cached) if room(&cached) => cached,
            _ => CachedOperand {
                operand: Operand::new(count, columns),
                columns,
                rows: count,
                tag: (0, 0, buffer, None),
            },
        };
        let cached = self.operands[place].insert(cached);
        if cached.tag != tag {
            fill(&mut self.computed, &cached.operand);
            cached.tag = tag;
        }
        &cached.operand
    }
}

/// Brings rows into operand form, through a norm if there is one; row `r` of `x` becomes row `first + r` of the operand.
///
/// # Safety
/// No other thread uses these rows of the operand.
pub(crate) unsafe fn prepare(
    isa: Isa,
    kind: OperandKind,
    x: Rows<'_>,
    norm: Option<&ResolvedNorm>,
    normed: &mut Vec<f32>,
    operand: &Operand,
    first: usize,
) {
    let (rows, width) = (x.rows(), x.width());
    let source = match norm {
        None => x.row(0).as_ptr(),
        Some(norm) => {
            normed.resize((rows * width).max(normed.len()), 0.0);
            let mut out = RowsMut::new(normed, rows, width, width);
            rms_norm(isa, norm.as_norm(), x, &mut out);
            normed.as_ptr()
        }
    };
    // The view begins `first` rows before the source, so that row numbers of input and operand agree.
    // SAFETY: only rows from `first` on are read, which are the source's; the caller owns the operand's rows.
    unsafe {
        let start = source.wrapping_sub(first * width);
        let view = InputView::from_raw(start, first + rows, width, width);
        operand.prepare_rows(isa, kind, view, first..first + rows);
    }
}

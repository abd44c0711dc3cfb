//! Embedding rows.

use std::sync::Arc;

use lithos_compiler::{BufferId, TaskKind};
use lithos_graph::WeightSource;

use super::{Binder, Tasks};
use crate::pass::{Pass, WorkerMemory};
use crate::weights::Weights;

/// A task is a row: the token's row of the table, decoded from the checkpoint where it lies.
pub(super) struct Gather {
    weights: Arc<Weights>,
    source: WeightSource,
    output: BufferId,
}

impl Gather {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Gather { table, output } = kind else { unreachable!("a gather") };
        let source = binder.graph.value(*table).weight().expect("validated: a weight").clone();
        Gather { weights: Arc::clone(binder.weights), source, output: *output }
    }
}

impl Tasks for Gather {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.output, task, 1, 0..pass.width(self.output)) };
        self.weights.embedding_row(&self.source, pass.tokens[task] as usize, out.row_mut(0));
    }
}

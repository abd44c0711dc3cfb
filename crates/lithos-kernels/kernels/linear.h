// Projections. A task is a tile of 16 output columns, for all rows.

// The rows that a group works on: all of the pass, or those that want logits.
TASK uint group_first_row(THREAD const Memory& memory, uint row_set) { return row_set == 0 ? 0 : memory.step->logit_first_row; }
TASK uint group_rows(THREAD const Memory& memory, uint row_set) { return row_set == 0 ? memory.step->rows : memory.step->logit_rows; }

// output = (norm(x) W^T) * tensor scale, plus what the output already holds if it is a residual.
template <uint CODES, uint SCALES, uint BIASES>
TASK void linear(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const LinearRecord& record) {
    uint tiles = (record.outputs + TILE_ROWS - 1) / TILE_ROWS;
    uint first_row = group_first_row(memory, record.row_set), rows = group_rows(memory, record.row_set);
    uint task = first_task(worker, tiles);
    if (task >= tiles || rows == 0) return;
    SHARED float* factors = worker.shared;
    SHARED float* tile_sums = worker.shared + MOST_ROWS;
    // The input of the head's rows lies where the pass put them; its output starts at row 0.
    row_factors(memory, worker, record.operand, first_row, rows, factors);
    float sums[2 * MOST_ROWS];
    for (; task < tiles; task += worker.workers) {
        tile_products<CODES, SCALES, BIASES>(memory, worker, record.matrix, record.operand, first_row, rows, task, sums);
        sum_shares(worker, rows, sums, tile_sums);
        for (uint i = thread_of(worker); i < rows * TILE_ROWS; i += threads_of(worker)) {
            uint row = i / TILE_ROWS, column = task * TILE_ROWS + i % TILE_ROWS;
            if (column < record.outputs) {
                DEVICE float* out = memory.arena + record.output + row * record.outputs + column;
                float value = tile_sums[i] * record.matrix.tensor_scale * factors[row];
                *out = record.add != 0 ? *out + value : value;
            }
        }
        worker_barrier();
    }
    worker_barrier();
}

// output = silu(norm(x) G^T) * (norm(x) U^T)
template <uint GATE_CODES, uint GATE_SCALES, uint GATE_BIASES, uint UP_CODES, uint UP_SCALES, uint UP_BIASES>
TASK void gate_up(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const GateUpRecord& record) {
    uint tiles = (record.outputs + TILE_ROWS - 1) / TILE_ROWS, rows = memory.step->rows;
    uint task = first_task(worker, tiles);
    if (task >= tiles) return;
    SHARED float* factors = worker.shared;
    SHARED float* gate_sums = worker.shared + MOST_ROWS;
    SHARED float* up_sums = gate_sums + worker.simdgroups * MOST_ROWS * TILE_ROWS;
    row_factors(memory, worker, record.operand, 0, rows, factors);
    float sums[2 * MOST_ROWS];
    for (; task < tiles; task += worker.workers) {
        tile_products<GATE_CODES, GATE_SCALES, GATE_BIASES>(memory, worker, record.gate, record.operand, 0, rows, task, sums);
        sum_shares(worker, rows, sums, gate_sums);
        tile_products<UP_CODES, UP_SCALES, UP_BIASES>(memory, worker, record.up, record.operand, 0, rows, task, sums);
        sum_shares(worker, rows, sums, up_sums);
        for (uint i = thread_of(worker); i < rows * TILE_ROWS; i += threads_of(worker)) {
            uint row = i / TILE_ROWS, column = task * TILE_ROWS + i % TILE_ROWS;
            if (column < record.outputs) {
                float gate = gate_sums[i] * record.gate.tensor_scale * factors[row];
                float up = up_sums[i] * record.up.tensor_scale * factors[row];
                memory.arena[record.output + row * record.outputs + column] = silu(gate) * up;
            }
        }
        worker_barrier();
    }
    worker_barrier();
}

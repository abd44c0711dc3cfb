// Rows of the embedding table. A task is a row of the pass.

template <uint CODES, uint SCALES, uint BIASES>
BODY void gather(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const GatherRecord& record) {
    const uint columns = LANE_COLUMNS(CODES);
    uint rows = memory.step->rows;
    float low[LANE_COLUMNS(CODES)], high[LANE_COLUMNS(CODES)];
    for (uint row = first_task(worker, rows); row < rows; row += worker.workers) {
        uint token = memory.tokens[row], tile = token / TILE_ROWS, within = token % TILE_ROWS;
        DEVICE float* out = memory.arena + record.output + row * record.width;
        // One quarter of a unit a thread.
        for (uint quarter = thread_of(worker); quarter < record.table.units * 4; quarter += threads_of(worker)) {
            uint lane = (within % 8) * 4 + (quarter & 3u);
            UnitWord word;
            load_unit<CODES, SCALES, BIASES>(tile_of<SCALES, BIASES>(memory, record.table, tile), record.table.block_columns, quarter / 4,
                                             lane, word);
            decode_word<CODES, SCALES, BIASES>(word, record.table.zero_point, low, high);
            for (uint i = 0; i < columns; ++i) {
                uint column = quarter * columns + i;
                if (column < record.width) out[column] = (within < 8 ? low[i] : high[i]) * record.table.tensor_scale;
            }
        }
    }
}

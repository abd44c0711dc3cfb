// Projections of the experts that rows chose, and their sum. A task is a tile of an expert's output columns, for all rows of its group; a
// worker takes adjacent ones of all groups' tiles, so that it stages the rows of few groups. Matrices of all experts lie one under the
// other, each of whole tiles, and each has its own factor. What the projections write stands in the order of the pairs, so that a group's
// rows are adjacent.

// Adjacent tiles of a group of rows that chose one expert.
struct Group {
    uint expert;
    // Where its pairs begin, and how many there are.
    uint first;
    uint rows;
    // Tiles of its matrix, from and to.
    uint tile;
    uint end;
};

// The group that the `at`-th of all tiles is in, and its tiles from there on, before the `end`-th of all.
TASK Group group_of(THREAD const Routes& routes, uint at, uint end, uint tiles) {
    uint group = at / tiles, tile = at % tiles, first = (uint)routes.firsts[group];
    return {(uint)routes.experts[group], first, (uint)routes.firsts[group + 1] - first, tile, min(tiles, tile + end - at)};
}

// The part of a projection that has a group's tiles.
TASK Projection expert_projection(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const MatrixRecord& first,
                                  DEVICE const MatrixRecord& second, uint outputs, uint factors, uint second_factors,
                                  THREAD const Group& group) {
    Projection projection = projection_of(worker, first, second, outputs, 1, 0, 1);
    projection.first_tile = group.expert * projection.tiles;
    projection.tiles = group.end;
    projection.factor = small_array(memory, factors)[group.expert];
    projection.second_factor = small_array(memory, second_factors)[group.expert];
    return projection;
}

// Eight rows of a group's output, from `row` on.
TASK Output group_output(THREAD const Memory& memory, uint output, uint columns, THREAD const Group& group, uint row) {
    return output_of(memory.arena + output + (size_t)group.first * columns, columns, row, group.rows, 0);
}

// output = silu(norm(x) G^T) * (norm(x) U^T), with the matrices of each pair's expert.
template <uint CODES, uint SCALES, uint BIASES>
BODY void expert_gate_up(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ExpertGateUpRecord& record) {
    Routes routes = routes_of(memory, record.routes, record.chosen);
    uint tiles = (record.outputs + TILE_ROWS - 1) / TILE_ROWS, all = (uint)*routes.groups * tiles;
    uint end = (worker.index + 1) * all / worker.workers;
    for (uint at = worker.index * all / worker.workers; at < end;) {
        Group group = group_of(routes, at, end, tiles);
        Projection projection = expert_projection(memory, worker, record.gates, record.ups, record.outputs, record.gate_factors,
                                                  record.up_factors, group);
        for (uint row = 0; row < group.rows; row += BLOCK_ROWS) {
            Output output = group_output(memory, record.output, record.outputs, group, row);
            // A single row is where the pass put it, and may be staged already.
            uint first_row = group.first + row;
            bool single = output.rows == 1;
            projection.gathered = single ? nullptr : routes.rows;
            if (single) first_row = (uint)routes.rows[first_row];
            project<CODES, SCALES, BIASES, 1>(memory, worker, projection, record.operand, first_row, output, group.tile);
        }
        at += group.end - group.tile;
    }
}

// output = x D^T, with the matrix of each pair's expert.
template <uint CODES, uint SCALES, uint BIASES>
BODY void expert_down(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ExpertDownRecord& record) {
    Routes routes = routes_of(memory, record.routes, record.chosen);
    uint tiles = (record.outputs + TILE_ROWS - 1) / TILE_ROWS, all = (uint)*routes.groups * tiles;
    uint end = (worker.index + 1) * all / worker.workers;
    for (uint at = worker.index * all / worker.workers; at < end;) {
        Group group = group_of(routes, at, end, tiles);
        Projection projection =
            expert_projection(memory, worker, record.downs, record.downs, record.outputs, record.factors, record.factors, group);
        for (uint row = 0; row < group.rows; row += BLOCK_ROWS) {
            Output output = group_output(memory, record.output, record.outputs, group, row);
            project<CODES, SCALES, BIASES, 0>(memory, worker, projection, record.operand, group.first + row, output, group.tile);
        }
        at += group.end - group.tile;
    }
}

// output = sum of a row's experts times their weights, in the order in which it chose them, + shared * sigmoid(gate), plus what the
// output already holds if it is a residual. A task is 128 columns of a row, for a simdgroup.
BODY void combine(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const CombineRecord& record) {
    Routes routes = routes_of(memory, record.routes, record.chosen);
    uint width = record.width, blocks = (width + 127) / 128, count = memory.step->rows * blocks;
    bool full = width % 4 == 0;
    for (uint task = first_simdgroup_task(worker, count); task < count; task += simdgroup_stride(worker)) {
        uint row = task / blocks, column = task % blocks * 128 + worker.lane * 4;
        if (column >= width) continue;
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f}, values[4];
        for (uint place = 0; place < record.chosen; ++place) {
            uint pair = row * record.chosen + place;
            DEVICE const float* expert = memory.arena + record.experts + (size_t)(uint)routes.places[pair] * width;
            load_columns<4>(expert, column, width, full, values);
            for (uint i = 0; i < 4; ++i) sums[i] += routes.weights[pair] * values[i];
        }
        float gate = sigmoid(memory.arena[record.gate + row]);
        load_columns<4>(memory.arena + record.shared + (size_t)row * width, column, width, full, values);
        for (uint i = 0; i < 4; ++i) sums[i] += gate * values[i];
        DEVICE float* output = memory.arena + record.output + (size_t)row * width;
        if (record.add != 0) {
            load_columns<4>(output, column, width, full, values);
            for (uint i = 0; i < 4; ++i) sums[i] += values[i];
        }
        store_columns(output, column, width, full, sums);
    }
}

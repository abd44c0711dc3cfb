// Projections. A task is a tile of 16 output columns, for all rows; a worker takes STEP_TILES of its tasks in a step, and its
// simdgroups share the units of their tiles.
//
// A long operand is cut into slices, so that a worker can stage its own: workers of a team take the same tiles, each with one
// slice, and the last of them to come to its end adds up what all found, in the order of the slices.

// Teams at most.
#define MOST_TEAMS 256u

// Words that a lane requests ahead of their use, through the steps of a projection.
struct Stream {
    Tile tiles[STEP_TILES];
    // First task of the step.
    uint task;
    // Units of this simdgroup that were requested in the step.
    uint requested;
};

// What a projection multiplies with, and how far its tasks go. `second` is the other matrix of a pair.
struct Projection {
    DEVICE const MatrixRecord& first;
    DEVICE const MatrixRecord& second;
    // Factors of the matrices as a whole.
    float factor;
    float second_factor;
    uint tiles;
    // From one task of a worker to its next.
    uint stride;
    // Units of the slice, and rounds of REQUESTED_UNITS units of each simdgroup.
    UnitRange units;
    uint rounds;
    // Tiles of the matrices before those of the tasks.
    uint first_tile;
    // Rows of the pass that are multiplied, where they are not adjacent.
    DEVICE const float* gathered;
};

TASK Projection projection_of(THREAD const Worker& worker, DEVICE const MatrixRecord& first, DEVICE const MatrixRecord& second,
                              uint outputs, uint stride, uint slice, uint slices) {
    uint most = (first.units + slices - 1) / slices, round = worker.simdgroups * REQUESTED_UNITS;
    UnitRange units = {slice * most, min((slice + 1) * most, first.units), first.units};
    return {first, second, first.tensor_scale, second.tensor_scale, (outputs + TILE_ROWS - 1) / TILE_ROWS, stride, units,
            (most + round - 1) / round, 0, nullptr};
}

// The tile that comes `i`-th in a step: a worker's tasks in turn, or a task's tile in each of a pair of matrices.
template <uint PAIRED> TASK uint step_tile(THREAD const Projection& projection, uint task, uint i) {
    return PAIRED ? task : task + i * projection.stride;
}

template <uint PAIRED> TASK uint next_step(THREAD const Projection& projection, uint task) {
    return task + (PAIRED ? projection.stride : STEP_TILES * projection.stride);
}

template <uint SCALES, uint BIASES, uint PAIRED>
TASK void begin_step(THREAD const Memory& memory, THREAD const Projection& projection, uint task, THREAD Stream& stream) {
    stream.task = task;
    stream.requested = 0;
    for (uint i = 0; i < STEP_TILES; ++i) {
        uint tile = step_tile<PAIRED>(projection, task, i);
        if (tile >= projection.tiles) continue;
        stream.tiles[i] = PAIRED && i == 1 ? tile_of<SCALES, BIASES>(memory, projection.second, projection.first_tile + tile)
                                           : tile_of<SCALES, BIASES>(memory, projection.first, projection.first_tile + tile);
    }
}

// Requests the next unit of all tiles of the step, or the first of the step after it.
template <uint CODES, uint SCALES, uint BIASES, uint PAIRED>
TASK void request_unit(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const Projection& projection,
                       THREAD Stream& stream, THREAD UnitWord* words) {
    uint unit = projection.units.first + stream.requested * worker.simdgroups + worker.simdgroup;
    for (uint i = 0; i < STEP_TILES; ++i) {
        if (unit < projection.units.end && step_tile<PAIRED>(projection, stream.task, i) < projection.tiles) {
            load_unit<CODES, SCALES, BIASES>(stream.tiles[i], projection.first.block_columns, unit, matrix_lane(worker.lane), words[i]);
        }
    }
    if (++stream.requested == projection.rounds * REQUESTED_UNITS) {
        begin_step<SCALES, BIASES, PAIRED>(memory, projection, next_step<PAIRED>(projection, stream.task), stream);
    }
}

// sums += a unit of `present` tiles times the operand staged for it.
template <uint CODES, uint SCALES, uint BIASES>
TASK void multiply_unit(THREAD const Projection& projection, THREAD const UnitWord* words, uint present, SHARED const uint* run, uint lane,
                        THREAD float* sums) {
    if (IN_HALVES(CODES, SCALES)) {
        RightHalves<LANE_COLUMNS(CODES)> right;
        load_right<LANE_COLUMNS(CODES)>(run, lane, right);
        for (uint i = 0; i < STEP_TILES; ++i) {
            if (i < present) multiply_in_halves<CODES, SCALES>(words[i], right, sums + 4 * i);
        }
    } else {
        for (uint i = 0; i < STEP_TILES; ++i) {
            if (i < present) multiply_in_floats<CODES, SCALES, BIASES>(words[i], projection.first.zero_point, run, lane, sums + 4 * i);
        }
    }
}

// What a projection writes: output = sums, or sums added to what is there; or the sums of a slice, [column][row], without the
// matrix's factor.
struct Output {
    DEVICE float* values;
    uint columns;
    uint rows;
    uint add;
    DEVICE float* slice;
};

// Output of rows from `row` on.
TASK Output output_of(DEVICE float* values, uint columns, uint row, uint rows, uint add) {
    return {values + (size_t)row * columns, columns, min(BLOCK_ROWS, rows - row), add, nullptr};
}

// Adds up the shares of all simdgroups, in order, and writes the step's columns.
template <uint PAIRED>
TASK void finish_step(THREAD const Memory&, THREAD const Worker& worker, THREAD const Projection& projection, float factor,
                      SHARED const float* shares, uint task, THREAD const Output& output) {
    const uint tile_floats = TILE_ROWS * BLOCK_ROWS;
    SHARED const float* factors = worker.shared + OPERAND_AT(worker.simdgroups) - BLOCK_ROWS;
    for (uint at = thread_of(worker); at < (PAIRED ? 1 : STEP_TILES) * tile_floats; at += threads_of(worker)) {
        uint row = at % BLOCK_ROWS;
        uint tile = step_tile<PAIRED>(projection, task, at / tile_floats), column = tile * TILE_ROWS + at % tile_floats / BLOCK_ROWS;
        if (row >= output.rows || tile >= projection.tiles || column >= output.columns) continue;
        float sum = 0.0f, second = 0.0f;
        for (uint share = 0; share < worker.simdgroups; ++share) {
            sum += shares[share * STEP_TILES * tile_floats + at];
            if (PAIRED) second += shares[(share * STEP_TILES + 1) * tile_floats + at];
        }
        sum *= factor * factors[row];
        if (output.slice) {
            output.slice[column * BLOCK_ROWS + row] = sum;
            continue;
        }
        sum *= projection.factor;
        if (PAIRED) sum = silu(sum) * (second * factor * factors[row] * projection.second_factor);
        DEVICE float* value = output.values + (size_t)row * output.columns + column;
        *value = output.add != 0 ? *value + sum : sum;
    }
}

// Projects up to BLOCK_ROWS rows; `finish_step` puts the sums of each step into `output`, which has `rows`. Every row's sum has the same
// order whatever the number of rows.
template <uint CODES, uint SCALES, uint BIASES, uint PAIRED, class OUTPUT>
TASK void project(THREAD const Memory& memory, THREAD Worker& worker, THREAD const Projection& projection,
                  DEVICE const OperandRecord& operand, uint first_row, THREAD OUTPUT& output, uint task) {
    const uint columns = LANE_COLUMNS(CODES), halves = IN_HALVES(CODES, SCALES);
    await_previous();
    OperandRow row = operand_row<columns>(memory, worker, operand, projection.gathered, first_row, output.rows);
    OperandPlace place = operand_place<columns>(worker, projection.units);
    float form = 1.0f;
    if (!is_staged<columns, halves>(worker, operand, place, projection.gathered, first_row, output.rows)) {
        form = measure_operand<columns, halves>(worker, row, place);
        if (place.whole) stage_units<columns, halves>(worker, row, place, 0, form);
    }

    // Not before: what waits for its use takes registers from the loads of the operand, and memory is busy with what was asked for
    // ahead.
    Stream stream;
    UnitWord words[REQUESTED_UNITS][STEP_TILES];
    begin_step<SCALES, BIASES, PAIRED>(memory, projection, task, stream);
#pragma unroll
    for (uint i = 0; i < REQUESTED_UNITS; ++i) {
        request_unit<CODES, SCALES, BIASES, PAIRED>(memory, worker, projection, stream, words[i]);
    }
    // Whole rounds that there is room for.
    uint room = place.room / REQUESTED_UNITS * REQUESTED_UNITS;
    uint lane = matrix_lane(worker.lane), parity = 0;
    for (; task < projection.tiles; task = next_step<PAIRED>(projection, task)) {
        uint present = PAIRED || task + projection.stride < projection.tiles ? 2 : 1;
        float sums[4 * STEP_TILES];
        for (uint i = 0; i < 4 * STEP_TILES; ++i) sums[i] = 0.0f;
        uint staged = 0;
        for (uint round = 0; round < projection.rounds; ++round) {
            if (!place.whole && (round == 0 || round * REQUESTED_UNITS >= staged + room)) {
                staged = round * REQUESTED_UNITS;
                stage_units<columns, halves>(worker, row, place, staged, form);
            }
#pragma unroll
            for (uint i = 0; i < REQUESTED_UNITS; ++i) {
                uint unit = round * REQUESTED_UNITS + i;
                if (unit < place.units) {
                    SHARED const uint* run = place.runs + (unit - staged) * 32 * columns;
                    multiply_unit<CODES, SCALES, BIASES>(projection, words[i], present, run, worker.lane, sums);
                }
                request_unit<CODES, SCALES, BIASES, PAIRED>(memory, worker, projection, stream, words[i]);
            }
        }
        // Two sets of sums: one barrier is enough.
        SHARED float* shares = worker.shared + parity * worker.simdgroups * STEP_TILES * TILE_ROWS * BLOCK_ROWS;
        for (uint i = 0; i < STEP_TILES; ++i) {
            SHARED float* share = shares + (worker.simdgroup * STEP_TILES + i) * TILE_ROWS * BLOCK_ROWS + lane * 2;
            put_pair(share, sums[4 * i], sums[4 * i + 1]);
            put_pair(share + 64, sums[4 * i + 2], sums[4 * i + 3]);
        }
        worker_barrier();
        finish_step<PAIRED>(memory, worker, projection, halves ? HALVES_FACTOR(CODES) : 1.0f, shares, task, output);
        parity ^= 1;
    }
    worker_barrier();
}

// Whether this worker is the last of its team to come here: it sees what the others wrote.
TASK bool last_of_team(THREAD const Worker& worker, Counter arrivals, uint members) {
    SHARED uint* last = (SHARED uint*)worker.shared;
    worker_barrier();
    if (thread_of(worker) == 0) {
        *last = arrive(arrivals) % members == members - 1;
        acquire();
    }
    worker_barrier();
    return *last != 0;
}

// output = sum of all slices, for the tiles of a team. `slices` is that of the first.
TASK void add_slices(THREAD const Worker& worker, THREAD const Projection& projection, THREAD const Output& output,
                     DEVICE const float* slices, uint count, uint team) {
    const uint tile_floats = TILE_ROWS * BLOCK_ROWS;
    uint tiles = (projection.tiles - team + projection.stride - 1) / projection.stride;
    for (uint at = thread_of(worker); at < tiles * tile_floats; at += threads_of(worker)) {
        uint row = at % BLOCK_ROWS, column = (team + at / tile_floats * projection.stride) * TILE_ROWS + at % tile_floats / BLOCK_ROWS;
        if (row >= output.rows || column >= output.columns) continue;
        float sum = 0.0f;
        for (uint slice = 0; slice < count; ++slice) {
            sum += slices[(size_t)slice * projection.tiles * tile_floats + column * BLOCK_ROWS + row];
        }
        sum *= projection.factor;
        DEVICE float* value = output.values + (size_t)row * output.columns + column;
        *value = output.add != 0 ? *value + sum : sum;
    }
}

// Asks for the first tiles of a matrix, which all workers together multiply first: for `most` lines of 128 bytes at most.
TASK void expect_tiles(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const MatrixRecord& matrix, uint outputs, uint most) {
    uint lines = min((outputs + TILE_ROWS - 1) / TILE_ROWS * matrix.units * 4, most), scale_lines = lines / 32 * matrix.blocks / matrix.units;
    DEVICE const uchar* codes = memory.weights + (size_t)matrix.codes * 16;
    DEVICE const uchar* scales = memory.weights + (size_t)matrix.scales * 16;
    uint first = worker.index * threads_of(worker) + thread_of(worker), stride = worker.workers * threads_of(worker);
    for (uint line = first; line < lines; line += stride) expect(codes + (size_t)line * 128);
    for (uint line = first; line < scale_lines; line += stride) expect(scales + (size_t)line * 128);
}

// Asks for what a projection reads first, so that memory does not rest while something else is done.
TASK void expect_weights(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const LinearRecord& record) {
    expect_tiles(memory, worker, record.matrix, record.outputs, EXPECTED_LINES);
}
TASK void expect_weights(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const ChooseRecord& record) {
    expect_tiles(memory, worker, record.matrix, record.outputs, EXPECTED_LINES);
}
TASK void expect_weights(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const GateUpRecord& record) {
    expect_tiles(memory, worker, record.gate, record.outputs, EXPECTED_LINES / 2);
    expect_tiles(memory, worker, record.up, record.outputs, EXPECTED_LINES / 2);
}

// output = (norm(x) W^T) * tensor scale, plus what the output already holds if it is a residual. All rows of the pass, or those
// that want logits: their input lies where the pass put it, their output starts at row 0.
template <uint CODES, uint SCALES, uint BIASES>
BODY void linear(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const LinearRecord& record) {
    uint first_row = record.row_set == 0 ? 0 : memory.step->logit_first_row;
    uint rows = record.row_set == 0 ? memory.step->rows : memory.step->logit_rows;
    uint slices = record.slices, tiles = (record.outputs + TILE_ROWS - 1) / TILE_ROWS;
    uint teams = slices == 1 ? worker.workers : min(max(worker.workers / slices, 1u), MOST_TEAMS);
    // Without slices a worker is a team, and takes turns with those of the phase's other groups.
    for (uint member = slices == 1 ? first_task(worker, tiles) : worker.index; member < teams * slices; member += worker.workers) {
        uint team = member / slices, slice = member % slices;
        if (team >= tiles) break;
        Projection projection = projection_of(worker, record.matrix, record.matrix, record.outputs, teams, slice, slices);
        for (uint row = 0; row < rows; row += BLOCK_ROWS) {
            Output output = output_of(memory.arena + record.output, record.outputs, row, rows, record.add);
            DEVICE float* first_slice = memory.arena + record.partials + (size_t)row * slices * tiles * TILE_ROWS;
            if (slices > 1) output.slice = first_slice + (size_t)slice * tiles * TILE_ROWS * BLOCK_ROWS;
            project<CODES, SCALES, BIASES, 0>(memory, worker, projection, record.operand, first_row + row, output, team);
            if (slices == 1) continue;
            Counter arrivals = (Counter)(memory.states + (size_t)record.arrivals * 16) + team;
            if (last_of_team(worker, arrivals, slices)) add_slices(worker, projection, output, first_slice, slices, team);
            worker_barrier();
        }
    }
}

// output = silu(norm(x) G^T) * (norm(x) U^T)
template <uint CODES, uint SCALES, uint BIASES>
BODY void gate_up(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const GateUpRecord& record) {
    uint rows = memory.step->rows;
    Projection projection = projection_of(worker, record.gate, record.up, record.outputs, worker.workers, 0, 1);
    uint task = first_task(worker, projection.tiles);
    for (uint row = 0; task < projection.tiles && row < rows; row += BLOCK_ROWS) {
        Output output = output_of(memory.arena + record.output, record.outputs, row, rows, 0);
        project<CODES, SCALES, BIASES, 1>(memory, worker, projection, record.operand, row, output, task);
    }
}

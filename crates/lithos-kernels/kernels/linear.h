// Projections. A task is a tile of 16 output columns, for all rows; a worker takes STEP_TILES of its tasks in a step, and its
// simdgroups share the units of their tiles.
//
// A long operand is cut into slices, so that a worker can stage its own: workers of a team take the same tiles, each with one
// slice, and the last of them to come to its end adds up what all found, in the order of the slices.

// Teams at most.
#define MOST_TEAMS 256u

// Words that a lane requests into registers ahead of their use, through the steps of a projection.
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

// Words that a simdgroup requests into its ring ahead of their use, through the steps of a projection: RING_UNITS units of each tile of
// the step at a time, each into its slot when what was there before is used up. A slot has a unit of each tile, then their scales.
struct Requests {
    // First task of the step, its tiles, and its units that are left.
    uint task;
    uint tiles;
    uint left;
    // This lane's words of the first of them, and what it takes from the end of a step to the next.
    DEVICE const uchar* codes[STEP_TILES];
    DEVICE const uchar* scales;
    size_t codes_on;
    size_t scales_on;
};

TASK void set_step(THREAD const Projection& projection, uint paired, uint task, uint units, THREAD Requests& requests) {
    requests.task = task;
    requests.left = task < projection.tiles ? units : 0;
    requests.tiles = paired || task + projection.stride < projection.tiles ? 2 : 1;
}

template <uint SCALES, uint PAIRED>
TASK void begin_requests(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const Projection& projection, uint task, uint units,
                         THREAD Requests& requests) {
    uint first = projection.units.first + worker.simdgroup, tiles_on = next_step<PAIRED>(projection, task) - task;
    for (uint i = 0; i < STEP_TILES; ++i) {
        DEVICE const MatrixRecord& matrix = PAIRED && i == 1 ? projection.second : projection.first;
        Tile place = tile_of<SCALES, SCALES_NONE>(memory, matrix, projection.first_tile + step_tile<PAIRED>(projection, task, i));
        requests.codes[i] = (DEVICE const uchar*)(place.codes + first * 32 + worker.lane);
        if (i == 0 || worker.lane / 4 == i) requests.scales = place.scales + first * 64 + worker.lane % 4 * 16;
    }
    uint last = units == 0 ? 0 : (units - 1) / RING_UNITS * RING_UNITS * worker.simdgroups;
    requests.codes_on = (size_t)tiles_on * projection.units.all * 512 - (size_t)last * 512;
    requests.scales_on = (size_t)tiles_on * projection.units.all * 64 - (size_t)last * 64;
    set_step(projection, PAIRED, task, units, requests);
}

// Goes on behind the units of the ring, to the next step at the end of one.
template <uint PAIRED>
TASK void next_requests(THREAD const Worker& worker, THREAD const Projection& projection, uint units, THREAD Requests& requests) {
    bool more = requests.left > RING_UNITS;
    size_t codes_on = more ? (size_t)(RING_UNITS * 512) * worker.simdgroups : requests.codes_on;
    for (uint i = 0; i < STEP_TILES; ++i) requests.codes[i] += codes_on;
    requests.scales += more ? (size_t)(RING_UNITS * 64) * worker.simdgroups : requests.scales_on;
    if (more) {
        requests.left -= RING_UNITS;
    } else {
        set_step(projection, PAIRED, next_step<PAIRED>(projection, requests.task), units, requests);
    }
}

// Requests the `at`-th unit from where the requests are.
template <uint SCALES> TASK void request_next(THREAD const Worker& worker, SHARED uint* ring, uint at, THREAD const Requests& requests) {
    if (at < requests.left) {
        SHARED uint* slot = ring + at * RING_SLOT_WORDS + worker.lane * 4;
        for (uint i = 0; i < STEP_TILES; ++i) {
            if (i < requests.tiles) request_four(slot + i * 128, requests.codes[i] + at * worker.simdgroups * 512);
        }
        if (SCALES != SCALES_NONE && worker.lane / 4 < requests.tiles) {
            request_four(slot + 256, requests.scales + at * worker.simdgroups * 64);
        }
    }
    close_request();
}

// The requested word of a lane.
template <uint SCALES>
TASK void take_word(THREAD const Tile& tile, SHARED const uint* slot, uint i, uint unit, uint lane, THREAD UnitWord& word) {
    word.codes = requested((SHARED const uint4*)slot + i * 32 + lane, tile.codes + unit * 32 + lane);
    if (SCALES == SCALES_NONE) return;
    uint block = lane % 4 * 8 + lane / 4;
    word.scales[0] = requested((SHARED const ushort*)(slot + 256 + i * 16) + block, (DEVICE const ushort*)tile.scales + unit * 32 + block);
}

// sums += a unit of `present` tiles times the operand staged for it.
template <uint CODES, uint SCALES, uint BIASES>
TASK void multiply_unit(THREAD const Projection& projection, THREAD const UnitWord* words, uint present, SHARED const uint* run, uint lane,
                        THREAD float* sums) {
    if (IN_HALVES(CODES, SCALES)) {
        const uint right_words = FORM_WORDS(LANE_COLUMNS(CODES), OPERAND_FORM(CODES, SCALES));
        RightHalves<right_words> right;
        load_right<right_words>(run, lane, right);
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

// Adds up the shares of all simdgroups, in order, and writes the step's columns. A thread sees one row only, that of its number, whose
// factor it brings.
template <uint PAIRED>
TASK void finish_step(THREAD const Memory&, THREAD const Worker& worker, THREAD const Projection& projection, float factor,
                      SHARED const float* shares, uint task, THREAD const Output& output) {
    const uint tile_floats = TILE_ROWS * BLOCK_ROWS;
    for (uint at = thread_of(worker); at < (PAIRED ? 1 : STEP_TILES) * tile_floats; at += threads_of(worker)) {
        uint row = at % BLOCK_ROWS;
        uint tile = step_tile<PAIRED>(projection, task, at / tile_floats), column = tile * TILE_ROWS + at % tile_floats / BLOCK_ROWS;
        if (row >= output.rows || tile >= projection.tiles || column >= output.columns) continue;
        float sum = 0.0f, second = 0.0f;
        for (uint share = 0; share < worker.simdgroups; ++share) {
            sum += shares[share * STEP_TILES * tile_floats + at];
            if (PAIRED) second += shares[(share * STEP_TILES + 1) * tile_floats + at];
        }
        sum *= factor;
        if (output.slice) {
            output.slice[column * BLOCK_ROWS + row] = sum;
            continue;
        }
        DEVICE float* value = output.values + (size_t)row * output.columns + column;
        // Rounded in the same way wherever this is compiled into.
        if (PAIRED) {
            *value = silu(sum * projection.factor) * (second * factor * projection.second_factor);
        } else {
            *value = output.add != 0 ? fused(sum, projection.factor, *value) : sum * projection.factor;
        }
    }
}

// The sums of a step over this simdgroup's units, through the ring.
template <uint CODES, uint SCALES, uint PAIRED>
TASK void sum_requested(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const Projection& projection,
                        THREAD const OperandRow& row, THREAD const OperandPlace& place, float form, uint task, SHARED uint* ring,
                        THREAD Requests& requests, THREAD float* sums) {
    const uint columns = LANE_COLUMNS(CODES), run_words = 32 * FORM_WORDS(columns, FORM_HALVES);
    uint present = PAIRED || task + projection.stride < projection.tiles ? 2 : 1, lane = matrix_lane(worker.lane);
    Tile tiles[STEP_TILES];
    for (uint i = 0; i < STEP_TILES; ++i) {
        uint tile = projection.first_tile + (i < present ? step_tile<PAIRED>(projection, task, i) : task);
        tiles[i] = tile_of<SCALES, SCALES_NONE>(memory, PAIRED && i == 1 ? projection.second : projection.first, tile);
    }
    // Whole rounds that there is room for.
    uint room = place.whole ? place.units : place.room / RING_UNITS * RING_UNITS;
    for (uint staged = 0; staged < place.units; staged += room) {
        if (!place.whole) stage_units<columns, FORM_HALVES>(worker, row, place, staged, room, form);
        uint end = min(place.units, staged + room);
        SHARED const uint* run = place.runs;
#pragma unroll 1
        for (uint first = staged; first < end; first += RING_UNITS) {
            uint unit = projection.units.first + first * worker.simdgroups + worker.simdgroup;
            next_requests<PAIRED>(worker, projection, place.units, requests);
#pragma unroll
            for (uint i = 0; i < RING_UNITS; ++i) {
                await_request();
                if (first + i < end) {
                    UnitWord words[STEP_TILES];
                    for (uint tile = 0; tile < STEP_TILES; ++tile) {
                        if (tile >= present) continue;
                        take_word<SCALES>(tiles[tile], ring + i * RING_SLOT_WORDS, tile, unit + i * worker.simdgroups, lane, words[tile]);
                    }
                    multiply_unit<CODES, SCALES, SCALES_NONE>(projection, words, present, run + i * run_words, worker.lane, sums);
                }
                release_request();
                request_next<SCALES>(worker, ring, i, requests);
            }
            run += RING_UNITS * run_words;
        }
    }
}

// The same through registers.
template <uint CODES, uint SCALES, uint BIASES, uint PAIRED>
TASK void sum_streamed(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const Projection& projection,
                       THREAD const OperandRow& row, THREAD const OperandPlace& place, float form, uint task, THREAD Stream& stream,
                       THREAD UnitWord (&words)[REQUESTED_UNITS][STEP_TILES], THREAD float* sums) {
    const uint columns = LANE_COLUMNS(CODES), operand_form = OPERAND_FORM(CODES, SCALES), form_words = FORM_WORDS(columns, operand_form);
    uint present = PAIRED || task + projection.stride < projection.tiles ? 2 : 1, staged = 0;
    // Whole rounds that there is room for.
    uint room = place.room / REQUESTED_UNITS * REQUESTED_UNITS;
    for (uint round = 0; round < projection.rounds; ++round) {
        if (!place.whole && (round == 0 || round * REQUESTED_UNITS >= staged + room)) {
            staged = round * REQUESTED_UNITS;
            stage_units<columns, operand_form>(worker, row, place, staged, room, form);
        }
#pragma unroll
        for (uint i = 0; i < REQUESTED_UNITS; ++i) {
            uint unit = round * REQUESTED_UNITS + i;
            if (unit < place.units) {
                SHARED const uint* run = place.runs + (unit - staged) * 32 * form_words;
                multiply_unit<CODES, SCALES, BIASES>(projection, words[i], present, run, worker.lane, sums);
            }
            request_unit<CODES, SCALES, BIASES, PAIRED>(memory, worker, projection, stream, words[i]);
        }
    }
}

// The same of BF16, from the operand that was staged in halves for units of `COLUMNS` columns a lane: some of its own make one of those.
template <uint CODES, uint COLUMNS>
TASK void sum_beside(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const Projection& projection,
                     THREAD const OperandRow& row, THREAD const OperandPlace& place, float form, uint task, THREAD float* sums) {
    // Words whose loads are under way at once.
    const uint at_once = 4, parts = COLUMNS / LANE_COLUMNS(CODES) + (COLUMNS == 0 ? 1 : 0);
    uint lane = matrix_lane(worker.lane);
    for (uint i = 0; i < STEP_TILES; ++i) {
        if (task + i * projection.stride >= projection.tiles) continue;
        Tile tile = tile_of<SCALES_NONE, SCALES_NONE>(memory, projection.first, projection.first_tile + task + i * projection.stride);
        for (uint staged = 0; staged < place.units; staged += place.room) {
            if (!place.whole) stage_units<COLUMNS, FORM_HALVES>(worker, row, place, staged, place.room, form);
            uint end = min(place.units - staged, place.room) * parts;
#pragma unroll 1
            for (uint first = 0; first < end; first += at_once) {
                UnitWord words[at_once];
#pragma unroll
                for (uint j = 0; j < at_once; ++j) {
                    uint at = first + j, unit = ((staged + at / parts) * worker.simdgroups + worker.simdgroup) * parts + at % parts;
                    words[j].codes.x = words[j].codes.y = words[j].codes.z = words[j].codes.w = 0;
                    if (at < end && unit < projection.units.end) words[j].codes = load_once(tile.codes + unit * 32 + lane);
                }
#pragma unroll
                for (uint j = 0; j < at_once; ++j) {
                    uint at = min(first + j, end - 1);
                    SHARED const uint* run = place.runs + at / parts * 32 * FORM_WORDS(COLUMNS, FORM_HALVES);
                    float low[4], high[4];
                    decode_word<CODES, SCALES_NONE, SCALES_NONE>(words[j], 0, low, high);
                    multiply_beside<COLUMNS>(run, worker.lane, at % parts, low, high, sums + 4 * i);
                }
            }
        }
    }
}

// Where the shares of a step's sums lie.
TASK SHARED float* shares_of_step(THREAD const Worker& worker, uint step) {
    return worker.shared + step % SUM_SETS * worker.simdgroups * STEP_TILES * TILE_ROWS * BLOCK_ROWS;
}

// Projects up to BLOCK_ROWS rows; `finish_step` puts the sums of each step into `output`, which has `rows`. Every row's sum has the same
// order whatever the number of rows. Simdgroups do not wait for each other at the end of a step: they add up its sums at the end of the
// next.
//
// A matrix of BF16 beside one that is multiplied in halves takes the operand as that one has staged it: `BESIDE` is the columns of a lane
// there, or 0.
template <uint CODES, uint SCALES, uint BIASES, uint PAIRED, uint BESIDE = 0, class OUTPUT>
TASK void project(THREAD const Memory& given_memory, THREAD Worker& given_worker, THREAD const Projection& projection,
                  DEVICE const OperandRecord& operand, uint first_row, THREAD OUTPUT& output, uint task) {
    const uint columns = BESIDE != 0 ? BESIDE : LANE_COLUMNS(CODES), form = BESIDE != 0 ? FORM_HALVES : OPERAND_FORM(CODES, SCALES);
    const bool ringed = form == FORM_HALVES && BESIDE == 0;
    // Copies, which stay in registers also where bodies are called.
    Memory memory = given_memory;
    Worker worker = given_worker;
    worker.simdgroups = SIMDGROUPS(worker.simdgroups);
    if (worker.steps == NOTHING) {
        begin_sets(thread_of(worker), worker.simdgroups);
        worker.steps = 0;
    }
    UnitRange staged_units = projection.units;
    if (BESIDE != 0) staged_units.end = staged_units.all = (operand.width + 4 * columns - 1) / (4 * columns);
    OperandPlace place = operand_place<columns, form>(worker, staged_units);
    SHARED uint* ring = worker.operand + worker.simdgroup * RING_UNITS * RING_SLOT_WORDS;
    Requests requests;
    if (ringed) {
        // Weights are on their way before the operand is there.
        begin_requests<SCALES, PAIRED>(memory, worker, projection, task, place.units, requests);
        for (uint i = 0; i < RING_UNITS; ++i) request_next<SCALES>(worker, ring, i, requests);
    }
    expect_norm<columns>(memory, worker, operand, place);
    await_previous();
    OperandRow row = operand_row<columns>(memory, worker, operand, projection.gathered, first_row, output.rows);
    float factor = 1.0f;
    if (!is_staged<columns, form>(worker, operand, place, projection.gathered, first_row, output.rows)) {
        factor = stage_operand<columns, form>(worker, row, place);
    }
    // Again, so that the loads of the operand have the registers.
    if (ringed) begin_requests<SCALES, PAIRED>(memory, worker, projection, task, place.units, requests);
    uint lane = matrix_lane(worker.lane);
    float undo = operand_statistics(worker, worker.simdgroup, lane % 4 * 2)[1];
    float second_undo = operand_statistics(worker, worker.simdgroup, lane % 4 * 2 + 1)[1];

    // Not before: what waits for its use takes registers from the loads of the operand.
    Stream stream;
    UnitWord words[REQUESTED_UNITS][STEP_TILES];
    if (!ringed && BESIDE == 0) {
        begin_step<SCALES, BIASES, PAIRED>(memory, projection, task, stream);
#pragma unroll
        for (uint i = 0; i < REQUESTED_UNITS; ++i) {
            request_unit<CODES, SCALES, BIASES, PAIRED>(memory, worker, projection, stream, words[i]);
        }
    }
    uint pending = NOTHING;
    float row_factor = 0.0f;
    for (;; task = next_step<PAIRED>(projection, task)) {
        bool more = task < projection.tiles;
        if (more) {
            float sums[4 * STEP_TILES];
            for (uint i = 0; i < 4 * STEP_TILES; ++i) sums[i] = 0.0f;
            if (BESIDE != 0) {
                sum_beside<CODES, columns>(memory, worker, projection, row, place, factor, task, sums);
            } else if (ringed) {
                sum_requested<CODES, SCALES, PAIRED>(memory, worker, projection, row, place, factor, task, ring, requests, sums);
            } else {
                sum_streamed<CODES, SCALES, BIASES, PAIRED>(memory, worker, projection, row, place, factor, task, stream, words, sums);
            }
            await_empty_set(worker.steps);
            SHARED float* shares = shares_of_step(worker, worker.steps);
            for (uint i = 0; i < STEP_TILES; ++i) {
                SHARED float* share = shares + (worker.simdgroup * STEP_TILES + i) * TILE_ROWS * BLOCK_ROWS + lane * 2;
                put_pair(share, sums[4 * i] * undo, sums[4 * i + 1] * second_undo);
                put_pair(share + 64, sums[4 * i + 2] * undo, sums[4 * i + 3] * second_undo);
            }
            announce_full_set(worker.steps, worker.lane);
            worker.steps += 1;
        }
        if (pending != NOTHING) {
            uint step = worker.steps - (more ? 2 : 1);
            await_full_set(step);
            if (row_factor == 0.0f) {
                row_factor = norm_factor(worker, row, thread_of(worker) % BLOCK_ROWS) * (ringed ? HALVES_FACTOR(CODES) : 1.0f);
            }
            finish_step<PAIRED>(memory, worker, projection, row_factor, shares_of_step(worker, step), pending, output);
            announce_empty_set(step, worker.lane);
        }
        if (!more) break;
        pending = task;
    }
    given_worker.steps = worker.steps;
    given_worker.staged = worker.staged;
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
        DEVICE float* value = output.values + (size_t)row * output.columns + column;
        *value = output.add != 0 ? fused(sum, projection.factor, *value) : sum * projection.factor;
    }
}

// output = (norm(x) W^T) * tensor scale, plus what the output already holds if it is a residual. All rows of the pass, or those
// that want logits: their input lies where the pass put it, their output starts at row 0.
template <uint CODES, uint SCALES, uint BIASES>
BODY void linear(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const LinearRecord& record) {
    uint first_row = record.row_set == 0 ? 0 : memory.step->logit_first_row;
    uint rows = record.row_set == 0 ? memory.step->rows : memory.step->logit_rows;
    uint slices = record.slices, tiles = (record.outputs + TILE_ROWS - 1) / TILE_ROWS;
    uint teams = slices == 1 ? worker.workers : min(max(worker.workers / slices, 1u), MOST_TEAMS);
    // A worker takes turns with those of the phase's other groups; without slices it is a team.
    uint members = slices == 1 ? teams : min(teams, tiles) * slices;
    for (uint member = first_task(worker, slices == 1 ? tiles : members); member < members; member += worker.workers) {
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

// The same beside a matrix of the phase that is multiplied in halves with the same rows, of which a lane has `COLUMNS` columns.
template <uint CODES, uint SCALES, uint BIASES, uint COLUMNS>
BODY void linear_beside(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const LinearRecord& record) {
    if (!TAKES_STAGED) {
        linear<CODES, SCALES, BIASES>(memory, worker, record);
        return;
    }
    uint first_row = record.row_set == 0 ? 0 : memory.step->logit_first_row;
    uint rows = record.row_set == 0 ? memory.step->rows : memory.step->logit_rows;
    Projection projection = projection_of(worker, record.matrix, record.matrix, record.outputs, worker.workers, 0, 1);
    uint task = first_task(worker, projection.tiles);
    for (uint row = 0; task < projection.tiles && row < rows; row += BLOCK_ROWS) {
        Output output = output_of(memory.arena + record.output, record.outputs, row, rows, record.add);
        project<CODES, SCALES, BIASES, 0, COLUMNS>(memory, worker, projection, record.operand, first_row + row, output, task);
    }
}

// Asks for the matrix of such a projection: all workers together, before they begin another one.
TASK void expect_beside(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const LinearRecord& record) {
    if (!TAKES_STAGED) return;
    uint lines = (record.outputs + TILE_ROWS - 1) / TILE_ROWS * record.matrix.units * 4;
    for (uint line = thread_of(worker) * worker.workers + worker.index; line < lines; line += threads_of(worker) * worker.workers) {
        expect(memory.weights + (size_t)record.matrix.codes * 16 + (size_t)line * 128);
    }
}

// What projections write whose matrices lie one under the other: each its own rows.
struct RunOutput {
    DEVICE float* arena;
    DEVICE const LinearRecord* records;
    uint row;
    uint rows;
};

// Adds up the shares of all simdgroups, in order, and writes the step's columns where their projection wants them.
template <uint PAIRED>
TASK void finish_step(THREAD const Memory&, THREAD const Worker& worker, THREAD const Projection& projection, float factor,
                      SHARED const float* shares, uint task, THREAD const RunOutput& output) {
    const uint tile_floats = TILE_ROWS * BLOCK_ROWS;
    for (uint at = thread_of(worker); at < STEP_TILES * tile_floats; at += threads_of(worker)) {
        uint row = at % BLOCK_ROWS, tile = step_tile<PAIRED>(projection, task, at / tile_floats);
        if (row >= output.rows || tile >= projection.tiles) continue;
        DEVICE const LinearRecord* record = output.records;
        for (uint tiles = (record->outputs + TILE_ROWS - 1) / TILE_ROWS; tile >= tiles; tiles = (record->outputs + TILE_ROWS - 1) / TILE_ROWS) {
            tile -= tiles;
            ++record;
        }
        uint column = tile * TILE_ROWS + at % tile_floats / BLOCK_ROWS;
        if (column >= record->outputs) continue;
        float sum = 0.0f;
        for (uint share = 0; share < worker.simdgroups; ++share) sum += shares[share * STEP_TILES * tile_floats + at];
        sum *= factor;
        sum *= record->matrix.tensor_scale;
        output.arena[record->output + (size_t)(output.row + row) * record->outputs + column] = sum;
    }
}

// `count` projections of the same operand whose matrices lie one under the other, as if they were one.
template <uint CODES, uint SCALES, uint BIASES>
BODY void linear_run(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const LinearRecord& first, uint count) {
    DEVICE const LinearRecord* records = &first;
    uint first_row = first.row_set == 0 ? 0 : memory.step->logit_first_row;
    uint rows = first.row_set == 0 ? memory.step->rows : memory.step->logit_rows, tiles = 0;
    for (uint i = 0; i < count; ++i) tiles += (records[i].outputs + TILE_ROWS - 1) / TILE_ROWS;
    Projection projection = projection_of(worker, first.matrix, first.matrix, tiles * TILE_ROWS, worker.workers, 0, 1);
    uint task = first_task(worker, tiles);
    for (uint row = 0; task < tiles && row < rows; row += BLOCK_ROWS) {
        RunOutput output = {memory.arena, records, row, min(BLOCK_ROWS, rows - row)};
        project<CODES, SCALES, BIASES, 0>(memory, worker, projection, first.operand, first_row + row, output, task);
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

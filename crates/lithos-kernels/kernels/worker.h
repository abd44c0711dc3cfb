// A worker, what it can reach, and how it takes tasks.

// Most rows of a pass.
#define MOST_ROWS 16
// Rows of the pass that a product takes at once.
#define BLOCK_ROWS 8u
// Tiles of a matrix that a worker multiplies at once, so that it loads their operand once.
#define STEP_TILES 2
// Floats that the simdgroups of a worker share for projections: sums of some steps, two statistics of each row.
#define SUMS_FLOATS(simdgroups) (SUM_SETS * (simdgroups) * STEP_TILES * BLOCK_ROWS * 16)
#define OPERAND_AT(simdgroups) (SUMS_FLOATS(simdgroups) + (simdgroups) * BLOCK_ROWS * 2)
// Turns that a join waits before it gives up.
#ifndef MOST_TURNS
#define MOST_TURNS 400000000u
#endif
// Turns after which a waiting worker looks whether another one gave up: a power of two.
#define TURNS_TO_LOOK 64u
#define NOTHING 0xffffffffu
// Widest head of attention, in lanes' worth of 32; widest key of the delta rule, in quarters.
#define MOST_LANE_WIDTH 8
#define MOST_QUARTER_WIDTH 32

// Buffers that every task may read. Offsets into weights and states count 16 bytes, so that 32 bits reach 64 GB. The end of a pass
// writes the step's state and tokens of the next.
struct Memory {
    DEVICE const uchar* weights;
    DEVICE float* arena;
    DEVICE uchar* states;
    DEVICE StepState* step;
    DEVICE uint* tokens;
    DEVICE const uint* pages;
    Counter joins;
};

// Rows that lie in shared memory in the form that a projection multiplies; nothing yet if `form` is 0.
struct Staged {
    uint form;
    uint input;
    uint norm;
    uint block;
};

// The threads that work together on a task.
struct Worker {
    uint lane;
    uint simdgroup;
    uint simdgroups;
    uint index;
    uint workers;
    // Tasks of earlier groups of the phase: the next group starts with the worker after theirs.
    uint taken;
    SHARED float* shared;
    // Where the operand of projections is staged, and words of it.
    SHARED uint* operand;
    uint operand_words;
    // Steps of projections so far, if it has begun any; NOTHING before.
    uint steps;
    // Which operand that is.
    Staged staged;
};

TASK uint thread_of(THREAD const Worker& worker) { return worker.simdgroup * 32 + worker.lane; }
TASK uint threads_of(THREAD const Worker& worker) { return worker.simdgroups * 32; }

// This worker's first task of a group of `count`.
TASK uint first_task(THREAD Worker& worker, uint count) {
    uint first = (worker.index + worker.workers - worker.taken % worker.workers) % worker.workers;
    worker.taken += count;
    return first;
}

// The same for tasks of which every simdgroup takes one: the next is `simdgroup_stride` further.
TASK uint first_simdgroup_task(THREAD Worker& worker, uint count) { return first_task(worker, count) + worker.simdgroup * worker.workers; }
TASK uint simdgroup_stride(THREAD const Worker& worker) { return worker.simdgroups * worker.workers; }

TASK DEVICE const float* small_array(THREAD const Memory& memory, uint offset) {
    return (DEVICE const float*)(memory.weights + (size_t)offset * 16);
}

// All workers have finished the phase and see what it wrote. The counter only ever grows: the ticket says which
// multiple of the workers completes this join. A worker that waits too long sets the error flag to the number of the join,
// counted from 1, and goes on.
TASK void join(THREAD const Memory& memory, THREAD Worker& worker) {
    worker_barrier();
    if (thread_of(worker) == 0) {
        uint ticket = arrive(memory.joins);
        uint target = (ticket / worker.workers + 1) * worker.workers;
        uint turns = 0;
        while ((int)(observe(memory.joins) - target) < 0) {
            if (++turns % TURNS_TO_LOOK != 0) continue;
            if (observe(memory.joins + 1) != 0) break;
            if (turns >= MOST_TURNS) {
                publish(memory.joins + 1, target / worker.workers);
                break;
            }
        }
        acquire();
    }
    worker_barrier();
    worker.taken = 0;
    worker.staged.form = 0;
}

// Asks for the records of what comes next, which the stream of weights has pushed out of the caches.
TASK void expect_records(THREAD const Worker& worker, DEVICE const uint* records) {
    if (worker.index == 0 && worker.simdgroup == 0 && worker.lane < 3) expect((DEVICE const uchar*)(records + worker.lane * 32));
}

TASK float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
TASK float silu(float x) { return x * sigmoid(x); }

// Slot entry that owns a row of the pass.
TASK uint slot_of_row(THREAD const Memory& memory, uint row) {
    uint entry = 0;
    while (row >= memory.step->slots[entry].first_row + memory.step->slots[entry].rows) ++entry;
    return entry;
}

TASK uint position_of_row(THREAD const Memory& memory, uint row) {
    uint entry = slot_of_row(memory, row);
    return memory.step->slots[entry].position + row - memory.step->slots[entry].first_row;
}

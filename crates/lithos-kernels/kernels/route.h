// The choice of experts. A task is the pass: besides choosing for each row, it groups the rows by expert, so that later tasks read an
// expert's matrices once for all rows that chose it.

// Experts of a mixture at most, in lanes' worth of 32, and of a row.
#define MOST_LANE_EXPERTS 16u
#define MOST_CHOSEN 16u

// What the choice finds, in the arena. A pair is an expert of a row: row * chosen + its place among the row's experts. Pairs are put
// in the order of their experts, and of one expert, of their rows; those of one expert are a group.
struct Routes {
    // Weight of each pair, and where it comes in that order.
    DEVICE float* weights;
    DEVICE float* places;
    // Row of the pair that comes there.
    DEVICE float* rows;
    // Expert of each group, and where its first pair comes; behind the last group, the number of pairs.
    DEVICE float* experts;
    DEVICE float* firsts;
    // How many groups there are.
    DEVICE float* groups;
};

TASK Routes routes_of(THREAD const Memory& memory, uint at, uint chosen) {
    DEVICE float* start = memory.arena + at;
    uint pairs = MOST_ROWS * chosen;
    return {start, start + pairs, start + 2 * pairs, start + 3 * pairs, start + 4 * pairs, start + 5 * pairs + 1};
}

// Chooses for a row, with a simdgroup: the experts of the largest logits, of equal ones that with the lower index first, NaN being the
// smallest; and the softmax over these logits.
TASK void choose_experts(THREAD const Worker& worker, DEVICE const float* logits, uint count, uint chosen, SHARED float* experts,
                         SHARED float* weights) {
    float mine[MOST_LANE_EXPERTS];
#pragma unroll
    for (uint i = 0; i < MOST_LANE_EXPERTS; ++i) {
        uint expert = i * 32 + worker.lane;
        float logit = expert < count ? logits[expert] : -INFINITY;
        mine[i] = logit > -INFINITY ? logit : -INFINITY;
    }
    Candidate last = no_candidate();
    float largest = 0.0f, sum = 0.0f;
    for (uint place = 0; place < chosen; ++place) {
        Candidate best = no_candidate();
#pragma unroll
        for (uint i = 0; i < MOST_LANE_EXPERTS; ++i) {
            Candidate candidate = {mine[i], i * 32 + worker.lane};
            bool left = candidate.token < count && (place == 0 || precedes(last, candidate));
            if (left && precedes(candidate, best)) best = candidate;
        }
        last = lane_first(best);
        if (place == 0) largest = last.value;
        float weight = exponential(last.value - largest);
        sum += weight;
        if (worker.lane == 0) {
            experts[place] = (float)last.token;
            weights[place] = weight;
        }
    }
    simd_fence();
    for (uint place = worker.lane; place < chosen; place += 32) weights[place] /= sum;
}

BODY void route(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const RouteRecord& record) {
    if (first_task(worker, 1) != 0) return;
    await_previous();
    uint chosen = record.chosen, pairs = memory.step->rows * chosen;
    SHARED float* experts = worker.shared;
    SHARED float* weights = experts + MOST_ROWS * MOST_CHOSEN;
    SHARED float* leads = weights + MOST_ROWS * MOST_CHOSEN;
    Routes routes = routes_of(memory, record.routes, chosen);
    worker.staged.form = 0;
    worker_barrier();
    for (uint row = worker.simdgroup; row < memory.step->rows; row += worker.simdgroups) {
        choose_experts(worker, memory.arena + record.logits + (size_t)row * record.experts, record.experts, chosen, experts + row * chosen,
                       weights + row * chosen);
    }
    worker_barrier();
    // Where each pair comes, and whether it is the first of its group.
    for (uint pair = thread_of(worker); pair < pairs; pair += threads_of(worker)) {
        uint place = 0, earlier = 0;
        for (uint other = 0; other < pairs; ++other) {
            uint same = experts[other] == experts[pair] && other < pair ? 1 : 0;
            earlier += same;
            place += same + (experts[other] < experts[pair] ? 1 : 0);
        }
        leads[pair] = earlier == 0 ? 1.0f : 0.0f;
        routes.weights[pair] = weights[pair];
        routes.places[pair] = (float)place;
        routes.rows[place] = (float)(pair / chosen);
    }
    worker_barrier();
    for (uint pair = thread_of(worker); pair < pairs; pair += threads_of(worker)) {
        uint group = 0, groups = 0;
        for (uint other = 0; other < pairs; ++other) {
            groups += leads[other] != 0.0f ? 1 : 0;
            group += leads[other] != 0.0f && experts[other] < experts[pair] ? 1 : 0;
        }
        if (leads[pair] != 0.0f) {
            routes.experts[group] = experts[pair];
            routes.firsts[group] = routes.places[pair];
        }
        if (pair == 0) {
            routes.firsts[groups] = (float)pairs;
            *routes.groups = (float)groups;
        }
    }
    worker_barrier();
}

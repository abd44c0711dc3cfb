// The end of a pass: logits, or the tokens chosen from them, and what the next pass needs.
//
// A worker multiplies its tiles of the head and keeps what it needs of them: the best token of each row, or a list. The last worker
// that comes to its end merges what all have kept, chooses, and prepares the next pass. So there is no join, and no logit is written
// where a row's best token is all that is asked for.
//
// Tokens are drawn by adding Gumbel noise to logits and taking the largest: softmax(logits / temperature) without a sum (Gumbel 1954;
// Maddison, Tarlow and Minka 2014). The noise of a token is a function of seed, position and token alone.

// Workers at most that share the head.
#define MOST_CHOOSERS 256u
// Tokens that a worker keeps of a row at most, and most of top-k.
#define LIST_ENTRIES 64u
// Tokens of a slot's ring.
#define RING_TOKENS 64u
// The upper bit of a token's count says that it is in the prompt; the others, how often it was generated.
#define GENERATED_BITS 0x7fffffffu

// What a worker keeps of a row: nothing; the largest logit; the largest sum of logit and noise; the most likely tokens; of every
// tail of the row in order of logits the token with the largest sum.
#define KEEP_NOTHING 0
#define KEEP_LARGEST 1
#define KEEP_NOISY 2
#define KEEP_TOP 3
#define KEEP_STAIRS 4

// A token with its logit, or with what it is compared by.
struct Candidate {
    float value;
    uint token;
};

// Whether `a` comes before `b`: the larger value, and of equal ones the first token. NaN comes before nothing.
TASK bool precedes(Candidate a, Candidate b) { return a.value > b.value || (a.value == b.value && a.token < b.token); }

TASK Candidate no_candidate() { return {-INFINITY, NOTHING}; }

// The first of all lanes' candidates.
TASK Candidate lane_first(Candidate mine) {
    for (uint mask = 16; mask > 0; mask /= 2) {
        Candidate other = {lane_xor(mine.value, mask), lane_xor(mine.token, mask)};
        if (precedes(other, mine)) mine = other;
    }
    return mine;
}

// One of the four words of Philox 4x32-10 (Salmon et al. 2011) for a token's four: the key is the seed.
TASK uint random_word(uint seed_low, uint seed_high, uint position, uint token) {
    uint a = token / 4, b = position, c = 0, d = 0;
    for (uint round = 0; round < 10; ++round) {
        uint first = 0xd2511f53u * a, first_upper = multiply_upper(0xd2511f53u, a);
        uint second = 0xcd9e8d57u * c, second_upper = multiply_upper(0xcd9e8d57u, c);
        a = second_upper ^ b ^ seed_low;
        b = second;
        c = first_upper ^ d ^ seed_high;
        d = first;
        seed_low += 0x9e3779b9u;
        seed_high += 0xbb67ae85u;
    }
    return token % 4 == 0 ? a : token % 4 == 1 ? b : token % 4 == 2 ? c : d;
}

// -ln(-ln(1 - u)) for a word's share u of 2^32. A series where u is small, so that large noise is as fine as the word.
TASK float gumbel_noise(uint word) {
    float share = ((float)word + 0.5f) * 2.3283064365386963e-10f;
    float waited = share < 0.015625f ? share * (1.0f + share * (0.5f + share * (0.333333343f + share * 0.25f))) : -logarithm(1.0f - share);
    return -logarithm(waited);
}

// A row that tokens are chosen for.
struct ChoiceRow {
    DEVICE const Choice* choice;
    uint slot;
    uint position;
    uint keep;
    bool adjusted;
};

TASK ChoiceRow choice_row(THREAD const Memory& memory, uint row) {
    DEVICE const StepState& step = *memory.step;
    uint entry = slot_of_row(memory, row);
    uint slot = step.slots[entry].slot;
    DEVICE const Choice* choice = &step.choices[slot];
    uint keep = KEEP_NOISY;
    if (choice->temperature == 0.0f) {
        keep = KEEP_LARGEST;
    } else if (choice->top_k != 0) {
        keep = KEEP_TOP;
    } else if (choice->floor > -INFINITY) {
        keep = KEEP_STAIRS;
    }
    return {choice, slot, step.slots[entry].position + row - step.slots[entry].first_row, keep, choice->adjust != 0};
}

TASK DEVICE uint* state_words(THREAD const Memory& memory, uint offset) { return (DEVICE uint*)(memory.states + (size_t)offset * 16); }

// A logit after penalties, bias and mask.
TASK float adjusted_logit(THREAD const Memory& memory, DEVICE const ChooseRecord& record, THREAD const ChoiceRow& row, uint token, float logit) {
    DEVICE const Choice& choice = *row.choice;
    size_t first = (size_t)row.slot * record.outputs;
    if (choice.adjust & ADJUST_COUNTS) {
        uint count = state_words(memory, record.counts)[first + token], generated = count & GENERATED_BITS;
        if (count != 0) logit = logit > 0.0f ? logit / choice.repetition_penalty : logit * choice.repetition_penalty;
        if (generated != 0) logit -= choice.presence_penalty + choice.frequency_penalty * (float)generated;
    }
    if (choice.adjust & ADJUST_BIAS) logit += float_of_bits(state_words(memory, record.biases)[first + token]);
    if (choice.adjust & ADJUST_MASK) {
        uint words = (record.outputs + 31) / 32;
        uint word = state_words(memory, record.masks)[(size_t)row.slot * words + token / 32];
        if ((word >> token % 32 & 1u) == 0) logit = -INFINITY;
    }
    return logit;
}

// What tokens are drawn by.
TASK float noisy_logit(THREAD const ChoiceRow& row, uint token, float logit) {
    DEVICE const Choice& choice = *row.choice;
    return logit + choice.temperature * gumbel_noise(random_word(choice.seed[0], choice.seed[1], row.position, token));
}

// What becomes of the logits of a block of rows.
struct Chooser {
    DEVICE const ChooseRecord& record;
    // Of the rows, the one that this thread sees.
    ChoiceRow row;
    Candidate best;
    uint rows;
    // Where logits are written; nowhere if null.
    DEVICE float* logits;
};

// Adds up the shares of all simdgroups, in order, and keeps what is asked for. A thread sees one row only, that of its number, whose
// factor it brings.
template <uint PAIRED>
TASK void finish_step(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const Projection& projection, float factor,
                      SHARED const float* shares, uint task, THREAD Chooser& chooser) {
    DEVICE const ChooseRecord& record = chooser.record;
    const uint tile_floats = TILE_ROWS * BLOCK_ROWS;
    for (uint at = thread_of(worker); at < STEP_TILES * tile_floats; at += threads_of(worker)) {
        uint row = at % BLOCK_ROWS;
        uint token = step_tile<0>(projection, task, at / tile_floats) * TILE_ROWS + at % tile_floats / BLOCK_ROWS;
        if (row >= chooser.rows || token >= record.outputs) continue;
        float sum = 0.0f;
        for (uint share = 0; share < worker.simdgroups; ++share) sum += shares[share * STEP_TILES * tile_floats + at];
        sum *= factor;
        sum *= projection.factor;
        if (chooser.logits) chooser.logits[(size_t)row * record.outputs + token] = sum;
        if (chooser.row.keep != KEEP_LARGEST && chooser.row.keep != KEEP_NOISY) continue;
        if (chooser.row.adjusted) sum = adjusted_logit(memory, record, chooser.row, token, sum);
        Candidate candidate = {chooser.row.keep == KEEP_NOISY ? noisy_logit(chooser.row, token, sum) : sum, token};
        if (precedes(candidate, chooser.best)) chooser.best = candidate;
    }
}

// The candidates that a worker keeps of a row of the logits; one that is nothing ends them, unless they are full.
struct List {
    DEVICE uint* words;
};

TASK List list_of(THREAD const Memory& memory, DEVICE const ChooseRecord& record, uint row, uint chooser) {
    size_t entry = ((size_t)row * MOST_CHOOSERS + chooser) * LIST_ENTRIES;
    return {(DEVICE uint*)(memory.arena + record.lists) + entry * 2};
}

TASK void put_entry(List list, uint entry, Candidate candidate) {
    list.words[entry * 2] = bits_of_float(candidate.value);
    list.words[entry * 2 + 1] = candidate.token;
}

TASK Candidate get_entry(List list, uint entry) {
    if (entry >= LIST_ENTRIES) return no_candidate();
    uint token = list.words[entry * 2 + 1];
    return token == NOTHING ? no_candidate() : Candidate{float_of_bits(list.words[entry * 2]), token};
}

// The first of the threads' best tokens becomes the worker's list: for each row by one simdgroup.
TASK void keep_best(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const ChooseRecord& record, uint first_row,
                    THREAD const Chooser& chooser) {
    SHARED float* values = worker.shared;
    SHARED uint* tokens = (SHARED uint*)worker.shared + threads_of(worker);
    values[thread_of(worker)] = chooser.best.value;
    tokens[thread_of(worker)] = chooser.best.token;
    worker_barrier();
    for (uint row = worker.simdgroup; row < chooser.rows; row += worker.simdgroups) {
        uint keep = choice_row(memory, memory.step->logit_first_row + first_row + row).keep;
        if (keep != KEEP_LARGEST && keep != KEEP_NOISY) continue;
        Candidate best = no_candidate();
        for (uint at = worker.lane * BLOCK_ROWS + row; at < threads_of(worker); at += 32 * BLOCK_ROWS) {
            Candidate other = {values[at], tokens[at]};
            if (precedes(other, best)) best = other;
        }
        best = lane_first(best);
        if (worker.lane == 0) put_entry(list_of(memory, record, first_row + row, worker.index), 0, best);
    }
    worker_barrier();
}

// A worker's own logits of a row, as lanes see them.
struct OwnLogits {
    DEVICE const float* logits;
    uint first;
    uint stride;
    uint tokens;
};

// The `i`-th token of this worker; beyond the vocabulary if there is none.
TASK uint own_token(THREAD const OwnLogits& own, uint i) { return (own.first + i / TILE_ROWS * own.stride) * TILE_ROWS + i % TILE_ROWS; }

// Of this lane's tokens the first in the order of logits that comes after `last`.
TASK Candidate next_own(THREAD const Memory& memory, DEVICE const ChooseRecord& record, THREAD const ChoiceRow& row,
                        THREAD const OwnLogits& own, uint lane, Candidate last) {
    Candidate next = no_candidate();
    for (uint i = lane; own_token(own, i) / TILE_ROWS * TILE_ROWS < own.tokens; i += 32) {
        uint token = own_token(own, i);
        if (token >= own.tokens) continue;
        Candidate candidate = {adjusted_logit(memory, record, row, token, own.logits[token]), token};
        if (precedes(last, candidate) && precedes(candidate, next)) next = candidate;
    }
    return next;
}

// The most likely tokens, in order.
TASK void keep_top(THREAD const Memory& memory, DEVICE const ChooseRecord& record, THREAD const ChoiceRow& row, THREAD const OwnLogits& own,
                   uint lane, List list) {
    uint most = min(row.choice->top_k, LIST_ENTRIES);
    Candidate mine = next_own(memory, record, row, own, lane, {INFINITY, 0});
    for (uint entry = 0; entry < most; ++entry) {
        Candidate first = lane_first(mine);
        if (lane == 0) put_entry(list, entry, first);
        if (first.token == NOTHING) return;
        if (mine.token == first.token) mine = next_own(memory, record, row, own, lane, first);
    }
    if (lane == 0 && most < LIST_ENTRIES) put_entry(list, most, no_candidate());
}

// Tokens in order of rising logits, each with the largest sum of logit and noise of all with a logit as large or larger. Wherever the row
// is cut below, the largest sum of what is left is among them; and the last has the largest logit. Of n tokens they are about ln n.
TASK void keep_stairs(THREAD const Memory& memory, DEVICE const ChooseRecord& record, THREAD const ChoiceRow& row,
                      THREAD const OwnLogits& own, uint lane, List list) {
    float largest = lane_max(next_own(memory, record, row, own, lane, {INFINITY, 0}).value);
    // The row's largest logit is no smaller, so what lies below this is dropped in the end.
    float least = largest + row.choice->floor, passed = -INFINITY;
    for (uint entry = 0; entry < LIST_ENTRIES; ++entry) {
        // A list that is almost full, which hardly ever happens, ends with the largest logit.
        if (entry + 1 == LIST_ENTRIES) least = largest;
        Candidate best = no_candidate();
        for (uint i = lane; own_token(own, i) / TILE_ROWS * TILE_ROWS < own.tokens; i += 32) {
            uint token = own_token(own, i);
            if (token >= own.tokens) continue;
            float logit = adjusted_logit(memory, record, row, token, own.logits[token]);
            if (!(logit > passed) || logit < least) continue;
            Candidate candidate = {noisy_logit(row, token, logit), token};
            if (precedes(candidate, best)) best = candidate;
        }
        best = lane_first(best);
        if (best.token == NOTHING) {
            if (lane == 0) put_entry(list, entry, best);
            return;
        }
        passed = adjusted_logit(memory, record, row, best.token, own.logits[best.token]);
        if (lane == 0) put_entry(list, entry, {passed, best.token});
    }
}

// What this worker keeps of rows that need more than their best token: for each row by one simdgroup.
TASK void keep_lists(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const ChooseRecord& record, uint first_row, uint rows,
                     uint choosers) {
    for (uint row = worker.simdgroup; row < rows; row += worker.simdgroups) {
        ChoiceRow chosen = choice_row(memory, memory.step->logit_first_row + first_row + row);
        List list = list_of(memory, record, first_row + row, worker.index);
        OwnLogits own = {memory.arena + record.output + (size_t)(first_row + row) * record.outputs, worker.index, choosers, record.outputs};
        if (chosen.keep == KEEP_TOP) keep_top(memory, record, chosen, own, worker.lane, list);
        if (chosen.keep == KEEP_STAIRS) keep_stairs(memory, record, chosen, own, worker.lane, list);
    }
}

// The first of all workers' best.
TASK uint merge_best(THREAD const Memory& memory, DEVICE const ChooseRecord& record, uint row, uint choosers, uint lane) {
    Candidate best = no_candidate();
    for (uint chooser = lane; chooser < choosers; chooser += 32) {
        Candidate other = get_entry(list_of(memory, record, row, chooser), 0);
        if (precedes(other, best)) best = other;
    }
    return lane_first(best).token;
}

// Of all workers' stairs the largest sum of those that are not dropped.
TASK uint merge_stairs(THREAD const Memory& memory, DEVICE const ChooseRecord& record, THREAD const ChoiceRow& chosen, uint row,
                       uint choosers, uint lane) {
    float largest = -INFINITY;
    for (uint chooser = lane; chooser < choosers; chooser += 32) {
        List list = list_of(memory, record, row, chooser);
        for (uint entry = 0; get_entry(list, entry).token != NOTHING; ++entry) largest = max(largest, get_entry(list, entry).value);
    }
    float least = lane_max(largest) + chosen.choice->floor;
    Candidate best = no_candidate();
    for (uint chooser = lane; chooser < choosers; chooser += 32) {
        List list = list_of(memory, record, row, chooser);
        for (uint entry = 0; get_entry(list, entry).token != NOTHING; ++entry) {
            Candidate kept = get_entry(list, entry);
            if (kept.value < least) continue;
            Candidate candidate = {noisy_logit(chosen, kept.token, kept.value), kept.token};
            if (precedes(candidate, best)) best = candidate;
        }
    }
    return lane_first(best).token;
}

// Merges all workers' lists up to top-k, cuts at top-p and at the floor, and takes the largest sum of what is left.
TASK uint merge_top(THREAD const Memory& memory, DEVICE const ChooseRecord& record, THREAD const ChoiceRow& chosen, uint row, uint choosers,
                    uint lane, SHARED float* values) {
    const uint lists = MOST_CHOOSERS / 32;
    SHARED uint* tokens = (SHARED uint*)values + LIST_ENTRIES;
    DEVICE const Choice& choice = *chosen.choice;
    uint next[lists], count = 0;
    for (uint i = 0; i < lists; ++i) next[i] = 0;
    for (uint most = min(choice.top_k, LIST_ENTRIES); count < most; ++count) {
        Candidate mine = no_candidate();
        uint list = 0;
        for (uint i = 0; i < lists; ++i) {
            if (lane + 32 * i >= choosers) break;
            Candidate head = get_entry(list_of(memory, record, row, lane + 32 * i), next[i]);
            if (next[i] >= most || !precedes(head, mine)) continue;
            mine = head;
            list = i;
        }
        Candidate first = lane_first(mine);
        if (first.token == NOTHING) break;
        if (mine.token == first.token) {
            for (uint i = 0; i < lists; ++i) next[i] += i == list ? 1 : 0;
        }
        if (lane == 0) {
            values[count] = first.value;
            tokens[count] = first.token;
        }
    }
    simd_fence();
    if (choice.top_p < 1.0f) {
        float total = 0.0f, reached = 0.0f;
        for (uint i = 0; i < count; ++i) total += exponential((values[i] - values[0]) / choice.temperature);
        for (uint i = 0; i < count; ++i) {
            reached += exponential((values[i] - values[0]) / choice.temperature);
            if (reached >= choice.top_p * total) count = i + 1;
        }
    }
    Candidate best = no_candidate();
    for (uint i = lane; i < count; i += 32) {
        if (values[i] < values[0] + choice.floor) continue;
        Candidate candidate = {noisy_logit(chosen, tokens[i], values[i]), tokens[i]};
        if (precedes(candidate, best)) best = candidate;
    }
    return lane_first(best).token;
}

// Chooses a token for every row that wants logits, each by one simdgroup.
TASK void choose(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const ChooseRecord& record, uint choosers,
                 SHARED uint* tokens) {
    for (uint row = worker.simdgroup; row < memory.step->logit_rows; row += worker.simdgroups) {
        ChoiceRow chosen = choice_row(memory, memory.step->logit_first_row + row);
        uint token;
        if (chosen.keep == KEEP_TOP) {
            token = merge_top(memory, record, chosen, row, choosers, worker.lane, worker.shared + worker.simdgroup * 2 * LIST_ENTRIES);
        } else if (chosen.keep == KEEP_STAIRS) {
            token = merge_stairs(memory, record, chosen, row, choosers, worker.lane);
        } else {
            token = merge_best(memory, record, row, choosers, worker.lane);
        }
        // Logits that are no numbers.
        if (worker.lane == 0) tokens[row] = token == NOTHING ? 0 : token;
        simd_fence();
    }
}

// Rows of a slot after its first whose tokens are those that were chosen for the rows before them: drafts that the model would have
// chosen itself.
TASK uint accepted_drafts(THREAD const Memory& memory, uint first_row, uint rows, SHARED const uint* chosen) {
    uint accepted = 0;
    while (accepted + 1 < rows && memory.tokens[first_row + accepted + 1] == chosen[first_row + accepted]) ++accepted;
    return accepted;
}

// Commits what was chosen for a slot: into the ring, into the counts; until a token ends it or none are left. Returns the tokens.
TASK uint commit(THREAD const Memory& memory, DEVICE const ChooseRecord& record, uint slot, SHARED const uint* chosen, uint count) {
    DEVICE Choice& choice = memory.step->choices[slot];
    DEVICE uint* ring = state_words(memory, record.ring) + slot * RING_TOKENS;
    uint committed = 0;
    while (committed < count && choice.left != 0) {
        uint token = chosen[committed++];
        ring[choice.written % RING_TOKENS] = token;
        choice.written += 1;
        choice.left -= 1;
        if (choice.adjust & ADJUST_COUNTS) state_words(memory, record.counts)[(size_t)slot * record.outputs + token] += 1;
        for (uint i = 0; i < choice.ends_used; ++i) {
            if (choice.ends[i] == token) choice.left = 0;
        }
    }
    return committed;
}

// Accepts, commits and prepares the next pass: one row for each slot that has not ended, with the last token that was chosen. The
// recurrent state stands where this pass began; the next folds in the rows that were accepted.
TASK void advance(THREAD const Memory& memory, DEVICE const ChooseRecord& record, SHARED const uint* chosen) {
    DEVICE StepState& step = *memory.step;
    uint used = 0;
    for (uint entry = 0; entry < step.slots_used; ++entry) {
        SlotRows rows = step.slots[entry];
        DEVICE Choice& choice = step.choices[rows.slot];
        SHARED const uint* tokens = chosen + rows.first_row;
        uint count = commit(memory, record, rows.slot, tokens, 1 + accepted_drafts(memory, rows.first_row, rows.rows, chosen));
        choice.position = rows.position + count;
        choice.state_position = rows.position;
        if (choice.left == 0) continue;
        // Rows of later entries lie behind: none is overwritten before it was read.
        memory.tokens[used] = tokens[count - 1];
        step.slots[used] = {rows.slot, used, 1, rows.position + count, rows.position};
        ++used;
    }
    step.rows = used;
    step.logit_first_row = 0;
    step.logit_rows = used;
    step.slots_used = used;
}

// The head: logits, choices, or both.
template <uint CODES, uint SCALES, uint BIASES>
BODY void head(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ChooseRecord& record) {
    uint first_row = memory.step->logit_first_row, rows = memory.step->logit_rows, outputs = memory.step->outputs;
    if (rows == 0) return;
    uint choosers = min(min(worker.workers, MOST_CHOOSERS), (record.outputs + TILE_ROWS - 1) / TILE_ROWS);
    bool chooses = (outputs & OUTPUT_CHOICES) != 0;
    Projection projection = projection_of(worker, record.matrix, record.matrix, record.outputs, choosers, 0, 1);
    for (uint row = 0; row < rows && worker.index < choosers; row += BLOCK_ROWS) {
        uint block_rows = min(BLOCK_ROWS, rows - row), own_row = first_row + row + min(thread_of(worker) % BLOCK_ROWS, block_rows - 1);
        Chooser chooser = {record, choice_row(memory, own_row), no_candidate(), block_rows, nullptr};
        bool lists = false;
        for (uint i = 0; chooses && i < chooser.rows; ++i) lists |= choice_row(memory, first_row + row + i).keep >= KEEP_TOP;
        if (lists || (outputs & OUTPUT_LOGITS) != 0) chooser.logits = memory.arena + record.output + (size_t)row * record.outputs;
        if (!chooses) chooser.row.keep = KEEP_NOTHING;
        project<CODES, SCALES, BIASES, 0>(memory, worker, projection, record.operand, first_row + row, chooser, worker.index);
        if (!chooses) continue;
        keep_best(memory, worker, record, row, chooser);
        if (lists) keep_lists(memory, worker, record, row, chooser.rows, choosers);
        worker_barrier();
    }
    if (!chooses) return;
    Counter arrivals = (Counter)(memory.states + (size_t)record.arrivals * 16);
    if (!last_of_team(worker, arrivals, worker.workers)) return;
    SHARED uint* tokens = (SHARED uint*)worker.shared + worker.simdgroups * 2 * LIST_ENTRIES;
    worker_barrier();
    choose(memory, worker, record, choosers, tokens);
    worker_barrier();
    if (thread_of(worker) != 0) return;
    advance(memory, record, tokens);
    // The next launch may have another number of workers.
    publish(arrivals, 0u);
}

// model    Two workers, leases, epochs, hand-over, ranges that are cut and merged, eviction: each effect once, in order, none missing, and all of them in the end.
//
// code     sql/functions/holding/heartbeat_v1.sql
// code     sql/functions/holding/_assign_ranges_v1.sql
// code     sql/functions/holding/_share_ranges_v1.sql
// code     sql/functions/holding/_claim_range_v1.sql
// code     sql/functions/holding/release_range_v1.sql
// code     sql/functions/holding/_set_ranges_v1.sql
// code     sql/functions/offsets/save_offsets_v1.sql
// code     sql/functions/offsets/save_horizons_v1.sql
// code     sql/functions/offsets/_evict_offsets_v1.sql
// code     sql/functions/offsets/_save_evicted_offsets_v1.sql
// code     sql/functions/offsets/_evict_up_to_v1.sql
// code     projections/running/ranges.py: Ranges.told, Ranges._keep, Ranges.drop
// code     projections/running/membership.py: Membership._failed
// code     projections/running/range_supervisor.py: RangeSupervisor._claim_again, RangeSupervisor.drop, RangeSupervisor._release
// code     projections/running/transactions.py: Transactions.look_up, Transactions.commit
// code     projections/running/acceptance.py: Acceptance.accept
// code     offsets/deduplication.py: BatchVerdicts.validate, BatchVerdicts.validate_unknown
//
// scope    answers that are lost: LOST=1 EVICTS=1
// scope    a lease that ends: EXPIRIES=1 EVICTS=1
// scope    ranges that are merged: CUTS=1
// scope    offsets that are left out, and answers that are lost: LEFT_OUT=2 LOST=1
// scope    offsets that are left out, and a lease that ends: LEFT_OUT=2 EXPIRIES=1
// scope    progress, answers that are lost: PROGRESS SEQS=1 LOST=1
// scope    progress, a lease that ends: PROGRESS SEQS=1 EXPIRIES=1
// scope    progress, ranges that are merged: PROGRESS SEQS=1 CUTS=1
// large    progress, a lease that ends and answers that are lost: PROGRESS SEQS=1 EXPIRIES=1 LOST=1
// large    progress, answers that are lost, more events: PROGRESS LOST=1
// large    leases that end and answers that are lost: EXPIRIES=1 LOST=1 EVICTS=1
// large    ranges that are merged, and eviction: CUTS=1 EVICTS=1
// large    ranges that are merged and cut: CUTS=2
// large    offsets that are left out, and ranges that are merged and cut: LEFT_OUT=1 CUTS=2
//
// mutant   NO_FENCE: EXPIRIES=1 EVICTS=1: stores offsets whoever holds the range
// mutant   A_CUT_TAKES_THE_NEWEST_HORIZON: CUTS=1 EVICTS=1: begins a merged range where the part that is ahead stands
// mutant   EVICTS_BY_THE_NEWEST_HORIZON: EVICTS=1 CUTS=1: evicts offsets that a range behind still needs
// mutant   READS_THE_BOUND_BEFORE_THE_OFFSETS: EVICTS=1 EXPIRIES=1 LOST=1: does not see that an offset it looked for was just evicted
// mutant   TAKES_A_FIRST_EVENT_FOR_NEW: EVICTS=1 LOST=1: handles the first event of a source whose offset was evicted
// mutant   LEAVES_AN_OLD_OFFSET: LEFT_OUT=1 EXPIRIES=1: stores no offset of a source, and leaves the one that it had
// mutant   LEAVES_OUT_WHAT_OTHERS_NEED: LEFT_OUT=1 CUTS=1: stores no offset of what is behind, where another range is behind that
// mutant   TAKES_A_LOST_COMMIT_FOR_DONE: LOST=1: goes on after a commit without an answer
// mutant   BEGINS_NO_RANGE_TWICE: PROGRESS SEQS=1 LOST=1: does not begin a range again that it has dropped and still holds
// mutant   OFFSETS_ARE_NOT_COMPARED: LOST=1: stores a source wherever it stands, and compares no count of commits

#ifndef EXPIRIES
#define EXPIRIES 0
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef LOST
#define LOST 0
#endif
#ifndef EVICTS
#define EVICTS 0
#endif
#ifndef LEFT_OUT
#define LEFT_OUT 0
#endif

// Two sources, each a slice, with SEQS events: that of number n of source s has the time SOURCES * (n - 1) + s + 1. All are visible.
#define SOURCES 2
#ifndef SEQS
#define SEQS 2
#endif
#define EVENTS (SOURCES * SEQS)
#define TIME(s, n) (SOURCES * ((n) - 1) + (s) + 1)
#define SOURCE(t) (((t) - 1) % SOURCES)
#define SEQ(t) (((t) - 1) / SOURCES + 1)
#define UNREAD 255

// The database: rows of ranges that begin at slice 0 and 1, offsets (0: none), what is evicted, the effects
byte cut = 1 + (CUTS > 0);
#define THERE(r) ((r) < cut)
#define LAST(r) (cut == 1 -> 1 : (r))
byte epoch[2], owner[2], assigned[2], horizon[2], commits[2];
byte offset[SOURCES], evicted;
byte applied[SOURCES];
bool lease[2];

// A worker's ranges: w runs the one that begins at r as number 2 * w + r
#define NOBODY 0
#define READS 1          // phases of a range
#define LOOKS_UP 2
#define LOOKS_AT_THE_BOUND 3
#define COMMITS 4
#define CLAIMS_AGAIN 5
byte phase[4], my_epoch[4], my_commits[4], pos[4], last[4], bound[4], event[4], known[8];
bool ending[4], ended_since[4];
byte ended_epoch[4];
// What a heartbeat said: of each range whether it is ours, ...
bool said[4], said_kept[4];
byte said_epoch[4], said_horizon[4], said_commits[4], said_last[4];
// A transaction whose client has gone may still commit
bool ghost;
byte ghost_of, ghost_epoch, ghost_commits, ghost_event, ghost_known, ghost_pos, ghost_last;
byte expiries, cuts, lost, evicts, left_out, x, y, from, result;

inline clear() { x = 0; y = 0; from = 0; result = 0 }

// heartbeat_v1: the lease, _assign_ranges_v1 where uneven (_share_ranges_v1 of one or two ranges), free ranges are claimed, the answer
inline heartbeat(w) {
    lease[w] = true;
    if
    :: cut == 1 && (assigned[0] == NOBODY || !lease[assigned[0] - 1]) -> assigned[0] = w + 1
    :: cut == 2 && lease[1 - w] && (assigned[0] == assigned[1] || assigned[0] == NOBODY || assigned[1] == NOBODY) ->
        x = (assigned[0] != NOBODY -> assigned[0] : 1); assigned[0] = x; assigned[1] = 3 - x
    :: cut == 2 && !lease[1 - w] -> assigned[0] = w + 1; assigned[1] = w + 1
    :: else
    fi;
    y = 0;
    do
    :: y < 2 ->
        if
        :: THERE(y) && assigned[y] == w + 1 && owner[y] != w + 1 && (owner[y] == NOBODY || !lease[owner[y] - 1]) ->
            epoch[y]++; owner[y] = w + 1; printf("worker %d claims the range from %d with epoch %d\n", w, y, epoch[y])
        :: else
        fi;
        x = 2 * w + y;
        said[x] = THERE(y) && owner[y] == w + 1;
        said_kept[x] = said[x] && assigned[y] == w + 1; said_epoch[x] = (said[x] -> epoch[y] : 0);
        said_horizon[x] = (said[x] -> horizon[y] : 0); said_commits[x] = (said[x] -> commits[y] : 0); said_last[x] = (said[x] -> LAST(y) : 0);
        ended_since[x] = false;
        y++
    :: else -> break
    od;
    clear()
}

inline begin_range(i, an_epoch, a_horizon, a_count, to) {
    phase[i] = READS; my_epoch[i] = an_epoch; my_commits[i] = a_count; last[i] = to; bound[i] = evicted; event[i] = 0;
    pos[i] = (a_horizon > 2 -> a_horizon - 2 : 0);    // a margin of 1, and what was read at that very time
    known[2 * i] = UNREAD; known[2 * i + 1] = UNREAD
}
inline end_range(i) {
    ended_epoch[i] = my_epoch[i]; ended_since[i] = true;
    phase[i] = NOBODY; my_epoch[i] = 0; my_commits[i] = 0; last[i] = 0; bound[i] = 0; event[i] = 0; pos[i] = 0; ending[i] = false;
    known[2 * i] = 0; known[2 * i + 1] = 0
}

// Cancelled: what it has sent may still arrive
inline drop_range(i) {
    if
    :: phase[i] == COMMITS && !ghost ->
        ghost = true; ghost_of = i; ghost_epoch = my_epoch[i]; ghost_commits = my_commits[i]; ghost_event = event[i];
        ghost_known = known[2 * i + SOURCE(event[i])]; ghost_pos = pos[i]; ghost_last = last[i]
    :: else
    fi;
    end_range(i)
}

inline forget_answer() { said[x] = false; said_kept[x] = false; said_epoch[x] = 0; said_horizon[x] = 0; said_commits[x] = 0; said_last[x] = 0 }

// Ranges.told
#ifdef MUTANT_BEGINS_NO_RANGE_TWICE
#define MAY_BEGIN(x) (said_epoch[x] > ended_epoch[x])
#else
#define MAY_BEGIN(x) (said_epoch[x] > ended_epoch[x] || !ended_since[x])
#endif
inline told(w) {
    y = 0;
    do
    :: y < 2 ->
        x = 2 * w + y;
        if
        :: phase[x] != NOBODY ->
            if
            :: !said[x] || (phase[x] != CLAIMS_AGAIN && said_epoch[x] > my_epoch[x]) -> drop_range(x)
            :: said[x] && !said_kept[x] -> ending[x] = true
            :: else
            fi
        :: phase[x] == NOBODY && said[x] && MAY_BEGIN(x) ->
            begin_range(x, said_epoch[x], said_horizon[x], said_commits[x], said_last[x]); ending[x] = !said_kept[x];
            printf("worker %d runs the range from %d with epoch %d, from time %d\n", w, y, said_epoch[x], pos[x])
        :: else
        fi;
        forget_answer(); y++
    :: else -> break
    od;
    clear()
}

// BatchVerdicts.validate, validate_unknown, and Acceptance._fill: into result, the first number to handle; 0 for none
#define IS_DUPLICATE(k, b, t) (((k) == 0 && (t) < (b)) || ((k) > 0 && SEQ(t) <= (k)))
inline verdict(k, b, t) {
    if
#ifndef MUTANT_TAKES_A_FIRST_EVENT_FOR_NEW
    :: IS_DUPLICATE(k, b, t) -> result = 0
#else
    :: k > 0 && SEQ(t) <= k -> result = 0
#endif
    :: else ->
        if
        :: k > 0 || SEQ(t) == 1 || TIME(SOURCE(t), SEQ(t) - 1) < b -> result = (k > 0 -> k + 1 : SEQ(t))
        :: else ->    // a gap of an unknown source: from the first event that is not evicted
            result = 1;
            do :: TIME(SOURCE(t), result) < b -> result++ :: else -> break od
        fi
    fi
}

// save_offsets_v1 in the transaction of the effects: into result whether it commits
inline save(r, w, an_epoch, a_count, at, t, k) {
    result = THERE(r) && epoch[r] == an_epoch && owner[r] == w + 1 && commits[r] == a_count;
#ifdef MUTANT_NO_FENCE
    result = THERE(r);
#endif
#ifdef MUTANT_OFFSETS_ARE_NOT_COMPARED
    result = THERE(r) && epoch[r] == an_epoch && owner[r] == w + 1;
#else
    if
    :: k > 0 && offset[SOURCE(t)] == k
    :: k > 0 && offset[SOURCE(t)] == 0 && TIME(SOURCE(t), k) < evicted    // _save_evicted_offsets_v1
    :: k == 0 && offset[SOURCE(t)] == 0
    :: else -> result = false
    fi;
#endif
    if
    :: result ->
        do
        :: from <= SEQ(t) ->
            printf("worker %d: the effect of event %d of source %d is committed\n", w, from, SOURCE(t));
            assert(applied[SOURCE(t)] + 1 == from); applied[SOURCE(t)] = from; from++
        :: else -> break
        od;
        offset[SOURCE(t)] = SEQ(t); horizon[r] = at; commits[r]++
    :: else -> printf("worker %d: nothing is stored, for the range from %d is not as it was\n", w, r)
    fi
}

// All before the event is handled: that of the only range, which has read up to it
#ifdef MUTANT_LEAVES_OUT_WHAT_OTHERS_NEED
#define MAY_LEAVE_OUT true
#else
#define MAY_LEAVE_OUT (cut == 1)
#endif
inline judge(i) {
    verdict(known[2 * i + SOURCE(event[i])], bound[i], event[i]);
    if
    :: result == 0 -> pos[i] = event[i]; event[i] = 0; phase[i] = READS
    :: else
    fi
}

proctype worker(byte w) {
    do
    :: d_step { heartbeat(w) };
        if
        :: d_step { told(w) }
        :: d_step { lost < LOST -> lost++; printf("worker %d has no answer to its heartbeat\n", w); x = 2 * w; forget_answer(); x++; forget_answer(); clear() }
        :: d_step { lost < LOST -> lost++; printf("worker %d has no answer until its lease should have ended, and drops its ranges\n", w);
            x = 2 * w; forget_answer(); x++; forget_answer();
            if :: phase[2 * w] != NOBODY -> drop_range(2 * w) :: else fi;
            if :: phase[2 * w + 1] != NOBODY -> drop_range(2 * w + 1) :: else fi;
            clear() }
        fi
    od
}

proctype range(byte w; byte r) {
    byte i = 2 * w + r;
    do
    :: d_step { phase[i] == READS && ending[i] ->    // release_range_v1
        if
        :: THERE(r) && epoch[r] == my_epoch[i] && owner[r] == w + 1 && commits[r] == my_commits[i] ->
            owner[r] = NOBODY; horizon[r] = pos[i]; commits[r]++; printf("worker %d releases the range from %d at %d\n", w, r, pos[i])
        :: else
        fi;
        end_range(i); clear()
    }
    :: d_step { phase[i] == READS && !ending[i] && (pos[i] < EVENTS) ->
        x = pos[i] + 1;
        do :: x <= EVENTS && (SOURCE(x) < r || SOURCE(x) > last[i]) -> x++ :: else -> break od;
        if
        :: x > EVENTS -> pos[i] = EVENTS
        :: else ->
            event[i] = x; phase[i] = (known[2 * i + SOURCE(x)] == UNREAD -> LOOKS_UP : COMMITS);
#ifdef MUTANT_READS_THE_BOUND_BEFORE_THE_OFFSETS
            bound[i] = evicted;
#endif
        fi;
        if :: phase[i] == COMMITS -> judge(i) :: else fi;
        clear()
    }
    :: d_step { phase[i] != NOBODY && phase[i] != CLAIMS_AGAIN && THERE(r) && epoch[r] == my_epoch[i] && owner[r] == w + 1 && commits[r] == my_commits[i] && horizon[r] != pos[i] ->
        horizon[r] = pos[i]; commits[r]++; my_commits[i]++;    // save_horizons_v1
        if
        :: phase[i] == READS && pos[i] == EVENTS -> x = r; do :: x <= last[i] -> assert(applied[x] == SEQS); x++ :: else -> break od    // it has read all there is
        :: else
        fi;
        clear()
    }
    :: d_step { phase[i] == LOOKS_UP ->    // read_offsets_v1
        known[2 * i + SOURCE(event[i])] = offset[SOURCE(event[i])];
        phase[i] = LOOKS_AT_THE_BOUND; clear()
    }
    :: d_step { phase[i] == LOOKS_AT_THE_BOUND ->
#ifndef MUTANT_READS_THE_BOUND_BEFORE_THE_OFFSETS
        if :: known[2 * i + SOURCE(event[i])] == 0 -> bound[i] = evicted :: else fi;
#endif
        phase[i] = COMMITS; judge(i); clear()
    }
    :: d_step { phase[i] == COMMITS ->
            verdict(known[2 * i + SOURCE(event[i])], bound[i], event[i]); from = result;
            save(r, w, my_epoch[i], my_commits[i], pos[i], event[i], known[2 * i + SOURCE(event[i])]);
            if
            :: result -> my_commits[i]++; known[2 * i + SOURCE(event[i])] = SEQ(event[i]); pos[i] = event[i]; event[i] = 0; phase[i] = READS
            :: else -> phase[i] = CLAIMS_AGAIN
            fi;
        clear()
    }
    :: d_step { left_out < LEFT_OUT && phase[i] == COMMITS && MAY_LEAVE_OUT ->    // _evict_up_to_v1, with a retention of nothing
            left_out++;
            verdict(known[2 * i + SOURCE(event[i])], bound[i], event[i]); from = result;
            save(r, w, my_epoch[i], my_commits[i], pos[i], event[i], known[2 * i + SOURCE(event[i])]);
            if
            :: result ->
                evicted = (event[i] + 1 > evicted -> event[i] + 1 : evicted); bound[i] = evicted;
                printf("worker %d: what is older than %d needs no offset\n", w, evicted);
#ifdef MUTANT_LEAVES_AN_OLD_OFFSET
                offset[SOURCE(event[i])] = (known[2 * i + SOURCE(event[i])] != UNREAD -> known[2 * i + SOURCE(event[i])] : 0);
#else
                offset[SOURCE(event[i])] = 0;
#endif
                my_commits[i]++; known[2 * i + SOURCE(event[i])] = UNREAD; pos[i] = event[i]; event[i] = 0; phase[i] = READS
            :: else -> phase[i] = CLAIMS_AGAIN
            fi;
        clear()
    }
    :: d_step { lost < LOST && phase[i] == COMMITS ->    // the answer to COMMIT is lost, whether it was done or not
            lost++; printf("worker %d has no answer to its commit\n", w);
            verdict(known[2 * i + SOURCE(event[i])], bound[i], event[i]); from = result;
            save(r, w, my_epoch[i], my_commits[i], pos[i], event[i], known[2 * i + SOURCE(event[i])]);
            phase[i] = CLAIMS_AGAIN; clear()
    }
    :: d_step { lost < LOST && phase[i] == COMMITS ->
            lost++; printf("worker %d has lost its connection before the commit\n", w);
#ifdef MUTANT_TAKES_A_LOST_COMMIT_FOR_DONE
            known[2 * i + SOURCE(event[i])] = SEQ(event[i]); pos[i] = event[i]; event[i] = 0; phase[i] = READS;
#else
            phase[i] = CLAIMS_AGAIN;
#endif
        clear()
    }
    :: d_step { phase[i] == CLAIMS_AGAIN ->    // _claim_range_v1
        if
        :: THERE(r) && owner[r] == w + 1 && LAST(r) == last[i] -> epoch[r]++; begin_range(i, epoch[r], horizon[r], commits[r], LAST(r))
        :: else -> end_range(i)
        fi;
        clear()
    }
    od
}
// _set_ranges_v1: one range of two, or two of one
inline set_ranges() {
    x = (epoch[0] > epoch[1] -> epoch[0] : epoch[1]) + 1;
    if
    :: cut == 1 -> cut = 2; horizon[1] = horizon[0]; assigned[1] = assigned[0]
    :: else ->
        cut = 1;
#ifdef MUTANT_A_CUT_TAKES_THE_NEWEST_HORIZON
        horizon[0] = (horizon[0] > horizon[1] -> horizon[0] : horizon[1]);
#else
        horizon[0] = (horizon[0] < horizon[1] -> horizon[0] : horizon[1]);
#endif
        assigned[1] = NOBODY; horizon[1] = 0
    fi;
    epoch[0] = x; epoch[1] = (cut == 2 -> x : 0); owner[0] = NOBODY; owner[1] = NOBODY; commits[0] = 0; commits[1] = 0;
    printf("the slices are cut into %d ranges: epoch %d\n", cut, x)
}

// _evict_offsets_v1, with a retention of nothing
inline evict() {
    x = horizon[0];
#ifdef MUTANT_EVICTS_BY_THE_NEWEST_HORIZON
    if :: cut == 2 && horizon[1] > x -> x = horizon[1] :: else fi;
#else
    if :: cut == 2 && horizon[1] < x -> x = horizon[1] :: else fi;
#endif
    evicted = (x > evicted -> x : evicted);
    x = 0; do :: x < SOURCES -> if :: offset[x] > 0 && TIME(x, offset[x]) < evicted -> offset[x] = 0 :: else fi; x++ :: else -> break od;
    printf("offsets older than %d are evicted\n", evicted)
}

inline forget_ghost() {
    ghost = false; ghost_of = 0; ghost_epoch = 0; ghost_commits = 0; ghost_event = 0; ghost_known = 0; ghost_pos = 0; ghost_last = 0; x = 0
}

active proctype others() {
    do
    :: d_step { expiries < EXPIRIES && lease[0] -> expiries++; lease[0] = false; printf("the lease of worker 0 ends\n") }
    :: d_step { expiries < EXPIRIES && lease[1] -> expiries++; lease[1] = false; printf("the lease of worker 1 ends\n") }
    :: d_step { cuts < CUTS -> cuts++; set_ranges(); clear() }
    :: d_step { evicts < EVICTS -> evicts++; evict(); clear() }
    :: d_step { ghost ->    // it arrives
        from = 0; verdict(ghost_known, 0, ghost_event); from = (ghost_known > 0 -> ghost_known + 1 : SEQ(ghost_event));
        save(ghost_of % 2, ghost_of / 2, ghost_epoch, ghost_commits, ghost_pos, ghost_event, ghost_known);
        forget_ghost(); clear()
    }
    :: d_step { ghost -> forget_ghost() }
    od
}
init { atomic { run worker(0); run worker(1); run range(0, 0); run range(0, 1); run range(1, 0); run range(1, 1) } }

// Once no lease ends and no answer is lost any more, all is handled, and each range has a holder for good: whoever can go on does
#ifdef PROGRESS
#define HANDLED (applied[0] == SEQS && applied[1] == SEQS)
#define HELD (owner[0] != NOBODY && (cut == 1 || owner[1] != NOBODY))
ltl progress { <> [] (HANDLED && HELD) }
#endif

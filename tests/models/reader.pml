// model    A reader of slices and the writers' lock: nothing that commits is lost, and no horizon is told too early.
//
// code     journal/backtracking.py: WriterLockBacktracking.polled, WriterLockBacktracking._look_for_a_clock_that_went_back
// code     journal/backtracking.py: WriterLockBacktracking.keys_read, WriterLockBacktracking._window_is_read, WriterLockBacktracking.events_read
// code     journal/backtracking.py: WriterLockBacktracking.unchanged, WriterLockBacktracking.horizon, WriterLockBacktracking.goes_on
// code     journal/polling.py: WritersPoller._poll, Look.says_nothing_to
// code     projections/running/range_runner.py: RangeRunner._poll, RangeRunner._step
// code     sql/functions/journal/_poll_writers_v1.sql
// code     sql/functions/journal/append_events_v1.sql
// code     sql/functions/journal/_move_imported_v1.sql
//
// scope    two writers: WRITERS=2 TICKS=2
// scope    a restart: WRITERS=2 TICKS=1 CRASHES=1
// scope    a prepared transaction: WRITERS=2 TICKS=1 PREPARED=1
// scope    an import: WRITERS=2 TICKS=1 IMPORTS=1
// scope    a small step of the clock: WRITERS=2 TICKS=1 STEPS=1
// scope    a large step of the clock: WRITERS=1 TICKS=3 CRASHES=1 STEPS=1 LARGE_STEPS=1
// large    a large step of the clock, more time: WRITERS=1 TICKS=4 CRASHES=1 STEPS=1 LARGE_STEPS=1
// large    three writers: WRITERS=3 TICKS=1
// large    two writers, more time: WRITERS=2 TICKS=3
// large    a restart, more time: WRITERS=2 TICKS=2 CRASHES=1
// large    a prepared transaction and a restart: WRITERS=2 TICKS=2 PREPARED=1 CRASHES=1
// large    an import and a restart: WRITERS=2 TICKS=1 IMPORTS=1 CRASHES=1
// large    a small step of the clock, more time: WRITERS=2 TICKS=2 STEPS=1
//
// mutant   NO_WINDOW_FOR_WHO_WAS_NOT_SEEN: WRITERS=2 TICKS=2: reads again only where a known writer has gone
// mutant   WINDOW_OF_ONE_PAGE: WRITERS=3 TICKS=2: takes a window that a page limit cut short for done
// mutant   POLL_COUNTS_BEFORE_ITS_WINDOW: WRITERS=2 TICKS=2 CRASHES=1: moves its horizon before the window has been read
// mutant   NO_BOUNDS: WRITERS=2 TICKS=2: forgets who is in flight
// mutant   FORGETS_WHO_HAS_GONE: WRITERS=2 TICKS=2: does not reach back to the bound of a writer that has gone
// mutant   BOUND_IS_THE_TIME_OF_THE_POLL: WRITERS=2 TICKS=2: gives a new writer the time of the poll that saw it first
// mutant   HORIZON_WITHOUT_BOUNDS: WRITERS=1 TICKS=2 CRASHES=1: stores a horizon that passes who is in flight
// mutant   RESTARTS_AT_ITS_POSITION: WRITERS=2 TICKS=1 CRASHES=1: stores the last time it read
// mutant   PASSES_OVER_WHO_HAS_GONE: WRITERS=1 TICKS=4 CRASHES=0: passes over a poll that shows a writer gone
// mutant   NAMES_ONCE: WRITERS=1 TICKS=2 PREPARED=1: takes no notice of who goes after a prepared transaction was first seen
// mutant   TRUSTS_A_NEW_NAME: WRITERS=2 TICKS=3 PREPARED=1: takes a prepared transaction for one that has just begun
// mutant   OVERLOOKS_IMPORTS: WRITERS=2 TICKS=2 IMPORTS=1: counts an import without reading it
// mutant   HORIZON_PASSES_AN_IMPORT: WRITERS=2 TICKS=2 IMPORTS=1 CRASHES=1: reads back to an import, and stores a horizon after it
// mutant   LISTS_HOLDERS_BEFORE_THE_CLOCK: WRITERS=2 TICKS=2: asks for the time after the list of writers
// mutant   READS_BY_AN_OLDER_SNAPSHOT: WRITERS=2 TICKS=2: polls after the snapshot it reads by
// mutant   STAMPS_BEFORE_THE_LOCK: WRITERS=2 TICKS=2: a writer reads the clock before it takes the lock
// mutant   UNLOCKS_BEFORE_IT_IS_VISIBLE: WRITERS=2 TICKS=2: a writer's lock goes before its commit is visible
// mutant   NO_MARGIN: WRITERS=2 TICKS=3 STEPS=1: takes no margin off its bounds
// mutant   IGNORES_THE_TIME_GONE_BY: WRITERS=2 TICKS=4 STEPS=1 LARGE_STEPS=1: compares a clock with itself alone

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef TICKS
#define TICKS 2
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef PREPARED
#define PREPARED 0
#endif
#ifndef IMPORTS
#define IMPORTS 0
#endif
#ifndef STEPS
#define STEPS 0
#endif
#ifndef PAGE
#define PAGE 1
#endif
#ifdef MUTANT_NO_MARGIN
#define MARGIN 0
#else
#define MARGIN 1
#endif

// Transactions 0 .. WRITERS-1, the last one an import where there are any. Names: theirs, those that they have when prepared, "import".
#define EVENTS WRITERS
#define NAMES (2 * WRITERS + 1)
#define IMPORT (2 * WRITERS)
#define IS_IMPORT(w) (IMPORTS > 0 && (w) == WRITERS - 1)
#define IS_PREPARED(n) ((n) >= WRITERS)
#define BOUND_OF_NEW(n) polled_at
#define START 4
#define GONE_BY (STEPS > 0 -> steady : 0)   // time by the reader's own clock matters where the other one steps
#define CALM 0
#define STEPPED 1
#define ASKED 2
#define USED 3
#define CLOCK0 5

byte clock = CLOCK0, steady = 0, latest = CLOCK0;
bool held[NAMES], visible[WRITERS], stamped[WRITERS], handled[WRITERS];
byte stamp[WRITERS];
byte ended = 0, crashes = 0, steps = 0, looks = 0;
byte step = CALM;                        // a large step of the clock: before a reader may die, a poll has to see it, and what follows be stored
byte saved_t = START;
bool import_row, import_id, saved_import;
bool newer, import_is_new, nothing;
#ifdef MUTANT_READS_BY_AN_OLDER_SNAPSHOT
bool snapshot[WRITERS];
#define VISIBLE(e) snapshot[e]
#else
#define VISIBLE(e) visible[e]
#endif
#define STAMP(e) stamp[e]
#define HANDLE(e) handled[e] = true

// Imports of the poll that were not known: as if a writer of that time had just ended
inline take_imports() {
    if
    :: import_is_new ->
#ifndef MUTANT_OVERLOOKS_IMPORTS
        bound[IMPORT] = stamp[WRITERS - 1];
#endif
        import_id = true
    :: else
    fi
}

#include "backtracking.inc"

inline take_lock(w) { d_step { held[w] = true; printf("writer %d: takes the append lock\n", w) } }
inline read_clock(w) {
    if
    :: IS_IMPORT(w) -> stamp[w] = START - 1; do :: stamp[w] < clock -> stamp[w]++ :: break od
    :: else -> d_step { stamp[w] = clock; printf("writer %d: stamps its event with %d\n", w, clock) }
    fi;
    stamped[w] = true
}
inline appear(w) {
    d_step {
        visible[w] = true;
        if :: IS_IMPORT(w) -> import_row = true; printf("writer %d: its import of time %d is visible\n", w, stamp[w])
        :: else -> printf("writer %d: its event of time %d is visible\n", w, stamp[w]) fi
    }
}
inline drop_lock(w) { d_step { held[name] = false; ended++; printf("writer %d: its lock is gone\n", w) } }

// append_events_v1 in a transaction: LOCK TABLE, the clock, COMMIT, which is visible before its locks are gone
proctype writer(byte w) {
    byte name = w;
#ifdef MUTANT_STAMPS_BEFORE_THE_LOCK
    read_clock(w); take_lock(w);
#else
    take_lock(w); read_clock(w);
#endif
    if
    :: w < PREPARED ->
        d_step { name = w + WRITERS; held[name] = true; printf("writer %d: PREPARE TRANSACTION, and has two names\n", w) };
        d_step { held[w] = false; printf("writer %d: has the new one\n", w) }
    :: true
    fi;
    if
#ifdef MUTANT_UNLOCKS_BEFORE_IT_IS_VISIBLE
    :: drop_lock(w); appear(w)
#else
    :: appear(w); drop_lock(w)
#endif
    :: d_step { held[name] = false; stamped[w] = false; stamp[w] = 0; ended++; printf("writer %d: rolls back\n", w) }
    fi
}
proctype time() {
    do
    :: atomic { steady < TICKS && ended < WRITERS -> clock++; steady++; latest = (clock > latest -> clock : latest); printf("clock: %d\n", clock) }
#if STEPS > 0
#ifdef LARGE_STEPS    // while a reader runs: between its end and the next one's first poll, nothing tells how much time has gone by
    :: atomic { steps < STEPS && clock > CLOCK0 && asked_at != NONE -> steps++; step = STEPPED; clock = clock - 2; printf("clock: steps back to %d\n", clock) }
#else
    :: atomic { steps < STEPS && clock == latest -> steps++; clock--; printf("clock: steps back to %d\n", clock) }
#endif
#endif
    :: atomic { steady == TICKS || ended == WRITERS -> break }
    od
}

// No event that is not handled may be older than the horizon; an import only when the horizon accounts for it.
inline check_horizon() {
#ifndef LARGE_STEPS
    x = 0;
    do
    :: x < WRITERS ->
        assert(handled[x] || !stamped[x] || stamp[x] + STEPS >= horizon_t || (IS_IMPORT(x) && !import_id));
        x++
    :: else -> break
    od;
#endif
    clear()
}

// _poll_writers_v1: the time, then a snapshot, then the list of who holds the lock
// What is seen at once with the time is the least that is seen; where nothing is new, the poll may be used all the same.
inline look_for_news() {
    import_is_new = import_row && !import_id;
    newer = !(at_end && pos_t + MARGIN < polled_at);    // then it is used anyway
    x = 0; do :: x < WRITERS -> if :: visible[x] && stamp[x] > pos_t -> newer = true :: else fi; x++ :: else -> break od;
    clear()
}
inline ask_time() {
    d_step { poll_t = clock; poll_asked = GONE_BY; if :: step == STEPPED -> step = ASKED :: else fi; look_for_news() }
#if IMPORTS > 0
    d_step { look_for_news() }
#endif
}
inline list_holders() {
    d_step { x = 0; do :: x < NAMES -> h[x] = held[x]; x++ :: else -> break od; poll_told = GONE_BY; clear() }
}
inline forget_poll() {
    x = 0; do :: x < NAMES -> h[x] = false; x++ :: else -> break od;
    poll_t = 0; poll_asked = 0; poll_told = 0; newer = false; import_is_new = false; nothing = false;
    if :: step == ASKED -> step = STEPPED :: else fi
}

inline look() {
    d_step { if :: ended == WRITERS && at_end -> looks++ :: else fi }    // all that is visible is there, and read to its end
#ifdef MUTANT_READS_BY_AN_OLDER_SNAPSHOT
    d_step { x = 0; do :: x < WRITERS -> snapshot[x] = visible[x]; x++ :: else -> break od; clear() }
#endif
#ifdef MUTANT_LISTS_HOLDERS_BEFORE_THE_CLOCK
    list_holders(); ask_time();
#else
    ask_time(); list_holders();
#endif
    d_step { unchanged(newer, import_is_new, nothing); clear() }
    if
#ifdef LARGE_STEPS
    :: nothing && looks == 0 ->    // not for ever: save_horizon_every ends it
#else
    :: nothing ->
#endif
        d_step { forget_poll(); printf("reader: polls; nothing new, passes it over\n"); clear() }
    :: d_step {
        printf("reader: polls at %d\n", poll_t);
        x = 0; do :: x < NAMES -> if :: h[x] -> printf("reader:   %d holds the lock\n", x) :: else fi; x++ :: else -> break od;
        polled(); check_horizon(); observe(2 * WRITERS); if :: step == ASKED -> step = USED :: else fi; newer = false; import_is_new = false; nothing = false
    }
    fi;
    
}
// RangeRunner.run: a step of the machine after the other; between two of them its horizon may be stored, and it may die
active proctype reader() {
    d_step { begin_machine(START); clear() }
    do
    :: d_step { crashes < CRASHES && (horizon_t != saved_t || import_id != saved_import || step == USED) ->
            saved_t = horizon_t; saved_import = import_id; printf("reader: stores the horizon %d\n", saved_t);
            if :: step == USED -> step = CALM :: else fi
        }
    :: d_step { crashes < CRASHES && step == CALM -> crashes++; looks = 0; import_id = saved_import; begin_machine(saved_t); printf("reader: dies, and starts again at %d\n", saved_t); clear() }
    :: in_window ->
        d_step { printf("reader: reads a page of the window from (%d, %d) to %d\n", win_t, win_k, win_until); read_keys(); check_horizon(); observe(2 * WRITERS) }
    :: !in_window && forward ->
        d_step { printf("reader: reads a page from (%d, %d) on\n", pos_t, pos_k); read_events(); check_horizon(); observe(2 * WRITERS) }
    :: !in_window && !forward && looks < 2 -> look()
    :: !in_window && !forward && looks == 2 -> break
    od;
    skip;
    d_step { x = 0; do :: x < WRITERS -> assert(!visible[x] || handled[x]); x++ :: else -> break od; clear() }
}

init { atomic { byte n = 0; do :: n < WRITERS -> run writer(n); n++ :: else -> break od; n = 0; run time() } }

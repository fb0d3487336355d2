// model    Journals of other systems and a hot standby: with the bound of each, nothing that commits is lost.
//
// code     journal/backtracking.py: WriterLockBacktracking._bound_of, SequenceBacktracking.polled
// code     sql/foreign/poll_transaction_start.sql
// code     sql/foreign/sessions.sql
// code     sql/foreign/poll_sequence.sql
// code     journal/standby.py: StandbyPolls._ask_primary, StandbyPolls._newest_that_counts, PrimaryPoll.why_not
// code     sql/standby/poll.sql
//
// scope    stamped with the start of the transaction: LOG=1 WRITERS=2 TICKS=2
// scope    one that is prepared: LOG=1 WRITERS=1 TICKS=3 PREPARED=1
// scope    two transactions in one message: LOG=1 WRITERS=2 TICKS=2 MESSAGES=1
// scope    numbered inside the INSERT: LOG=2 WRITERS=2 CRASHES=1
// scope    a standby beside its primary: LOG=3 WRITERS=2 TICKS=1
// large    one that is prepared beside another: LOG=1 WRITERS=2 TICKS=2 PREPARED=1
// large    numbered by three, also where a lock puts them into the order of their commits: LOG=2 WRITERS=3
// large    stamped with the start of the transaction, a restart: LOG=1 WRITERS=2 TICKS=2 CRASHES=1
// large    a standby beside its primary, more time: LOG=3 WRITERS=2 TICKS=2
//
// mutant   BOUND_BY_THE_LOCK: LOG=1 WRITERS=2 TICKS=2: goes by the lock of the table, as for our own journal
// mutant   TAKES_WHO_SHOWS_NOTHING_FOR_IDLE: LOG=1 WRITERS=1 TICKS=2: does not allow for a start that is not shown yet
// mutant   LOOKS_LAST_WHO_WAITS: LOG=1 WRITERS=1 TICKS=2: looks for who waits for a message after the list of who shows a transaction
// mutant   ONE_TRANSACTION_IN_A_MESSAGE: LOG=1 WRITERS=2 TICKS=2 MESSAGES=1: takes a session that works for idle between two transactions
// mutant   PREPARED_ARE_LISTED_FIRST: LOG=1 WRITERS=1 TICKS=2 PREPARED=1: looks for prepared transactions before sessions
// mutant   NAMES_ONCE: LOG=1 WRITERS=1 TICKS=2 PREPARED=1: takes no notice of who goes after a prepared transaction was first seen
// mutant   HOLDERS_ARE_LISTED_FIRST: LOG=2 WRITERS=2: looks for the number after the list of who inserts
// mutant   NUMBERS_BEFORE_THE_LOCK: LOG=2 WRITERS=2: is used for a table whose numbers are drawn before it is locked
// mutant   USES_A_POLL_AT_ONCE: LOG=3 WRITERS=2 TICKS=1: does not wait until the standby has replayed what has ended
// mutant   LOOKS_UP_THE_PLACE_FIRST: LOG=3 WRITERS=2 TICKS=1: takes where the log ends from before the list of who is open

#ifndef LOG
#define LOG 1
#endif
#define BY_START (LOG == 1)
#define BY_NUMBER (LOG == 2)
#define ON_A_STANDBY (LOG == 3)
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef TICKS
#define TICKS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef PREPARED
#define PREPARED 0
#endif
#ifndef PAGE
#define PAGE 1
#endif
#ifndef MESSAGES
#define MESSAGES 0
#endif
#if LOG == 3
#define MARGIN 1
#else
#define MARGIN 0
#endif
#define EVENTS WRITERS
// Names of a transaction: its own, that of what is prepared, and that of a session that shows none and may have begun one
#if LOG == 1
#define NAMES (3 * WRITERS)
#else
#define NAMES (2 * WRITERS)
#endif
#define IS_PREPARED(n) ((n) >= WRITERS && (n) < 2 * WRITERS)
#ifdef MUTANT_BOUND_BY_THE_LOCK
#define BOUND_OF_NEW(n) polled_at
#else
#define BOUND_OF_NEW(n) (BY_START && (n) < WRITERS -> stamp[(n) % WRITERS] : polled_at)
#endif
#define START 4
#define CLOCK0 5

byte clock = CLOCK0;                     // where rows are numbered, the lowest number that may be drawn
byte ticks, ended, crashes, looks, wal, replayed, must_be_replayed;
bool held[NAMES], done[WRITERS], handled[WRITERS], waits[WRITERS], waited[WRITERS];
byte stamp[WRITERS], place[WRITERS], saved_t = START;
#define VISIBLE(e) (done[e] && (!ON_A_STANDBY || place[e] <= replayed))
#define STAMP(e) stamp[e]
#define HANDLE(e) handled[e] = true
inline take_imports() { skip }

#include "backtracking.inc"

inline take_lock(w) { d_step { held[w] = true; printf("writer %d: takes the lock\n", w) } }
inline draw(w) {
    d_step {
        stamp[w] = clock;
        if :: BY_NUMBER -> clock++ :: else fi;
        printf("writer %d: its event has %d\n", w, stamp[w])
    }
}
proctype writer(byte w) {
    byte name = w;
#if LOG == 1
    d_step { stamp[w] = clock; waits[w] = false; printf("writer %d: has its message, and is stamped %d\n", w, clock) }
#ifdef MUTANT_BOUND_BY_THE_LOCK
    d_step { held[w] = true; printf("writer %d: inserts, and so takes the lock\n", w) }
#else
    d_step { held[w] = true; waits[w] = true; printf("writer %d: shows that it is open, and waits for its next message\n", w) }
#endif
#elif defined(MUTANT_NUMBERS_BEFORE_THE_LOCK)
    draw(w); take_lock(w);
#else
    take_lock(w); draw(w);
#endif
    if
    :: w < PREPARED ->
        d_step { name = w + WRITERS; held[name] = true; printf("writer %d: is prepared\n", w) };
        d_step { held[w] = false; printf("writer %d: its session lets go of it\n", w) }
    :: true
    fi;
    if
    :: d_step { done[w] = true; wal++; place[w] = wal; printf("writer %d: commits\n", w) };
#if MESSAGES > 0
#ifdef MUTANT_ONE_TRANSACTION_IN_A_MESSAGE
       d_step { held[w] = false; printf("writer %d: shows no transaction\n", w) };
#endif
       d_step { held[w] = true; stamp[1] = stamp[w]; printf("writer %d: begins another, in the same message\n", w) };
       d_step { done[1] = true; wal++; place[1] = wal; ended++; printf("writer %d: commits\n", w) };
#endif
       d_step { held[name] = false; ended++; printf("writer %d: is not seen any more\n", w) }
    :: d_step { held[name] = false; stamp[w] = 0; ended++; printf("writer %d: rolls back\n", w) }
    fi
}

proctype world() {
end:
    do
    :: d_step { ticks < TICKS && ended < WRITERS -> ticks++; clock++; printf("clock: %d\n", clock) }
    :: d_step { ON_A_STANDBY && replayed < wal -> replayed++; printf("the standby replays commit %d\n", replayed) }
    od
}

inline check_horizon() {
    x = 0;
    do
    :: x < WRITERS -> assert(handled[x] || stamp[x] == 0 || stamp[x] >= horizon_t); x++
    :: else -> break
    od;
    clear()
}

// The time, or the number, then the list of who is open; at a primary also where its log ends
inline ask_time() { d_step { poll_t = clock } }
#if LOG == 1
inline list_who_waits() { d_step { x = 0; do :: x < WRITERS -> waited[x] = waits[x]; x++ :: else -> break od; clear() } }
#ifdef MUTANT_LOOKS_LAST_WHO_WAITS
inline list_sessions() {
    d_step { x = 0; do :: x < WRITERS -> h[x] = held[x]; x++ :: else -> break od; clear() }
    d_step { x = 0; do :: x < WRITERS -> h[x + 2 * WRITERS] = !h[x] && !waits[x]; x++ :: else -> break od; clear() }
}
#else
inline list_sessions() {
    d_step {
        x = 0;
        do
        :: x < WRITERS ->
            h[x] = held[x];
#if !defined(MUTANT_TAKES_WHO_SHOWS_NOTHING_FOR_IDLE) && !defined(MUTANT_BOUND_BY_THE_LOCK)
            h[x + 2 * WRITERS] = !held[x] && !waited[x];
#endif
            waited[x] = false; x++
        :: else -> break
        od;
        clear()
    }
}
#endif
#else
inline list_sessions() { d_step { x = 0; do :: x < WRITERS -> h[x] = held[x]; x++ :: else -> break od; clear() } }
#endif
inline list_prepared() { d_step { x = WRITERS; do :: x < 2 * WRITERS -> h[x] = held[x]; x++ :: else -> break od; clear() } }
inline look() {
    d_step { if :: ended == WRITERS && at_end && (!ON_A_STANDBY || replayed == wal) -> looks++ :: else fi }
#ifdef MUTANT_HOLDERS_ARE_LISTED_FIRST
    list_sessions(); ask_time();
#elif defined(MUTANT_LOOKS_UP_THE_PLACE_FIRST)
    d_step { poll_t = clock; must_be_replayed = wal }
    list_sessions();
#elif LOG == 1
    ask_time();
#ifdef MUTANT_PREPARED_ARE_LISTED_FIRST
    list_prepared(); list_who_waits(); list_sessions();
#else
    list_who_waits(); list_sessions();
#if PREPARED > 0
    list_prepared();
#endif
#endif
#else
    ask_time(); list_sessions();
#endif
#if LOG == 3 && !defined(MUTANT_USES_A_POLL_AT_ONCE)
#ifndef MUTANT_LOOKS_UP_THE_PLACE_FIRST
    d_step { must_be_replayed = wal }
#endif
    (replayed >= must_be_replayed);
#endif
    d_step { must_be_replayed = 0; printf("reader: polls at %d\n", poll_t); polled(); check_horizon() }
}
active proctype reader() {
    d_step { begin_machine(START); clear() }
    do
    :: d_step { crashes < CRASHES && horizon_t != saved_t -> saved_t = horizon_t; printf("reader: stores the horizon %d\n", saved_t) }
    :: d_step { crashes < CRASHES -> crashes++; looks = 0; begin_machine(saved_t); clear(); printf("reader: dies, and starts again at %d\n", saved_t) }
    :: d_step { in_window -> printf("reader: reads a page of the window from (%d, %d) to %d\n", win_t, win_k, win_until); read_keys(); check_horizon() }
    :: d_step { !in_window && forward -> printf("reader: reads a page from (%d, %d) on\n", pos_t, pos_k); read_events(); check_horizon() }
    :: !in_window && !forward && looks < 2 -> look()
    :: !in_window && !forward && looks >= 2 -> break
    od;
    skip;
    d_step { x = 0; do :: x < WRITERS -> assert(!done[x] || handled[x]); x++ :: else -> break od; clear() }
}

init {
    atomic {
        byte n = 0;
        do :: n < WRITERS -> waits[n] = true; n++ :: else -> break od;
        n = 0;
        do :: n < (MESSAGES > 0 -> 1 : WRITERS) -> run writer(n); n++ :: else -> break od;
        n = 0; run world()
    }
}

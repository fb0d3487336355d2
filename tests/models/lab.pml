// model    Readers of a log in one world: ours loses nothing and waits for nobody else; each other one loses an event, or waits.
//
// code     journal/backtracking.py: WriterLockBacktracking.polled, WriterLockBacktracking.keys_read, WriterLockBacktracking.events_read
// code     sql/functions/journal/_poll_writers_v1.sql
//
// scope    ours: WRITERS=2 TICKS=2
//
// reader   FORWARD: WRITERS=2 TICKS=0: loses: it reads what has a higher number than the last event it has read
// reader   WINDOW: WRITERS=1 TICKS=2: loses: it reads forward, and the last second again each time
// reader   GAP_TIMEOUT: WRITERS=2 TICKS=2: loses: it waits a second for a number that is missing, then takes it for rolled back
// reader   XID_HORIZON: WRITERS=1 TICKS=0: waits: it reads only what is older than every open transaction, by pg_snapshot_xmin
// reader   SLOT: WRITERS=1 TICKS=0: loses: it reads commits in their order from a replication slot, which a standby does not have

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef TICKS
#define TICKS 2
#endif
#define PAGE 2
#define MARGIN 1
#define EVENTS WRITERS
#define NAMES WRITERS
#define START 4
#define CLOCK0 5
#define IS_PREPARED(n) false
#define BOUND_OF_NEW(n) polled_at
#define VISIBLE(e) visible[e]
#define STAMP(e) stamp[e]
#define HANDLE(e) handled[e] = true
#define SECOND 1
inline take_imports() { skip }

// An event for each transaction: its time and its number, drawn when it is inserted; its place in the order of commits.
byte clock = CLOCK0, drawn = 0, committed = 0, ended = 0, looks = 0;
bool held[WRITERS], inserted[WRITERS], visible[WRITERS], handled[WRITERS];
byte stamp[WRITERS], number[WRITERS], place[WRITERS];
bool other_is_open = false, other_has_been = false, failed_over = false;
byte at, waits_since;

#include "backtracking.inc"

proctype writer(byte w) {
    d_step { held[w] = true; printf("transaction %d begins\n", w + 1) }
    d_step { stamp[w] = clock; drawn++; number[w] = drawn; inserted[w] = true; printf("transaction %d inserts its event: time %d, number %d\n", w + 1, clock, drawn) }
    if
    :: d_step { visible[w] = true; committed++; place[w] = committed; printf("transaction %d commits\n", w + 1) }
    :: d_step { inserted[w] = false; stamp[w] = 0; printf("transaction %d rolls back\n", w + 1) }
    fi;
    d_step { held[w] = false; ended++ }
}

proctype world() {
    do
    :: d_step { clock < CLOCK0 + TICKS && ended < WRITERS -> clock++; printf("a second goes by: time %d\n", clock) }
    :: d_step { !other_has_been -> other_has_been = true; other_is_open = true; printf("a report begins in a transaction of its own\n") }
    :: d_step { !failed_over -> failed_over = true; printf("the primary fails, and a standby that has all of it takes over\n") }
    :: ended == WRITERS -> break
    od
}

// An event that is visible, was not handled, and is never read any more
#define LOST(e) (visible[e] && !handled[e] && stamp[e] != 0)
inline handle(e) { handled[e] = true; printf("the reader handles the event of transaction %d\n", e + 1) }

#if defined(MUTANT_FORWARD)
inline poll() {
    y = at;
    x = 0; do :: x < WRITERS -> if :: visible[x] && number[x] > at -> handle(x); y = (number[x] > y -> number[x] : y) :: else fi; x++ :: else -> break od;
    at = y;
    x = 0; do :: x < WRITERS -> assert(!LOST(x) || number[x] > at); x++ :: else -> break od
}
#elif defined(MUTANT_WINDOW)
inline poll() {
    x = 0; do :: x < WRITERS -> if :: visible[x] && !handled[x] && stamp[x] + SECOND >= clock -> handle(x) :: else fi; x++ :: else -> break od;
    x = 0; do :: x < WRITERS -> assert(!LOST(x) || stamp[x] + SECOND >= clock); x++ :: else -> break od
}
#elif defined(MUTANT_GAP_TIMEOUT)
inline poll() {
    y = 1; oldest = 0;
    do
    :: y && at < drawn ->
        y = 0; count = 0;
        x = 0;
        do
        :: x < WRITERS ->
            if
            :: visible[x] && number[x] == at + 1 -> handle(x); y = 1
            :: visible[x] && number[x] > at + 1 -> count = 1
            :: else
            fi;
            x++
        :: else -> break
        od;
        if
        :: y -> at++; waits_since = 0
        :: !y && count && waits_since == 0 -> waits_since = clock; printf("the reader waits for number %d\n", at + 1)
        :: !y && count && waits_since != 0 && clock >= waits_since + SECOND -> printf("the reader gives number %d up\n", at + 1); at++; waits_since = 0; y = 1
        :: else
        fi
    :: else -> break
    od;
    x = 0; do :: x < WRITERS -> assert(!LOST(x) || number[x] > at); x++ :: else -> break od
}
#elif defined(MUTANT_XID_HORIZON)
// The report is older than all that began after it. What counts here: it holds up a reader although nobody writes any more.
inline poll() {
    y = other_is_open;
    x = 0; do :: x < WRITERS -> if :: held[x] -> y = true :: else fi; x++ :: else -> break od;
    x = 0; do :: x < WRITERS -> if :: visible[x] && !y -> handle(x) :: else fi; x++ :: else -> break od;
    if :: y -> printf("the reader finds a transaction open, and waits for it\n") :: else fi;
    x = 0; do :: x < WRITERS -> assert(!LOST(x) || ended < WRITERS); x++ :: else -> break od
}
#elif defined(MUTANT_SLOT)
inline poll() {
    if
    :: failed_over && !looks -> looks = 1; at = committed; printf("the reader makes a new slot: it begins here\n")
    :: else ->
        x = 0; do :: x < WRITERS -> if :: visible[x] && !handled[x] && place[x] > at -> handle(x) :: else fi; x++ :: else -> break od;
        at = committed
    fi;
    x = 0; do :: x < WRITERS -> assert(!LOST(x) || place[x] > at); x++ :: else -> break od
}
#endif

#if defined(MUTANT_FORWARD) || defined(MUTANT_WINDOW) || defined(MUTANT_GAP_TIMEOUT) || defined(MUTANT_XID_HORIZON) || defined(MUTANT_SLOT)
active proctype reader() {
    do
    :: d_step { printf("the reader polls at time %d\n", clock); poll(); clear() }
    :: ended == WRITERS -> break
    od
}
#else
inline look() {
    d_step { poll_t = clock; if :: ended == WRITERS && at_end -> looks++ :: else fi }
    d_step { x = 0; do :: x < WRITERS -> h[x] = held[x]; x++ :: else -> break od; clear() }
    d_step { printf("the reader polls at %d\n", poll_t); polled(); clear() }
}
active proctype reader() {
    bool gone = false;
    d_step { begin_machine(START); clear() }
    do
    :: d_step { failed_over && !gone -> gone = true; looks = 0; begin_machine(horizon_t); clear(); printf("the reader begins again at its stored horizon\n") }
    :: d_step { in_window -> read_keys(); clear() }
    :: d_step { !in_window && forward -> read_events(); clear() }
    :: !in_window && !forward && looks < 2 -> look()
    :: looks >= 2 -> break
    od;
    skip;
    d_step { x = 0; do :: x < WRITERS -> assert(!LOST(x)); x++ :: else -> break od; clear() }
}
#endif

init { atomic { byte n = 0; do :: n < WRITERS -> run writer(n); n++ :: else -> break od; n = 0; run world() } }

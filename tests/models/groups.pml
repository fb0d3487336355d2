// model    A group reads matches by their number: none is passed over, though numbers are drawn and committed in any order.
//
// code     sql/functions/subscriptions/_lock_matching_v1.sql
// code     sql/functions/subscriptions/settled_matches_v1.sql
// code     sql/functions/subscriptions/read_next_v1.sql
// code     sql/functions/subscriptions/poll_group_v1.sql
// code     sql/functions/subscriptions/move_cursor_v1.sql
// code     sql/functions/subscriptions/rewind_group_v1.sql
//
// scope    two who match, a hand-over: MATCHERS=2 HANDOVERS=1
// scope    three who match: MATCHERS=3
// large    three who match, two hand-overs: MATCHERS=3 HANDOVERS=2
//
// mutant   READS_WHAT_IS_THERE: MATCHERS=2: reads every match that it sees
// mutant   LISTS_LOCKS_BEFORE_THE_NUMBER: MATCHERS=3: looks for the last number after the list of locks
// mutant   DRAWS_BEFORE_THE_LOCK: MATCHERS=2: draws a number, and then takes the lock
// mutant   UNLOCKS_BEFORE_IT_IS_VISIBLE: MATCHERS=2: lets the lock go before the matches can be seen
// mutant   MATCHES_READ_BY_AN_OLDER_SNAPSHOT: MATCHERS=2: reads matches by the snapshot of the statement that asks what is settled
// mutant   MOVES_BEFORE_IT_HAS_HANDLED: MATCHERS=1 HANDOVERS=1: moves the cursor, and then handles
// mutant   REWINDS_THE_CURSOR: MATCHERS=1 REWINDS=1: sets the cursor back for a rewind, and a reader that goes on puts it forward again

#ifndef MATCHERS
#define MATCHERS 2
#endif
#ifndef HANDOVERS
#define HANDOVERS 0
#endif
#ifndef REWINDS
#define REWINDS 0
#endif
#define NUMBERS 5                        // more than are drawn; 0 is none
#define FREE 255

byte drawn, ended, handovers, rewinds;
bool visible[NUMBERS], handled[NUMBERS];
byte lock[4] = FREE;                     // of each who matches: the last number given out before its own
byte epoch = 1, cursor;
byte x;
#ifdef MUTANT_MATCHES_READ_BY_AN_OLDER_SNAPSHOT
bool snapshot[10];
#define SEEN(r, n) snapshot[(r) * 5 + (n)]
#else
#define SEEN(r, n) visible[n]
#endif

// _match_events_v1: _lock_matching_v1, a number, COMMIT. A rewind has the past matched again in the same way, behind what has matched.
inline take_lock(m) {
    d_step { was = drawn };
    d_step { lock[m] = was; was = 0; printf("matcher %d locks %d\n", m, lock[m]) }
}
inline draw(m) { d_step { drawn++; number = drawn; printf("matcher %d draws %d\n", m, number) } }
inline appear(m) {
    d_step {
        visible[number] = true; printf("match %d is visible\n", number);
        assert(number > cursor)
    }
}
proctype matcher(byte m) {
    byte was, number;
#ifdef MUTANT_DRAWS_BEFORE_THE_LOCK
    draw(m); take_lock(m);
#else
    take_lock(m); draw(m);
#endif
    if
#ifdef MUTANT_UNLOCKS_BEFORE_IT_IS_VISIBLE
    :: d_step { lock[m] = FREE; printf("matcher %d: its lock is gone\n", m) }; appear(m)
#else
    :: appear(m); d_step { lock[m] = FREE; printf("matcher %d: its lock is gone\n", m) }
#endif
    :: d_step { lock[m] = FREE; printf("matcher %d rolls back\n", m) }
    fi;
    d_step { ended++; number = 0 }
}

// Who reads for the group holds the range with an epoch, odd and even in turns: settled_matches_v1, read_next_v1, the handler, move_cursor_v1
inline ask_number() { d_step { until = drawn } }
inline list_locks() {
    d_step {
        lowest = FREE; x = 0;
        do :: x < 4 -> lowest = (lock[x] < lowest -> lock[x] : lowest); x++ :: else -> break od;
        x = 0
    }
}
inline handle() { d_step { mine != 0 -> handled[next] = true; printf("reader %d handles match %d\n", r, next) } }
inline move() {
    d_step {
        if
        :: mine == epoch && next >= cursor ->
            cursor = next; printf("the cursor is at %d\n", cursor);
#ifndef MUTANT_MOVES_BEFORE_IT_HAS_HANDLED
            x = 1; do :: x <= cursor -> assert(!visible[x] || handled[x]); x++ :: else -> break od;
#endif
            place = next
        :: else -> mine = 0; place = 0; printf("reader %d is refused\n", r)
        fi;
        x = 0
    }
}
proctype reader(byte r) {
    byte mine, place, until, lowest, next;
end:
    do
    :: d_step { mine == 0 && epoch % 2 == r -> mine = epoch; place = cursor; printf("reader %d begins after %d with epoch %d\n", r, place, mine) }
    :: mine != 0 && place < drawn ->
#ifdef MUTANT_MATCHES_READ_BY_AN_OLDER_SNAPSHOT
        d_step { x = 0; do :: x < NUMBERS -> snapshot[r * 5 + x] = visible[x]; x++ :: else -> break od; x = 0 }
#endif
#ifdef MUTANT_LISTS_LOCKS_BEFORE_THE_NUMBER
        list_locks(); ask_number();
#else
        ask_number(); list_locks();
#endif
        d_step {
            until = (lowest < until -> lowest : until);
#ifdef MUTANT_READS_WHAT_IS_THERE
            until = NUMBERS - 1;
#endif
            next = place + 1;
            do :: next <= until && !SEEN(r, next) -> next++ :: else -> break od;
            if :: next > until -> next = 0 :: else fi;
            until = 0; lowest = 0
        }
        if
        :: next != 0 ->
#ifdef MUTANT_MOVES_BEFORE_IT_HAS_HANDLED
            move();
            if :: mine == epoch -> handle() :: else fi;    // who has lost the range is cancelled
#else
            handle(); move();
#endif
            next = 0
        :: else
        fi
    :: d_step { mine != 0 && mine != epoch -> mine = 0; place = 0; printf("reader %d learns that it has lost the range\n", r) }
    od
}

active proctype others() {
end:
    do
    :: d_step { handovers < HANDOVERS -> handovers++; epoch++; printf("the range is the other reader's: epoch %d\n", epoch) }
#ifdef MUTANT_REWINDS_THE_CURSOR
    :: d_step { rewinds < REWINDS && cursor > 0 -> rewinds++; cursor = 0; x = 0; do :: x < NUMBERS -> handled[x] = false; x++ :: else -> break od; x = 0; printf("the group is rewound: its cursor is 0\n") }
    // The past is read again, or this is reached: the reader is at the end, and has not
    :: d_step { rewinds == 1 && ended == MATCHERS && timeout -> x = 1; do :: x <= drawn -> assert(!visible[x] || handled[x]); x++ :: else -> break od; x = 0; rewinds = 2 }
#endif
    // Nothing moves any more: all is handled
    :: timeout -> d_step { x = 1; do :: x <= drawn -> assert(!visible[x] || handled[x]); x++ :: else -> break od; x = 0 } ; break
    od
}
init { atomic { run reader(0); run reader(1); byte n = 0; do :: n < MATCHERS -> run matcher(n); n++ :: else -> break od; n = 0 } }

// model    Deliveries of one order: one attempt at a time, in order, an outcome only from who has the lease, none waits behind nothing.
//
// code     sql/functions/webhooks/_fan_out_v1.sql
// code     sql/functions/webhooks/_claim_deliveries_v1.sql
// code     sql/functions/webhooks/_finish_deliveries_v1.sql
// code     sql/functions/webhooks/_follow_on_v1.sql
// code     sql/functions/webhooks/_reap_deliveries_v1.sql
// code     sql/functions/webhooks/_decide_delivery_v1.sql
//
// scope    dead letters block: EVENTS=3 EXPIRIES=1 BLOCKS=1
// scope    dead letters are passed: EVENTS=3 EXPIRIES=1 BLOCKS=0
// scope    a database that goes back in time: EVENTS=2 EXPIRIES=1 BLOCKS=1 BACK=1
// large    more leases that end: EVENTS=3 EXPIRIES=2 BLOCKS=1 BACK=1
//
// mutant   NO_TOKEN: EVENTS=1 EXPIRIES=1: takes an outcome from whoever had a lease
// mutant   REAPS_WITHOUT_A_TOKEN: EVENTS=1 EXPIRIES=1: takes back what has been leased again meanwhile
// mutant   A_TOKEN_OF_A_SEQUENCE: EVENTS=1 EXPIRIES=1 BACK=1: gives out a token again after the database went back
// mutant   FANS_OUT_WITHOUT_THE_LOCK: EVENTS=2: looks what is open, and adds its own later
// mutant   FOLLOWS_ON_LATER: EVENTS=2: lets the next one go in a transaction of its own, which may never come
// mutant   PASSES_THE_DEAD: EVENTS=2 BLOCKS=1: lets the next one go behind a dead letter that blocks
// mutant   RETRIES_PASS_THE_ORDER: EVENTS=2: lets the next one go when an attempt has failed

#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef EXPIRIES
#define EXPIRIES 0
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef BACK
#define BACK 0
#endif
#define ATTEMPTS 2

#define ABSENT 0
#define WAITING 1
#define PENDING 2
#define LEASED 3
#define DONE 4
#define DEAD 5
#define ANY_IS_PENDING (state[0] == PENDING || state[1] == PENDING || state[2] == PENDING)
#define ANY_IS_WAITING (state[1] == WAITING || state[2] == WAITING)
#define IS_OPEN(s) ((s) == WAITING || (s) == PENDING || (s) == LEASED)
#define IN_THE_WAY(s) (IS_OPEN(s) || ((s) == DEAD && BLOCKS))

byte state[3], attempts[3], token[3];
byte kept_state[3], kept_attempts[3], kept_token[3], kept_sequence;
bool expired[3], kept_expired[3];
byte sequence = 0, given = 0;            // of tokens
byte fanned = 0, backs = 0, expiries = 0, retried = 0;
// Senders: what each holds (number + 1), by which token, whether the receiver had it; whether the lease still runs
byte holds[2], mine[2];
bool arrived[2], live[2], received[3];
byte reaps, reaps_token;
byte x, y, first;
bool busy[2];
inline clear() { x = 0; y = 0; first = 0 }

// _follow_on_v1
inline follow_on() {
    first = EVENTS; x = 0;
    do
    :: x < EVENTS ->
#ifdef MUTANT_PASSES_THE_DEAD
        if :: first == EVENTS && IS_OPEN(state[x]) -> first = x :: else fi;
#else
        if :: first == EVENTS && IN_THE_WAY(state[x]) -> first = x :: else fi;
#endif
        x++
    :: else -> break
    od;
    if :: first < EVENTS && state[first] == WAITING -> state[first] = PENDING :: else fi
}

// What has to hold after every transaction
inline check() {
    x = 0;
    do
    :: x < EVENTS ->
        if
        :: state[x] == WAITING -> first = 0; y = 0; do :: y < x -> if :: IN_THE_WAY(state[y]) -> first = 1 :: else fi; y++ :: else -> break od; assert(first)
        :: state[x] == PENDING || state[x] == LEASED -> y = 0; do :: y < x -> assert(!IN_THE_WAY(state[y])); y++ :: else -> break od
        :: state[x] == DONE -> assert(received[x])
        :: else
        fi;
        x++
    :: else -> break
    od;
    clear()
}

// _finish_deliveries_v1 of one delivery
inline finish(d, a_token, verdict) {
#ifdef MUTANT_NO_TOKEN
    if
    :: state[d] == LEASED ->
#else
    if
    :: state[d] == LEASED && token[d] == a_token ->
#endif
        state[d] = verdict; token[d] = 0; expired[d] = false;
#ifdef MUTANT_RETRIES_PASS_THE_ORDER
        if :: verdict == PENDING && d + 1 < EVENTS && state[d + 1] == WAITING -> state[d + 1] = PENDING :: else fi;
#endif
#ifndef MUTANT_FOLLOWS_ON_LATER
        if :: verdict != PENDING -> follow_on() :: else fi
#endif
    :: else -> printf("  the lease is another's: nothing is stored\n")
    fi
}

// _fan_out_v1 of the events in their order, by two processes at a time when there is no lock
proctype fans_out(byte f) {
    do
#ifdef MUTANT_FANS_OUT_WITHOUT_THE_LOCK
    :: d_step { fanned + f < EVENTS ->
        busy[f] = false; x = 0; do :: x < EVENTS -> if :: IN_THE_WAY(state[x]) -> busy[f] = true :: else fi; x++ :: else -> break od;
        clear() };
       d_step { if :: fanned < EVENTS -> state[fanned] = (busy[f] -> WAITING : PENDING); printf("event %d is fanned out\n", fanned); fanned++ :: else fi; busy[f] = false; check() }
#else
    :: d_step { fanned < EVENTS ->
        x = 0; do :: x < EVENTS -> if :: IN_THE_WAY(state[x]) -> busy[f] = true :: else fi; x++ :: else -> break od;
        state[fanned] = (busy[f] -> WAITING : PENDING); busy[f] = false; printf("event %d is fanned out\n", fanned); fanned++; check() }
#endif
    :: fanned >= EVENTS -> break
    od
}

inline end_attempt(s, verdict) {
    live[s] = false; y = holds[s] - 1; holds[s] = 0;
    finish(y, mine[s], verdict);
    mine[s] = 0; arrived[s] = false; check()
}

// _claim_deliveries_v1, an attempt, and its outcome
proctype sender(byte s) {
end:
    do
    :: d_step { holds[s] == 0 && ANY_IS_PENDING ->
        y = 0; do :: state[y] != PENDING -> y++ :: else -> break od;
        sequence++; given++;
#ifdef MUTANT_A_TOKEN_OF_A_SEQUENCE
        token[y] = sequence;
#else
        token[y] = given;
#endif
        state[y] = LEASED; attempts[y]++; expired[y] = false;
        holds[s] = y + 1; mine[s] = token[y]; arrived[s] = false; live[s] = true;
        printf("sender %d takes event %d, token %d\n", s, y, token[y]);
        assert(!live[1 - s]);    // the order is one: nobody else is at one of its events
        check()
    }
    :: d_step { holds[s] != 0 && !arrived[s] -> arrived[s] = true; received[holds[s] - 1] = true; printf("event %d arrives, sent by %d\n", holds[s] - 1, s) }
    :: d_step { holds[s] != 0 && arrived[s] -> printf("sender %d: event %d is done\n", s, holds[s] - 1); end_attempt(s, DONE) }
    :: d_step { holds[s] != 0 && attempts[holds[s] - 1] < ATTEMPTS -> printf("sender %d: event %d has failed\n", s, holds[s] - 1); end_attempt(s, PENDING) }
    :: d_step { holds[s] != 0 && attempts[holds[s] - 1] >= ATTEMPTS -> printf("sender %d: event %d is dead\n", s, holds[s] - 1); end_attempt(s, DEAD) }
    od
}

inline end_lease(d) {
    expired[d] = true; printf("the lease of event %d ends\n", d);
    if :: holds[0] == d + 1 && mine[0] == token[d] -> live[0] = false :: else fi;
    if :: holds[1] == d + 1 && mine[1] == token[d] -> live[1] = false :: else fi
}

inline keep_a_copy() {
    x = 0; do :: x < 3 -> kept_state[x] = state[x]; kept_attempts[x] = attempts[x]; kept_token[x] = token[x]; kept_expired[x] = expired[x]; x++ :: else -> break od;
    kept_sequence = sequence; x = 0
}
inline go_back() {
    x = 0; do :: x < 3 -> state[x] = kept_state[x]; attempts[x] = kept_attempts[x]; token[x] = kept_token[x]; expired[x] = kept_expired[x]; x++ :: else -> break od;
    sequence = kept_sequence; live[0] = false; live[1] = false; reaps = 0; reaps_token = 0
}

// _reap_deliveries_v1 looks which leases are over, and then takes them back, by their tokens
active proctype others() {
end:
    do
    :: d_step { expiries < EXPIRIES && token[0] != 0 && state[0] == LEASED && !expired[0] -> expiries++; end_lease(0) }
    :: d_step { expiries < EXPIRIES && state[1] == LEASED && !expired[1] -> expiries++; end_lease(1) }
    :: d_step { reaps == 0 && state[0] == LEASED && expired[0] -> reaps = 1; reaps_token = token[0] }
    :: d_step { reaps == 0 && state[1] == LEASED && expired[1] -> reaps = 2; reaps_token = token[1] }
    :: d_step { reaps != 0 ->
        y = reaps - 1; reaps = 0;
        printf("event %d: its sender has not come back\n", y);
#ifdef MUTANT_REAPS_WITHOUT_A_TOKEN
        reaps_token = token[y];
#endif
        if :: attempts[y] < ATTEMPTS -> first = PENDING :: else -> first = DEAD fi;
        busy[0] = (first == DEAD);
        if :: busy[0] -> finish(y, reaps_token, DEAD) :: else -> finish(y, reaps_token, PENDING) fi;
        busy[0] = false; reaps_token = 0; check()
    }
    :: d_step { retried < 1 && state[0] == DEAD && BLOCKS -> retried++; state[0] = PENDING; printf("somebody has event 0 tried again\n"); check() }    // _decide_delivery_v1
#if BACK > 0
    :: d_step { backs == 0 && fanned == EVENTS -> backs = 1; keep_a_copy(); printf("a copy of the database is kept\n") }
    :: d_step { backs == 1 -> backs = 2; go_back(); printf("the database is the copy again\n"); check() }
#endif
#ifdef MUTANT_FOLLOWS_ON_LATER
    :: d_step { ANY_IS_WAITING -> follow_on(); clear() }
#endif
    od
}

init { atomic { run fans_out(0); run fans_out(1); run sender(0); run sender(1) } }

// model    A database that goes back in time: what is handled is of the history that there is, none of it is missing.
//
// code     sql/functions/offsets/save_offsets_v1.sql
// code     sql/functions/offsets/_same_generation_v1.sql
// code     sql/functions/holding/heartbeat_v1.sql
// code     journal/database/generation.py: Generation.follows
// code     projections/running/range_runner.py: RangeRunner._next_look, RangeRunner._fit_journal
// code     projections/running/membership.py: Membership._beat
// code     offsets/lost_events.py: fit_journal
//
// scope    one database: LIVES=2
// scope    two databases, where the journal goes back: LIVES=2 APART=1
// large    one database, back three times: LIVES=3 EVENTS=3
//
// mutant   COMPARES_NOTHING: LIVES=1: stores on what it remembers
// mutant   COMPARES_ITS_COUNT_ALONE: LIVES=1: handles what it has read of a history that is gone, where nothing was stored since
// mutant   SEES_NO_HEARTBEAT: LIVES=1: goes by the timeline alone, which a restore in place does not change
// mutant   SEES_NO_TIMELINE: LIVES=1: goes by its heartbeats alone, and the last one may be older than what it has read
// mutant   DOES_NOT_FIT_THE_JOURNAL: LIVES=1 APART=1: takes an offset for one of the journal that there is

#ifndef LIVES
#define LIVES 1
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef APART
#define APART 0
#endif

// One source. The journal: how many events it has, and which; ids never come again. The read side: the offset, of which event it is, what was
// handled, the count of commits; heartbeats and the timeline.
byte ids, length, log[4], timeline = 1;
byte offset, effect[4], commits, beats, life = 1;
byte kept_length, kept_log[4], kept_offset, kept_effect[4], kept_commits, kept_beats, kept_life = 1;
bool is_kept, parked, kept_parked;
byte lives;
// The worker: what it remembers
byte known, count, answered, seen, number, id;
bool began;
byte x;

active proctype appends() {
end:
    do
    :: d_step { length < EVENTS && ids < EVENTS + LIVES -> ids++; length++; log[length] = ids; printf("event %d of the source is appended: %d\n", length, ids) }
    od
}

inline forget() { began = false; known = 0; count = 0; number = 0; id = 0; seen = 0 }
active proctype worker() {
end:
    do
    :: d_step { !began && !parked -> began = true; known = offset; count = commits; seen = timeline;    // claimed, and polled
#if APART > 0 && !defined(MUTANT_DOES_NOT_FIT_THE_JOURNAL)
        // fit_journal: in another life, the number and the time of what is handled are compared
        if
        :: life != timeline ->
            if :: offset > length || (offset > 0 && effect[offset] != log[offset]) -> parked = true; printf("the journal has lost what is handled: parked\n") :: else -> life = timeline fi
        :: else
        fi;
#endif
        printf("the worker begins after number %d\n", known) }
    :: d_step { began && number == 0 && known < length -> number = known + 1; id = log[number]; printf("the worker reads number %d: event %d\n", number, id) }
    :: d_step { began && seen != timeline -> forget(); printf("a poll shows another timeline\n") }
    :: d_step { beats < 2 && beats >= answered -> beats++; answered = beats; printf("heartbeat %d\n", answered) }
#if !defined(MUTANT_SEES_NO_HEARTBEAT) && !defined(MUTANT_COMPARES_NOTHING) && !defined(MUTANT_COMPARES_ITS_COUNT_ALONE)
    :: d_step { beats < answered -> forget(); answered = 0; printf("a heartbeat is lost: what is remembered is dropped\n") }
#else
    :: d_step { beats < answered -> answered = 0 }
#endif
    :: d_step { number != 0 ->    // save_offsets_v1, _same_generation_v1
        if
#ifdef MUTANT_COMPARES_NOTHING
        :: true ->
#elif defined(MUTANT_COMPARES_ITS_COUNT_ALONE)
        :: commits == count && offset == known ->
#elif defined(MUTANT_SEES_NO_HEARTBEAT)
        :: commits == count && offset == known && seen == timeline ->
#elif defined(MUTANT_SEES_NO_TIMELINE)
        :: commits == count && offset == known && beats >= answered ->
#else
        :: commits == count && offset == known && beats >= answered && seen == timeline ->
#endif
            printf("the effect of number %d is committed: of event %d\n", number, id);
            effect[number] = id; offset = number; commits++; count++; known = number; number = 0;
            if :: !APART -> x = 1; do :: x <= offset -> assert(x <= length && effect[x] == log[x]); x++ :: else -> break od; x = 0 :: else fi
        :: else -> forget(); printf("nothing is stored; the worker begins again\n")
        fi;
        id = 0 }
    od
}

// A fail-over shows another timeline. A restore in place does not; it takes longer than a heartbeat. Where the journal is elsewhere, it goes back alone.
inline restore_journal() { length = kept_length; x = 0; do :: x < 4 -> log[x] = (x <= length -> kept_log[x] : 0); x++ :: else -> break od; x = 0 }
inline restore_read_side() {
    offset = kept_offset; commits = kept_commits; beats = kept_beats; life = kept_life; parked = kept_parked;
    x = 0; do :: x < 4 -> effect[x] = kept_effect[x]; x++ :: else -> break od; x = 0
}
active proctype others() {
end:
    do
    :: d_step { lives < LIVES && !is_kept -> is_kept = true; kept_length = length; kept_offset = offset; kept_commits = commits; kept_beats = beats; kept_life = life; kept_parked = parked;
        x = 0; do :: x < 4 -> kept_log[x] = log[x]; kept_effect[x] = effect[x]; x++ :: else -> break od; x = 0; printf("a copy is kept\n") }
#if APART > 0
    :: d_step { is_kept -> is_kept = false; lives++; restore_journal(); timeline++; printf("the journal is the copy again\n") }
#else
    :: d_step { is_kept -> is_kept = false; lives++; restore_journal(); restore_read_side(); timeline++; printf("a fail-over to the copy\n") }
    :: d_step { is_kept && beats > kept_beats -> is_kept = false; lives++; restore_journal(); restore_read_side(); printf("the copy is restored in place\n") }
#endif
    // In the end all is handled, or known to be lost
    :: timeout -> d_step { if :: parked -> skip :: else -> x = 1; do :: x <= length -> assert(effect[x] == log[x]); x++ :: else -> break od; x = 0 fi; is_kept = false } ; break
    od
}

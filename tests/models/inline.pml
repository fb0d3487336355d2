// model    A projection that is switched between inline and live, and set back, while events come: each once and in order.
//
// code     sql/functions/offsets/_begin_inline_v1.sql
// code     sql/functions/offsets/_lock_inline_v1.sql
// code     sql/functions/offsets/_set_mode_v1.sql
// code     sql/functions/offsets/_set_offset_v1.sql
// code     sql/functions/offsets/save_offsets_v1.sql
// code     projections/running/acceptance.py: Acceptance._batch, Acceptance.accept
//
// scope    switched twice, set back once: EVENTS=3 SWITCHES=2 RESETS=1
// large    more events: EVENTS=4 SWITCHES=3 RESETS=1
//
// mutant   SETS_BACK_WITHOUT_THE_LOCK: EVENTS=2 SWITCHES=1 RESETS=1: does not wait for transactions that handle inline
// mutant   HANDLES_BEFORE_ITS_TURN: EVENTS=2 SWITCHES=1: an append handles its event whatever the offset of its source is
// mutant   AN_OLD_SNAPSHOT_IS_TRUSTED: EVENTS=2 SWITCHES=1 RESETS=1: an append under REPEATABLE READ does not lock the row of the projection
// mutant   STORES_WITHOUT_COMPARING: EVENTS=3 SWITCHES=2: a worker stores whatever the epoch and the offset are

#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef SWITCHES
#define SWITCHES 0
#endif
#ifndef RESETS
#define RESETS 0
#endif
#define UNREAD 255

// One source. Its numbers: drawn, visible; where its offset is, up to where the read model has its effects.
byte drawn, visible, offset, applied, epoch = 1, version, shared;
bool source_is_locked, is_inline;
byte switches, resets;
byte mine, known = UNREAD, pos, at;      // the worker
bool looks_up;
byte from;

inline end_append() {
    if :: has_lock -> shared--; has_lock = false :: else fi;
    ready = false; number = 0; was = 0; seen = 0; old = false; source_is_locked = false
}

// An append in a transaction; _begin_inline_v1 in it
proctype append() {
    byte number, was, seen;
    bool old, ready, has_lock;
end:
    do
    :: d_step { drawn < EVENTS && !source_is_locked -> source_is_locked = true; drawn++; number = drawn; was = offset; seen = version; printf("an append takes number %d\n", number) };
        if :: old = true :: old = false fi;
        if
        :: is_inline ->    // the lock is asked for only where it is
            d_step { shared++; has_lock = true };
            d_step {
#ifdef MUTANT_HANDLES_BEFORE_ITS_TURN
                ready = is_inline;
#else
                ready = is_inline && (old -> was : offset) == number - 1;
#endif
#ifndef MUTANT_AN_OLD_SNAPSHOT_IS_TRUSTED
                if :: old && seen != version -> ready = false; has_lock = false; shared--; drawn--; number = 0 :: else fi;    // 40001
#endif
                printf("  it handles it: %d\n", ready)
            }
        :: else
        fi;
        if
        :: d_step { number != 0 ->
            visible = number;
            if
            :: ready -> printf("  it commits %d with its effect\n", number); assert(applied + 1 == number); applied = number; offset = number
            :: else -> printf("  it commits %d\n", number)
            fi;
            end_append() }
        :: d_step { number != 0 -> drawn--; end_append(); printf("  it rolls back\n") }
        :: d_step { number == 0 -> end_append() }
        fi
    od
}

active proctype worker() {
end:
    do
    :: d_step { mine != epoch -> mine = epoch; known = UNREAD; pos = 0; at = 0; looks_up = is_inline; printf("the worker begins with epoch %d\n", mine) }
    :: d_step { mine != 0 && at == 0 && pos < visible -> at = pos + 1 }
    :: d_step { at != 0 && (known == UNREAD || looks_up) && from == 0 -> known = offset; from = 1 }
    :: d_step { at != 0 && known != UNREAD && (!looks_up || from == 1) ->
        if
        :: at <= known -> pos = at; at = 0
        :: else ->    // with what is missing before it
#ifdef MUTANT_STORES_WITHOUT_COMPARING
            if
            :: true ->
#else
            if
            :: mine == epoch && offset == known ->
#endif
                from = known + 1;
                do
                :: from <= at -> printf("the worker commits the effect of %d\n", from); assert(applied + 1 == from); applied = from; from++
                :: else -> break
                od;
                offset = at; known = at; pos = at; at = 0
#ifndef MUTANT_STORES_WITHOUT_COMPARING
            :: else -> mine = 0; at = 0; printf("the worker is refused, and begins again\n")
#endif
            fi
        fi;
        from = 0
    }
    od
}

#ifdef MUTANT_SETS_BACK_WITHOUT_THE_LOCK
#define NOBODY_IS_AT_IT true
#else
#define NOBODY_IS_AT_IT (shared == 0)
#endif
active proctype others() {
end:
    do
    :: d_step { switches < SWITCHES && shared == 0 -> switches++; is_inline = !is_inline; epoch++; version++; printf("the projection is inline: %d\n", is_inline) }
    :: d_step { resets < RESETS && NOBODY_IS_AT_IT -> resets++; epoch++; version++; offset = 0; applied = 0; printf("the projection is set back to the beginning, and its read model emptied\n") }
    od
}
// All that was appended is handled in the end
active proctype watches() {
end:
    d_step { drawn == EVENTS && visible == EVENTS && !source_is_locked && mine == epoch && at == 0 && pos == EVENTS && resets == RESETS && switches == SWITCHES -> assert(applied == EVENTS && offset == EVENTS) }
}
init { run append() }

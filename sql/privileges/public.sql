-- PUBLIC may run new functions unless it is told otherwise; here nothing is open to everybody.
REVOKE ALL ON SCHEMA projections FROM public;
REVOKE ALL ON ALL TABLES IN SCHEMA projections FROM public;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA projections FROM public;

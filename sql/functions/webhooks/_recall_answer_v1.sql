-- What a request with this key was answered, as it is stored; NULL: it is new. Until the caller's transaction ends the key is
-- the caller's alone: for others, "free" is false, and they ask again later.
CREATE OR REPLACE FUNCTION projections._recall_answer_v1(p_tenant text, p_key text, OUT free boolean, OUT answer text)
RETURNS record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    free := pg_try_advisory_xact_lock(hashtext('slice-projections'), hashtext('answer ' || p_tenant || ' ' || p_key));
    IF free THEN
        SELECT a.answer INTO _recall_answer_v1.answer FROM projections.webhook_answers AS a
        WHERE a.tenant = p_tenant AND a.key = p_key AND a.expires_at > clock_timestamp();
    END IF;
END;
$$;
